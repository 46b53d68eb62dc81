"""The noise of a diffusion as an object: all that training and sampling ask of it. The equations are one folder up."""

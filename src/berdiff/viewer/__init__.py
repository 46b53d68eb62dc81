"""The viewer: a page for images and their masks, and the server that fills it."""

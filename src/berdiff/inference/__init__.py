"""From an image to plausible masks, their saliency and what they mean in millimetres."""

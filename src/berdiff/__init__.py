"""Conditional Bernoulli diffusion for medical image segmentation (BerDiff)."""

__version__ = "0.1.0"

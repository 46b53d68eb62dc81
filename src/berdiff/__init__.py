"""Conditional Bernoulli diffusion for medical image segmentation (BerDiff).

model = berdiff.load("lidc")             # a name, a model folder, the folder of a run, or hf://owner/name
result = model.segment("scan.png", n=16)
result.saliency, result.samples, result.representatives(3), result.plot()
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from berdiff.inference.model import load

__all__ = ["__version__", "load"]


def __getattr__(name: str) -> Any:
    """`load` on first use: it needs torch, and `berdiff --help` must not wait for that."""
    if name == "load":
        from berdiff.inference.model import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

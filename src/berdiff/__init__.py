"""Conditional Bernoulli diffusion for medical image segmentation (BerDiff).

model = berdiff.load("lidc")             # a name, a model folder, the folder of a run, or hf://owner/name
result = model.segment("scan.png", n=16)
result.saliency, result.samples, result.representatives(3), result.plot(), result.save("results/scan")

berdiff.models(); berdiff.prepare(...); berdiff.train(...); berdiff.evaluate(...); berdiff.compare(...)
"""

from typing import TYPE_CHECKING

__version__ = "0.3.0.dev0"
__all__ = ["__version__", "compare", "evaluate", "load", "models", "prepare", "segment", "train"]

if TYPE_CHECKING:
    from berdiff.api import compare, evaluate, load, models, prepare, segment, train
else:

    def __getattr__(name):
        """The functions on first use: they need torch, and `berdiff --help` must not wait for that."""
        if name in __all__:
            from berdiff import api

            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What tab completion offers."""
    return __all__

"""What trainer, evaluator, viewer and tables speak to, so that every method runs in the same harness."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from berdiff.diffusion.random import Generators
from berdiff.diffusion.sampling import Sampler


@runtime_checkable
class Segmenter(Protocol):
    """A method one trains and samples: always a `torch.nn.Module` too.

    Shapes: image `(B, C, H, W)`; masks `(B, R, K, H, W)` with R raters and K targets; samples `(B, n, K, H, W)`.
    Images are float in [0, 1]; masks hold 0 and 1 in any dtype; samples are uint8.
    """

    def loss(self, image: Tensor, masks: Tensor, generator: Generators) -> Mapping[str, Tensor]:
        """The terms of the training loss, each a scalar; `"loss"` is the one to descend on.

        With B generators, one an image, an image's random draws do not depend on the batch it is in.
        """
        ...

    def sample(self, image: Tensor, n: int, generator: Generators, sampler: Sampler | None = None) -> Tensor:
        """Draw n masks an image.

        `generator` is one generator, or B * n of them, one a sample in image-major order: with the latter a sample
        is the same whatever batch it is drawn in. `sampler` None means the method's own default.
        """
        ...

    def config(self) -> dict[str, object]:
        """What `config.json` holds: plain JSON types, with the method's name under `"method"`."""
        ...

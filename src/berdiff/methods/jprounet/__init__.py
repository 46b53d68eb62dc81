"""JPro. U-net, the joint probabilistic U-Net (Zhang et al. 2022, ACM MM): image and mask from shared latents."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from berdiff.data.input_spec import InputSpec
from berdiff.errors import InputError
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class JProUNet(MethodConfig):
    """The defaults are the authors', but for the two errors that docs/methods/jprounet.md names."""

    method: ClassVar[str] = "jprounet"

    preset: Literal["paper", "small", "tiny"] = "small"
    """sizes of the network: the authors' for LIDC-IDRI, for two cores, for tests"""
    dims: Annotated[int, Ge(2)] = 8
    """length of the vector z at each level; even"""
    couplings: Annotated[int, Ge(0)] = 4
    """additive couplings of each flow; 0 leaves a Gaussian with a scale"""
    beta: Annotated[float, Ge(0)] = 10.0
    """weight of the KL divergence, averaged over the levels; its authors take 1 to 10, diversity against accuracy"""
    beta_warmup: Annotated[int, Ge(0)] = 0
    """steps over which beta rises from 0"""
    masks_per_image: Annotated[int, Ge(1)] = 1
    """masks that share the encoding of an image in training: the raters in turn, from a random one on"""

    def check(self) -> None:
        if self.dims % 2:
            raise InputError(f"dims: expected an even number, found {self.dims}")

    def build(self, spec: InputSpec):
        from berdiff.methods.jprounet.segmenter import JointSegmenter

        return JointSegmenter(self, spec)

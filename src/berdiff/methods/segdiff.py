"""SegDiff (Amit et al. 2021, arXiv 2112.00390): Gaussian diffusion whose network reads the image once, by an RRDB."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from berdiff.data.input_spec import InputSpec
from berdiff.methods.gaussian import GaussianDiffusion

if TYPE_CHECKING:
    from berdiff.methods.diffusion import DiffusionSegmenter


@dataclass(frozen=True)
class SegDiff(GaussianDiffusion):
    """All but the network is `gaussian`'s."""

    method: ClassVar[str] = "segdiff"

    preset: Literal["paper-128", "paper-224", "own", "small", "tiny"] = "small"
    """the U-Net behind the RRDB: the paper's for 128x128 or 224x224, SegDiff's own, for two cores, for tests"""

    def build(self, spec: InputSpec) -> "DiffusionSegmenter":
        from berdiff.methods.diffusion import DiffusionSegmenter
        from berdiff.networks.build import make_network

        network = make_network(f"segdiff-{self.preset}", len(spec.channels), len(spec.targets))
        return DiffusionSegmenter(self, spec, network, self.kernel())

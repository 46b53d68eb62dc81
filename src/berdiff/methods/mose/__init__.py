"""MoSE, mixture of stochastic experts (Gao et al. 2023, arXiv 2212.07328): trained by optimal transport."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from berdiff.data.input_spec import InputSpec
from berdiff.errors import InputError
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class MoSE(MethodConfig):
    """A gate chooses an expert, the expert's Gaussian gives z, z steers the last layers. It needs all raters."""

    method: ClassVar[str] = "mose"

    preset: Literal["paper", "small", "tiny"] = "small"
    """sizes of the U-Net: the authors' for LIDC-IDRI (128x128), for two cores (64x64), for tests"""
    experts: Annotated[int, Ge(1)] = 4
    """how many opinions there can be"""
    samples_per_expert: Annotated[int, Ge(1)] = 4
    """masks of each expert that a training step compares with the raters'"""
    dims: Annotated[int, Ge(1)] = 1
    """length of the vector z"""
    beta: Annotated[float, Ge(0)] = 1 / 16
    """weight of the gate's KL divergence; the authors' 1 is averaged over their 16 samples, which is the same"""
    cap: Annotated[float, Gt(0), Le(1)] = 0.5
    """largest share of the raters that one sample may take, in the first `cap_steps`; then 1"""
    cap_steps: Annotated[int, Ge(0)] = 0
    """steps with the cap: the raters are spread over more samples until these have parted"""

    def check(self) -> None:
        count = self.experts * self.samples_per_expert
        if self.cap * count < 1:
            raise InputError(
                f"cap: expected at least 1 / {count}, for all raters to have room, found {self.cap:g}", "conflict"
            )

    def build(self, spec: InputSpec):
        from berdiff.methods.mose.network import MoSE as Network
        from berdiff.methods.mose.segmenter import MixtureSegmenter

        sizes = len(spec.channels), len(spec.targets), spec.size
        network = Network(self.preset, *sizes, self.experts, self.dims)
        return MixtureSegmenter(self, spec, network)

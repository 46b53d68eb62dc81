"""The settings that every diffusion method shares. No torch here."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro
from annotated_types import Ge

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.errors import InputError
from berdiff.methods.config import MethodConfig

if TYPE_CHECKING:
    from berdiff.diffusion.kernels.base import Kernel
    from berdiff.methods.families.diffusion import DiffusionSegmenter
    from berdiff.networks.denoiser import Denoiser


@dataclass(frozen=True)
class DiffusionConfig(MethodConfig):
    """A method adds its own settings and its `kernel`."""

    networks: ClassVar[str] = ""  # how the names of its networks begin, before the preset
    spatial_dims: ClassVar[tuple[int, ...]] = (2, 3)  # where its network does

    preset: str = "small"
    """network: fast or fast-tiny (encode once), or the paper's U-Net: paper-128, paper-224, small, tiny"""
    schedule: Literal["linear", "cosine", "power1.5", "power2.5", "power4"] = "linear"  # noise schedule
    T: Annotated[int, Ge(1), tyro.conf.arg(name="T")] = 1000  # number of diffusion steps
    time_sampling: Literal["uniform", "stratified"] = "uniform"
    """t drawn independently (paper), or spread evenly within a batch"""
    masks_per_image: Annotated[int, Ge(1)] = 1
    """pairs of a rater and a step that learn from one encoding of an image; above 1 all raters take part"""
    sampler: Sampler = field(default_factory=Sampler)

    @classmethod
    def taken_from(cls, other: MethodConfig) -> dict[str, Any]:
        """A sampler belongs to its noise: with another kernel it is this method's own, in fewer steps if T asks so."""
        values = super().taken_from(other)
        if isinstance(other, DiffusionConfig) and type(other).kernel is not cls.kernel:
            own, theirs = cls().sampler, other.sampler
            few = replace(own, steps=theirs.steps, spacing=theirs.spacing)
            values["sampler"] = own if own.count <= other.T else few
        return values

    def kernel(self) -> "Kernel":
        """The noise, its loss and its reverse step."""
        raise TypeError(f"{type(self).__name__}: expected a method `kernel`, found none")

    def network(self, spec: InputSpec) -> "Denoiser[Any]":
        from berdiff.networks.build import make_network

        return make_network(self.networks + self.preset, len(spec.channels), len(spec.targets), len(spec.size))

    def check(self) -> None:
        try:
            time_grid(self.T, self.sampler.steps, self.sampler.spacing)
        except ValueError as error:
            raise InputError(f"sampler.{error}") from error

    def build(self, spec: InputSpec) -> "DiffusionSegmenter":
        from berdiff.methods.families.diffusion import DiffusionSegmenter

        return DiffusionSegmenter(self, spec, self.network(spec), self.kernel())

"""The settings of every method that gives one answer per image. No torch here."""

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt

from berdiff.data.input_spec import InputSpec, Kind
from berdiff.errors import InputError
from berdiff.methods.config import MethodConfig

if TYPE_CHECKING:
    from berdiff.methods.families.deterministic import Deterministic
    from berdiff.networks.denoiser import Denoiser

Answer = Literal["mask", "level-sets"]
Preset = Literal["paper", "small", "tiny"]


@dataclass(frozen=True)
class DeterministicConfig(MethodConfig):
    """A method says its `architecture`, or how to make its `network`."""

    kinds: ClassVar[tuple[Kind, ...]] = ("independent", "nested", "exclusive")
    spatial_dims: ClassVar[tuple[int, ...]] = (2, 3)  # where its network does
    architecture: ClassVar[str]  # module:class of its network, made of (preset, channels, targets, size)

    preset: str = "small"  # network by its size
    lambda_bce: Annotated[float, Ge(0)] = 1.0  # weight of the cross-entropy
    lambda_dice: Annotated[float, Ge(0)] = 1.0  # weight of the soft Dice loss, of each image by itself
    answer: Answer = "mask"
    """what a sample is: the pixels more probable than not (mask: all samples are the same one), or those more probable
    than one random level per sample (level-sets: nested masks, each pixel marked as often as it is probable)"""

    inner_weight: Annotated[float, Gt(0)] = 1.0
    """of nested targets: how much more a target's loss counts than that of the target around it"""

    @classmethod
    def taken_from(cls, other: MethodConfig) -> dict[str, Any]:
        """A method that did without the cross-entropy had another loss, which may have no name here."""
        values = {"lambda_dice": cls.lambda_dice, **super().taken_from(other)}
        nothing = not values.get("lambda_bce") and not values["lambda_dice"]
        return {**values, "lambda_bce": cls.lambda_bce} if nothing else values

    def check(self) -> None:
        if not self.lambda_bce + self.lambda_dice > 0:
            raise InputError("lambda_dice: expected a weight above 0 where lambda_bce is 0, found 0", "conflict")

    def network(self, spec: InputSpec) -> "Denoiser[Any]":
        return resolve_name(self.architecture)(self.preset, len(spec.channels), len(spec.targets), spec.size)

    def build(self, spec: InputSpec) -> "Deterministic":
        from berdiff.methods.families.deterministic import Deterministic

        kind = self.kind_of(spec)
        if kind != "nested" and self.inner_weight != 1:
            raise InputError(f"inner_weight: expected 1 for {kind} targets, found {self.inner_weight:g}", "conflict")
        return Deterministic(self, spec, self.network(spec))

"""What an image must look like for a model, as stores and model folders keep it. No torch and no numpy here."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Lt

from berdiff.errors import InputError
from berdiff.schema import Settings
from berdiff.targets.kinds import Kind

Rule = Literal["auto", "dtype", "percentiles", "brain", "minmax", "window"]
Range = tuple[int, int]  # [first, last + 1)
Size = tuple[int, ...]  # (H, W), or (Z, H, W) of volumes
Sides = Annotated[int, Ge(1)] | tuple[Annotated[int, Ge(1)], ...]  # one for all axes, or one for each
LARGEST = 2.0**126  # a quarter of what 32 bits hold: differences fit too
Side = Annotated[int, Ge(1), Lt(2**20)]
Millimetres = Annotated[float, Gt(0), Lt(1e6)]
Modality = Literal["ct", "mr", "picture", "unknown"]


def size_of(sides: Sides, axes: int, option: str) -> Size:
    """One side for all axes, or one for each; `option` names it in an error."""
    size = (sides,) * axes if isinstance(sides, int) else sides
    if len(size) != axes:
        raise InputError(f"{option}: expected one side or {axes}, found {len(size)}", "shape")
    return size


@dataclass(frozen=True)
class Intensity(Settings):
    """How values become [0, 1]; `data.intensity` applies it."""

    # the range of the type (dtype), percentiles of the image, percentiles of the voxels other than 0 (brain), from the
    # minimum to the maximum of each slice (minmax), a window; auto: the type for pictures, percentiles for the rest
    rule: Rule = "auto"
    window: tuple[float, float] | None = None  # the values that become 0 and 1, with the rule window
    tails: Annotated[float, Ge(0), Lt(50)] = 1.0  # percent to clip at each end, with percentiles and brain
    field: Annotated[int, Ge(1)] | None = None  # pixels per side of the square that minmax looks at; None: whole slice

    def check(self) -> None:
        if (self.rule == "window") != (self.window is not None):
            found = f"{self.window} and {self.rule}"
            raise InputError(f"window: expected a window with the rule window alone, found {found}", "conflict")
        low, high = self.window or (0, 1)
        if not low < high:
            raise InputError(f"window: expected a lower and a higher value, found {low:g} {high:g}")
        if max(-low, high) > LARGEST or high - low < max(abs(low), abs(high)) / 2**20:
            raise InputError(f"window: expected values that 32 bits tell apart, found {low:g} {high:g}")


@dataclass(frozen=True)
class InputSpec(Settings):
    """What images are like: those of a store, or those that a model was trained on."""

    size: tuple[Side, ...]  # pixels: (H, W), or (Z, H, W) of volumes
    channels: tuple[str, ...]  # a name for each image channel
    targets: tuple[str, ...]  # a name for each of the K targets
    intensity: Intensity = Intensity()
    source: str = ""  # the layout that the data was prepared from
    notes: tuple[str, ...] = ()  # shown wherever the data or a result is
    kind: Kind = "independent"  # of the targets
    patches: bool = False  # trained on parts from anywhere in larger images, which are then sampled by tiles of `size`
    modality: Modality = "unknown"  # of the images; unknown where a source does not say, and before 0.3.0
    crops: bool = False  # each image is a crop around a finding, or the centre of a larger image
    # mm that images are resampled to: of rows and columns, with the slices as they come; or of (slice, row, column).
    # None: unknown, they are taken as they come, as by all that was written before 0.3.0.
    spacing: tuple[Millimetres, ...] | None = None

    def check(self) -> None:
        if len(self.size) not in (2, 3):
            raise InputError(f"size: expected two numbers, or three for volumes, found {len(self.size)}", "shape")
        if self.spacing is not None and len(self.spacing) not in (2, 3):
            raise InputError(f"spacing: expected mm of rows and columns, or of slices too, found {self.spacing}")
        for name, names in (("channels", self.channels), ("targets", self.targets)):
            if not names or len(set(names)) < len(names):
                raise InputError(f"{name}: expected different names, found {', '.join(names) or 'none'}", "name")

    @property
    def dims(self) -> int:
        """2 for slices and pictures, 3 for volumes."""
        return len(self.size)

    @property
    def hounsfield(self) -> bool:
        """Whether values must be Hounsfield units."""
        return self.modality == "ct" and self.intensity.rule == "window"

    @property
    def trained_on(self) -> str:
        """What the images of training were, in words."""
        images = {"ct": "CT images", "mr": "MR images", "picture": "pictures", "unknown": "images"}[self.modality]
        part = ", crops around a finding" if self.crops else ", patches" if self.patches else ""
        low, high = self.intensity.window or (0, 0)
        unit = " HU" if self.hounsfield else ""
        values = f", values from {low:g} to {high:g}{unit}" if self.intensity.window else ""
        return f"{images}{part} of {self.pixels}{values}"

    @property
    def pixels(self) -> str:
        """Size and spacing in words."""
        spacing = ", spacing unknown" if self.spacing is None else f" of {_by(self.spacing)} mm"
        return f"{_by(self.size)} pixels{spacing}"

    def cropped(self, size: Size, patches: bool = False) -> "InputSpec":
        """The same for images of which the centre or `patches` are taken; minmax still looks at the whole of them."""
        field = self.intensity.field or (max(self.size) if self.intensity.rule == "minmax" else None)
        crops = not patches and (self.crops or size != self.size)
        return replace(self, size=size, intensity=replace(self.intensity, field=field), patches=patches, crops=crops)


def _by(numbers: tuple[float, ...]) -> str:
    return "x".join(f"{number:g}" for number in numbers)

"""An input as the network wants to see it: read once, looked at by the guards, prepared for a region."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import floor, isfinite
from typing import Any

import numpy as np

from berdiff.data.apply import Prepared, apply, at_spacing, covered
from berdiff.data.describe import expect
from berdiff.data.image import Grid, Image, Source
from berdiff.data.input_spec import InputSpec, Intensity, Size
from berdiff.data.reading import image_array, read_images
from berdiff.errors import InputError
from berdiff.inference import guards
from berdiff.inference.inputs import Input
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff.remote import is_remote


@dataclass(frozen=True, eq=False)
class ReadInput:
    """An input whose pixels were read: looked at as a whole, or in one region after the other."""

    name: str
    what: str  # as it is called in a message
    spec: InputSpec
    intensity: Intensity
    forced: bool  # the user's own window holds whatever the file is
    force: bool  # what looks wrong is a warning, and no error
    warnings: tuple[str, ...]  # of the image as a whole
    file: Image
    case: Prepared | None = None  # of a store, where values are in [0, 1] already

    @property
    def grid(self) -> Grid:
        return self.file.grid

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W) or (Z, H, W)"""
        return self.grid.shape

    @property
    def size(self) -> Size:
        """How many pixels of the image the network sees at once."""
        if len(self.shape) < self.spec.dims:
            raise InputError(f"{self.what}: a 2D image, where the model segments volumes", "shape")
        return covered(self.spec.size, self.grid, at_spacing(self.grid, self.spec.spacing))

    def at(self, region: Region, name: str | None = None, whole: bool = True) -> Prepared:
        """As the network wants to see it in a region; `name` seeds the noise. Values are scaled once, unless the rule
        looks at the region (minmax): without `whole`, slices outside the region are then left 0."""
        asked, region = region, meant(region, self.grid, self.what)
        checked = self._checked(region)
        by_region = self.case is None and self.intensity.rule == "minmax"
        opened = self._prepared(region, whole) if by_region else self._whole
        opened = replace(opened, name=name or self.name, warnings=(*self.warnings, *checked))
        if name and opened.title:
            opened = replace(opened, title=f"{opened.title}, {name.removeprefix(f'{self.name}/')}")
        return noted(opened, asked)

    def _checked(self, region: Region) -> tuple[str, ...]:
        """Warnings of a region; before its values are scaled, so that a refusal is quick."""
        ranges = replace(region, pad=True).ranges(self.shape, self.size, self.what)
        found = guards.check_region(ranges, self.size, self.spec, self.what, self.force)
        place = (slice(None), *(slice(*ends) for ends in ranges))
        values = self.file.values[:, 0] if self.grid.planar else self.file.values
        return (*found, *guards.nothing_to_see(values[place], self.file.modality == "ct"))

    @cached_property
    def _whole(self) -> Prepared:
        return self.case or self._prepared(Region())

    def _prepared(self, region: Region, whole: bool = True) -> Prepared:
        slices = rows = columns = slice(None)
        if self.intensity.rule == "minmax":  # looks at a square around the region, or at the whole slice
            side = self.intensity.field or max(self.shape[-2:])
            field = (*self.size[:-2], min(side, self.shape[-2]), min(side, self.shape[-1]))
            *wanted, rows, columns = (slice(*ends) for ends in region.ranges(self.shape, field, self.what))
            slices = slices if whole or not wanted else wanted[0]
        about = {"spacing": self.spec.spacing, "forced": self.forced, "seen": (slices, rows, columns)}
        return replace(
            apply(self.file, self.intensity, self.what, **about), name=self.name, channels=self.spec.channels
        )


def meant(region: Region, grid: Grid, what: str) -> Region:
    """A region in an image on this grid: of a place in mm the voxel, of a place in a volume the slices."""
    if region.center_unit == "mm" and region.center is not None:
        voxel = grid.to_voxel(region.center, what)
        region = replace(region, center=tuple(floor(at + 0.5) for at in voxel), center_unit="voxel")
    return region.around(grid.shape, grid.spacing, what)


def read_input(item: Input, spec: InputSpec, settings: SegmentSettings) -> ReadInput:
    """The pixels of an input, for a model with this input spec."""
    if item.error:
        raise InputError(item.error)
    store, channels = item.store, spec.channels
    if store is None:
        item.fetch()
        file = read_images(item.paths, len(channels), settings.allow_gaps, item.headers)
        if item.copies is not None:
            addresses = tuple(item.translated(str(path)) for path in file.source.paths)
            file = replace(file, grid=replace(file.grid, source=replace(file.source, addresses=addresses)))
        return read_file(item.name, file, spec, settings, item.what, item.label)
    trained = f"{len(channels)} channel(s) ({', '.join(channels)}), as the model was trained with"
    expect(len(store.channels) == len(channels), store.address, trained, len(store.channels), "shape")
    image, masks = store.read([item.index])
    raters = masks[0, : int(store.cases.raters[item.index])]
    addresses = (store.address,) if is_remote(store.address) else ()
    source = Source("store", item.paths, image.shape[2:], addresses=addresses)
    grid = Grid(image.shape[2:], tuple(store.cases.spacing[item.index].tolist()), source=source)
    about = {"raters": raters, "notes": store.notes, "what": item.what, "channels": channels}
    case = Prepared(item.name, image[0], grid, **about)
    file = Image(image[0][:, None] if grid.planar else image[0], grid)
    warnings = guards.check_modality(store.input_spec.modality, spec, item.what, settings.force, stated=True)
    return ReadInput(item.name, item.what, spec, spec.intensity, False, settings.force, warnings, file, case)


def noted(opened: Prepared, region: Region) -> Prepared:
    """With a note where the extent of a region could not be taken in mm."""
    if not region.at_place or region.reach is None or isfinite(opened.grid.spacing[0]):
        return opened
    note = f"distance of slices unknown: segmented {region.reach:g} slices below and above the centre"
    return replace(opened, notes=(*opened.notes, note))


def open_input(item: Input, spec: InputSpec, settings: SegmentSettings) -> Prepared:
    """The image of an input, for a model with this input spec."""
    return read_input(item, spec, settings).at(settings.region)


def open_array(
    array: Any, spec: InputSpec, settings: SegmentSettings, name: str, spacing: Sequence[float] | None = None
) -> Prepared:
    """An array `(H, W)`, `(Z, H, W)`, or with its channels first or last."""
    file = image_array(np.asarray(array), len(spec.channels), name, spacing)
    return read_file(name, file, spec, settings, name).at(settings.region)


def read_file(
    name: str, file: Image, spec: InputSpec, settings: SegmentSettings, what: str, label: bool = False
) -> ReadInput:
    """The values of a file, which may be called like a `label`, for a model with this input spec."""
    channels, forced = spec.channels, settings.window is not None
    trained = f"{len(channels)} channel(s) ({', '.join(channels)}), as the model was trained with"
    expect(len(file.values) == len(channels), what, trained, len(file.values), "shape")
    intensity = Intensity("window", settings.window) if forced else spec.intensity
    warnings = (*file.warnings, *guards.check_file(file, spec, what, settings.force, forced, label))
    if spec.spacing is not None and not np.isfinite(file.grid.spacing[-2:]).all():
        warnings += (f"spacing unknown: taken as it is; {guards.trained(spec)}",)
    return ReadInput(name, what, spec, intensity, forced, settings.force, warnings, file)

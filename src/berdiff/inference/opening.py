"""An input as the network wants to see it: values in [0, 1] and where they lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import floor, isfinite
from typing import Any

import numpy as np

from berdiff.data.describe import expect, present
from berdiff.data.image import Grid
from berdiff.data.input_spec import InputSpec, Intensity
from berdiff.data.intensity import to_unit
from berdiff.data.reading import Geometry, ImageFile, image_array, read_image_files
from berdiff.errors import InputError
from berdiff.inference import guards
from berdiff.inference.inputs import Input
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff.remote import is_remote


@dataclass(frozen=True, eq=False)
class OpenedImage:
    """A 2D image or a volume of upright slices."""

    name: str
    image: np.ndarray  # (C, H, W) or (C, Z, H, W) float32 in [0, 1], as shown to the network
    spacing: tuple[float, ...]  # mm per pixel along the last axes: (row, column) or (slice, row, column); nan: unknown
    geometry: Geometry  # where it came from, and the way back to its own grid
    raters: np.ndarray | None = None  # (R, K, H, W) uint8: the raters' masks, where a store has them
    notes: tuple[str, ...] = ()  # to be shown wherever the image or its result is
    what: str = ""  # as it is called in a message
    affine: np.ndarray | None = None  # (4, 4) (column, row, slice) -> mm as NIfTI counts; None: no place in space
    warnings: tuple[str, ...] = ()  # why the result may be worthless: shown before the notes
    title: str = ""  # what people call it, where that is not the name
    details: Mapping[str, str] = field(default_factory=dict)  # of a DICOM series: patient, series, date, UIDs
    channels: tuple[str, ...] = ()  # the model's names
    place: Grid | None = None  # where it lies, where a file says it

    @cached_property
    def grid(self) -> Grid:
        return self.place or Grid(self.image.shape[1:], self.spacing, self.affine, self.geometry.source())

    @property
    def shown_name(self) -> str:
        return self.title or self.name

    @property
    def world(self) -> np.ndarray | None:
        """(column, row, slice) -> mm as its file counts: of NIfTI right, front and up, of DICOM left, back, up."""
        turned = [-1.0, -1.0, 1.0, 1.0] if self.geometry.kind == "dicom" else [1.0] * 4
        return None if self.affine is None else np.diag(turned) @ self.affine

    def to_voxel(self, place: Sequence[float]) -> tuple[float, float, float]:
        """(z, y, x) in mm -> (slice, row, column), exactly."""
        world = present(self.world, self.what, "a volume with a place in space for mm")
        column, row, number, _ = np.linalg.solve(world, np.append(place[::-1], 1.0))
        return float(number), float(row), float(column)

    def to_mm(self, center: Sequence[int]) -> list[float]:
        """(slice, row, column) -> (x, y, z) in mm."""
        world = present(self.world, self.what, "a volume with a place in space for mm")
        return (world @ np.append(center[::-1], 1.0))[:3].tolist()

    def meant(self, region: Region, shape: tuple[int, ...]) -> Region:
        """A region in this image of `shape`: of a place in mm the voxel, of a place in a volume the slices."""
        if region.center_unit == "mm" and region.center is not None:
            voxel = self.to_voxel(region.center)
            region = replace(region, center=tuple(floor(at + 0.5) for at in voxel), center_unit="voxel")
        return region.around(shape, self.spacing, self.what)

    @property
    def aspect(self) -> float:
        """The height of a pixel over its width, for pictures; 1 where the spacing is unknown."""
        row, column = self.spacing[-2:]
        return float(np.clip(row / column, 1 / 16, 16)) if np.isfinite([row, column]).all() else 1.0


@dataclass(frozen=True, eq=False)
class ReadInput:
    """An input whose pixels were read: looked at as a whole, or in one region after the other."""

    name: str
    what: str  # as it is called in a message
    spec: InputSpec
    intensity: Intensity
    forced: bool  # the user's own window holds whatever the file is
    force: bool = False  # what looks wrong is a warning, and no error
    warnings: tuple[str, ...] = ()  # of the image as a whole
    file: ImageFile | None = None
    case: OpenedImage | None = None  # of a store, where values are in [0, 1] already

    @property
    def shape(self) -> tuple[int, ...]:
        """(H, W) or (Z, H, W)"""
        if self.file is None:
            return self._case.image.shape[1:]
        return self.file.values.shape[2 if self.file.planar else 1 :]

    def at(self, region: Region, name: str | None = None, whole: bool = True) -> OpenedImage:
        """As the network wants to see it in a region; `name` seeds the noise. Values are scaled once, unless the rule
        looks at the region (minmax): without `whole`, slices outside the region are then left 0."""
        asked, region = region, self.placed.meant(region, self.shape)
        opened = replace(self.placed, warnings=(*self.warnings, *self._checked(region)))
        if self.file is not None and self.intensity.rule == "minmax":
            opened = replace(opened, image=self._scaled(region, whole))
        if name and opened.title:
            opened = replace(opened, title=f"{opened.title}, {name.removeprefix(f'{self.name}/')}")
        return noted(replace(opened, name=name or self.name), asked)

    def _checked(self, region: Region) -> tuple[str, ...]:
        """Warnings of a region; before its values are scaled, so that a refusal is quick."""
        ranges = replace(region, pad=True).ranges(self.shape, self.spec.size, self.what)
        found = guards.check_region(ranges, self.spec, self.what, self.force)
        place = (slice(None), *(slice(*ends) for ends in ranges))
        if self.file is None:
            return (*found, *guards.nothing_to_see(self._case.image[place], ct=False))
        values = self.file.values[:, 0] if self.file.planar else self.file.values
        return (*found, *guards.nothing_to_see(values[place], self.file.modality == "ct"))

    @property
    def _case(self) -> OpenedImage:
        assert self.case is not None  # either a file or a case of a store
        return self.case

    @cached_property
    def placed(self) -> OpenedImage:
        """Where it lies; with the image, where its scaling does not depend on the region."""
        if self.file is None:
            return self._case
        file, empty = self.file, np.empty((0,))
        image = empty if self.intensity.rule == "minmax" else self._scaled(Region())
        named: dict[str, Any] = {"title": file.title, "details": file.details, "channels": self.spec.channels}
        named["affine"], named["place"] = None if file.volume is None else file.volume.affine, file.grid
        return OpenedImage(self.name, image, file.spacing, file.geometry, what=self.what, **named)

    def _scaled(self, region: Region, whole: bool = True) -> np.ndarray:
        assert self.file is not None
        file, intensity = self.file, self.intensity
        slices = rows = columns = slice(None)
        if intensity.rule == "minmax":  # looks at a square around the region, or at the whole slice
            side = intensity.field or max(self.shape[-2:])
            field = (min(side, self.shape[-2]), min(side, self.shape[-1]))
            *wanted, rows, columns = (slice(*ends) for ends in region.ranges(self.shape, field, self.what))
            slices = slices if whole else wanted[0]
        kind = {"planar": file.planar, "ct": file.ct, "colour": file.colour, "stack": file.stack, "forced": self.forced}
        image = to_unit(file.values, intensity, self.what, **kind, rows=rows, columns=columns, slices=slices)
        return np.ascontiguousarray(image[:, 0] if file.planar else image)


def read_input(item: Input, spec: InputSpec, settings: SegmentSettings) -> ReadInput:
    """The pixels of an input, for a model with this input spec."""
    if item.error:
        raise InputError(item.error)
    store, channels = item.store, spec.channels
    trained = f"{len(channels)} channel(s) ({', '.join(channels)}), as the model was trained with"
    if store is None:
        item.fetch()
        file = read_image_files(item.paths, len(channels), settings.allow_gaps)
        if item.copies is not None:
            addresses = tuple(item.translated(str(path)) for path in file.geometry.paths)
            file = replace(file, geometry=replace(file.geometry, addresses=addresses))
        expect(len(file.values) == len(channels), item.what, trained, len(file.values))
        return _read(item.name, file, spec, settings, item.what, item.label)
    expect(len(store.channels) == len(channels), store.address, trained, len(store.channels))
    image, masks = store.read([item.index])
    row, column = store.cases.spacing[item.index]
    raters = masks[0, : int(store.cases.raters[item.index])]
    geometry = Geometry("store", item.paths, image.shape[2:])
    if is_remote(store.address):
        geometry = replace(geometry, addresses=(store.address,))
    case = OpenedImage(item.name, image[0], (float(row), float(column)), geometry, raters, store.notes, item.what)
    case = replace(case, channels=channels)
    warnings = guards.check_modality(store.input_spec.modality, spec, item.what, settings.force, stated=True)
    return ReadInput(item.name, item.what, spec, spec.intensity, False, settings.force, warnings, case=case)


def noted(opened: OpenedImage, region: Region) -> OpenedImage:
    """With a note where the extent of a region could not be taken in mm."""
    if not region.at_place or region.reach is None or isfinite(opened.spacing[0]):
        return opened
    note = f"distance of slices unknown: segmented {region.reach:g} slices below and above the centre"
    return replace(opened, notes=(*opened.notes, note))


def open_input(item: Input, spec: InputSpec, settings: SegmentSettings) -> OpenedImage:
    """The image of an input, for a model with this input spec."""
    return read_input(item, spec, settings).at(settings.region)


def open_array(
    array: Any, spec: InputSpec, settings: SegmentSettings, name: str, spacing: Sequence[float] | None = None
) -> OpenedImage:
    """An array `(H, W)`, `(Z, H, W)`, or with its channels first or last."""
    file = image_array(np.asarray(array), len(spec.channels), name, spacing)
    return _read(name, file, spec, settings, name).at(settings.region)


def open_file(
    name: str, file: ImageFile, spec: InputSpec, settings: SegmentSettings, what: str, label: bool = False
) -> OpenedImage:
    """The values of a file, which may be called like a `label`, for a model with this input spec."""
    return _read(name, file, spec, settings, what, label).at(settings.region)


def _read(
    name: str, file: ImageFile, spec: InputSpec, settings: SegmentSettings, what: str, label: bool = False
) -> ReadInput:
    forced = settings.window is not None
    intensity = Intensity("window", settings.window) if forced else spec.intensity
    warnings = (*file.warnings, *guards.check_file(file, spec, what, settings.force, forced, label))
    return ReadInput(name, what, spec, intensity, forced, settings.force, warnings, file)

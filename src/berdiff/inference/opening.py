"""An input as the network wants to see it: values in [0, 1] and where they lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from berdiff.data.describe import expect
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
    warnings: tuple[str, ...] = ()  # why the result may be worthless: shown before the notes
    title: str = ""  # what people call it, where that is not the name
    details: Mapping[str, str] = field(default_factory=dict)  # of a DICOM series: patient, series, date, UIDs
    channels: tuple[str, ...] = ()  # the model's names

    @property
    def shown_name(self) -> str:
        return self.title or self.name

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

    def at(self, region: Region, name: str | None = None) -> OpenedImage:
        """As the network wants to see it in a region; `name` seeds the noise. Values are scaled once, unless the rule
        looks at the region (minmax): with `extent`, slices outside the region are then left 0."""
        region, reach = region.around(self.shape, self._spacing, self.what), region.extent
        warnings = (*self.warnings, *self._checked(region))
        opened = replace(self.placed, warnings=warnings)
        if self.file is not None and self.intensity.rule == "minmax":
            opened = replace(opened, image=self._scaled(region, whole=reach is None))
        if reach is not None and not isfinite(opened.spacing[0]):
            notes = (
                *opened.notes,
                f"distance of slices unknown: segmented {reach:g} slices below and above the centre",
            )
            opened = replace(opened, notes=notes)
        if name and opened.title:
            opened = replace(opened, title=f"{opened.title}, {name.removeprefix(f'{self.name}/')}")
        return replace(opened, name=name or self.name)

    @property
    def _spacing(self) -> tuple[float, ...]:
        return self._case.spacing if self.file is None else self.file.spacing

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

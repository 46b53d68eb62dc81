"""An input as the network wants to see it: values in [0, 1] and where they lie."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from berdiff.data.describe import expect
from berdiff.data.input_spec import InputSpec, Intensity
from berdiff.data.intensity import to_unit
from berdiff.data.reading import Geometry, ImageFile, image_array, read_image_files
from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff.inference.settings import SegmentSettings


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

    @property
    def aspect(self) -> float:
        """The height of a pixel over its width; 1 where the spacing is unknown."""
        row, column = self.spacing[-2:]
        return float(row / column) if np.isfinite([row, column]).all() else 1.0


def open_input(item: Input, spec: InputSpec, settings: SegmentSettings) -> OpenedImage:
    """The image of an input, for a model with this input spec."""
    if item.error:
        raise InputError(item.error)
    store, channels = item.store, spec.channels
    trained = f"{len(channels)} channel(s) ({', '.join(channels)}), as the model was trained with"
    if store is None:
        file = read_image_files(item.paths, len(channels))
        expect(len(file.values) == len(channels), item.what, trained, len(file.values))
        return open_file(item.name, file, spec, settings, item.what)
    expect(len(store.channels) == len(channels), store.address, trained, len(store.channels))
    image, masks = store.read([item.index])
    row, column = store.cases.spacing[item.index]
    raters = masks[0, : int(store.cases.raters[item.index])]
    geometry = Geometry("store", item.paths, image.shape[2:])
    return OpenedImage(item.name, image[0], (float(row), float(column)), geometry, raters, store.notes, item.what)


def open_array(
    array: Any, spec: InputSpec, settings: SegmentSettings, name: str, spacing: Sequence[float] | None = None
) -> OpenedImage:
    """An array `(H, W)`, `(Z, H, W)`, or with its channels first or last."""
    file = image_array(np.asarray(array), len(spec.channels), name, spacing)
    return open_file(name, file, spec, settings, name)


def open_file(name: str, file: ImageFile, spec: InputSpec, settings: SegmentSettings, what: str) -> OpenedImage:
    """The values of a file, for a model with this input spec."""
    forced = settings.window is not None
    intensity = Intensity("window", settings.window) if forced else spec.intensity
    rows = columns = slice(None)
    if intensity.rule == "minmax":  # looks at a square around the region, or at the whole slice
        shape = file.values.shape[2 if file.planar else 1 :]
        side = intensity.field or max(shape[-2:])
        ranges = settings.region.ranges(shape, (min(side, shape[-2]), min(side, shape[-1])), what)
        rows, columns = (slice(*ends) for ends in ranges[-2:])
    kind = {"planar": file.planar, "ct": file.ct, "colour": file.colour, "stack": file.stack}
    image = to_unit(file.values, intensity, what, **kind, rows=rows, columns=columns, forced=forced)
    image = np.ascontiguousarray(image[:, 0] if file.planar else image)
    return OpenedImage(name, image, file.spacing, file.geometry, what=what)

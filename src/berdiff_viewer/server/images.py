"""Opened images, the last used ones kept: a click on a CT reads neither its files nor its other slices again."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

import numpy as np

from berdiff.data.apply import Prepared
from berdiff.data.describe import expect
from berdiff.data.image import Image
from berdiff.data.input_spec import InputSpec, Intensity
from berdiff.data.intensity import LUNG_WINDOW
from berdiff.data.reading import read_image, read_images
from berdiff.inference.opening import noted, open_file, open_input
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff_viewer.server.common import Limits
from berdiff_viewer.server.items import Item

T = TypeVar("T")


class Images:
    """The values of items' files, and the images made of them to be shown; the least recently used go first."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[int, object]] = OrderedDict()

    def shown(self, item: Item) -> Prepared:
        """For the eye: as a picture is, a CT in the usual window of lungs, all else by its percentiles."""

        def opened() -> Prepared:
            if item.input.store is not None:
                return open_input(item.input, item.input.store.input_spec, SegmentSettings())
            file = self.file(item)
            names = tuple(f"channel {i}" for i in range(1, len(file.values) + 1))
            rule = Intensity("window", LUNG_WINDOW) if file.ct else Intensity("auto")
            spec = InputSpec((1, 1), names, ("none",), rule)
            return open_file(item.name, file, spec, SegmentSettings(), item.input.what)

        image = self._once((item.id, "shown"), opened, lambda of: of.image.nbytes)
        item.shape, item.channels = image.image.shape[1:], len(image.image)
        return image

    def file(self, item: Item, channels: int | None = None) -> Image:
        """The values as stored. `channels`: as a model with so many takes them; a colour picture may be grey to it."""
        item.check()

        def read() -> Image:
            if channels is not None:
                return read_images(item.paths, channels)
            known = item.channels if len(item.paths) == 1 and item.kind != "dicom" else len(item.paths)
            return read_images(item.paths, known) if known and known > 1 else read_image(item.paths[0])

        if channels == item.channels:
            channels = None  # the same reading
        return self._once((item.id, f"file {channels}"), read, lambda of: of.values.nbytes)

    def slab(self, item: Item, spec: InputSpec, settings: SegmentSettings) -> tuple[Prepared, Region] | None:
        """The slices of a volume that `settings.region.center` means, as a volume of these alone, and the region in
        them; None where it must be opened as a whole."""
        if item.input.store is not None or not settings.region.at_place or spec.spacing is not None:
            return None
        file = self.file(item, len(spec.channels))
        channels, depth = len(file.values), file.values.shape[1]
        trained = f"{len(spec.channels)} channel(s) ({', '.join(spec.channels)}), as the model was trained with"
        expect(channels == len(spec.channels), item.name, trained, channels)
        if file.grid.planar:
            return None
        around = settings.region.around(file.grid.shape, file.grid.spacing, item.name)
        first, end = around.slice_range(depth, item.name)
        part = slice(first, end)
        region = replace(around, slices=None)
        values = file.values[:, part] if _by_slice(spec.intensity, file.values.dtype) else file.values
        if values is not file.values and _looks_scaled(values) and not _looks_scaled(file.values):
            values = file.values  # by themselves these slices would pass for ones that were scaled before
        place = file.grid.part([(first, end), *((0, side) for side in file.grid.shape[1:])])
        within = replace(settings, region=region)
        cut = file if values is file.values else replace(file, values=values, grid=place)
        opened = open_file(item.name, cut, spec, within, item.name, item.input.label)
        image = opened.image if values is not file.values else opened.image[:, part].copy()  # a view would keep it all
        return noted(replace(opened, image=image, grid=place), settings.region), region

    def forget(self, item: Item) -> None:
        with self._lock:
            for key in [key for key in self._kept if key[0] == item.id]:
                del self._kept[key]

    def _once(self, key: tuple[str, str], make: Callable[[], T], size: Callable[[T], int]) -> T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return cast(T, self._kept[key][1])
        value = make()  # outside the lock: two clients may do it twice, none waits for the other
        with self._lock:
            self._kept[key] = (size(value), value)
            while len(self._kept) > 1 and sum(bytes for bytes, _ in self._kept.values()) > self._limits.images_bytes:
                self._kept.popitem(last=False)
        return value


def _by_slice(intensity: Intensity, dtype: np.dtype) -> bool:
    """Whether a slice is scaled without a look at the others."""
    return intensity.rule in ("window", "minmax") or (intensity.rule == "dtype" and dtype in (np.uint8, np.uint16))


def _looks_scaled(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and bool(values.min() >= 0 and values.max() <= 1)

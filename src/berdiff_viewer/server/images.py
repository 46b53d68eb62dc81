"""Opened images, the last used ones kept: a second click reads no file again and scales nothing again."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import TypeVar, cast

from berdiff.data.apply import Prepared
from berdiff.data.describe import expect
from berdiff.data.image import Image
from berdiff.data.input_spec import InputSpec, Intensity
from berdiff.data.intensity import LUNG_WINDOW
from berdiff.data.reading import read_image, read_images
from berdiff.inference.opening import ReadInput, open_input, read_file, read_input
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff_viewer.server.common import Limits
from berdiff_viewer.server.items import Item

T = TypeVar("T")


class Images:
    """Files' values, and what is made of them to be shown and segmented; the least recently used go first."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._lock = limits, threading.Lock()
        self._kept: OrderedDict[tuple[str, str], tuple[int, object]] = OrderedDict()

    def shown(self, item: Item) -> Prepared:
        """For the eye: a CT in the usual window of lungs, all else by its percentiles."""

        def opened() -> Prepared:
            if item.input.store is not None:
                return open_input(item.input, item.input.store.input_spec, SegmentSettings())
            file = self.file(item)
            names = tuple(f"channel {i}" for i in range(1, len(file.values) + 1))
            rule = Intensity("window", LUNG_WINDOW) if file.ct else Intensity("auto")
            spec = InputSpec((1, 1), names, ("none",), rule)
            return read_file(item.name, file, spec, SegmentSettings(), item.name).at(Region())

        image = self._once(item, "shown", opened, lambda one: one.image.nbytes)
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
        return self._once(item, f"file {channels}", read, lambda one: one.values.nbytes)

    def read(self, item: Item, model: str, spec: InputSpec, settings: SegmentSettings) -> ReadInput:
        """For a model, which segments it at one place after the other."""

        def read() -> ReadInput:
            if item.input.store is not None:
                return read_input(item.input, spec, settings)
            file, count = self.file(item, len(spec.channels)), len(spec.channels)
            trained = f"{count} channel(s) ({', '.join(spec.channels)}), as the model was trained with"
            expect(len(file.values) == count, item.name, trained, len(file.values), "shape")
            return read_file(item.name, file, spec, settings, item.name, item.input.label)

        scaled = 4 * len(spec.channels)  # bytes of a voxel
        return self._once(item, f"{model} {settings.force}", read, lambda one: scaled * prod(one.shape))

    def forget(self, item: Item) -> None:
        with self._lock:
            for key in [key for key in self._kept if key[0] == item.id]:
                del self._kept[key]

    def _once(self, item: Item, what: str, make: Callable[[], T], size: Callable[[T], int]) -> T:
        key = (item.id, what)
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

"""What a job computes: masks around a click in images that stay opened, and documents, files and label maps of them."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from berdiff.data.apply import Prepared, covered
from berdiff.data.describe import check, expect
from berdiff.data.image import Grid, Image
from berdiff.data.input_spec import InputSpec, Intensity
from berdiff.data.intensity import LUNG_WINDOW
from berdiff.data.reading import read_image, read_images
from berdiff.inference.opening import ReadInput, meant, open_input, read_file, read_input
from berdiff.inference.region import Region
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings
from berdiff.methods.sampling import SamplerOptions
from berdiff.output.formats import ARRAYS, Output, format_of
from berdiff_viewer import document
from berdiff_viewer.server.common import MIB, Limits
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.models import ModelEntry
from berdiff_viewer.server.schemas import JobRequest

T = TypeVar("T")
Progress = Callable[[int, int], None]  # (steps done, in all); may raise to end the work
FILES = {"nifti": ("nifti", "json"), "dicom-seg": ("dicom-seg", "json"), "json": ("json", "csv")}


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
            file = self.file(item, len(spec.channels))
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


@dataclass(eq=False)
class Segmented:
    """The masks of a job."""

    result: Result
    model: str
    asked: int  # representative masks

    @cached_property
    def representatives(self) -> list[Representative]:
        return self.result.representatives(self.asked)

    @property
    def size(self) -> int:
        return self.result.pool.nbytes + self.result.image.nbytes

    def document(self) -> dict[str, Any]:
        return document.result_document(self.result, self.representatives, image=False)

    def mask(self, what: str, number: int) -> np.ndarray:
        """(K, [Z,] H, W) of the whole image: the majority, or a representative mask or sample by its number from 1."""
        choices = {"representative": [one.mask for one in self.representatives], "sample": self.result.samples}
        if what == "majority":
            return self.result.whole(self.result.majority())
        masks = choices[what]
        check(1 <= number <= len(masks), f"what: {what} {number} is not one of 1 to {len(masks)}")
        return self.result.whole(masks[number - 1])

    def marked_at(self, place: Sequence[int]) -> np.ndarray:
        """(P, K) bool: which samples mark which targets at ([z,] y, x) of the whole image."""
        pool, grid = self.result.pool, self.result.grid
        first = [start for start, _ in grid.ranges] or [0] * len(place)
        at = [one - start for one, start in zip(place, first, strict=True)]
        inside = all(0 <= one < side for one, side in zip(at, grid.shape, strict=True))
        return pool[(..., *at)] > 0 if inside else np.zeros(pool.shape[:2], bool)

    def only(self, keep: np.ndarray) -> "Segmented":
        """With those samples of the pool alone for which `keep` (P,) is true."""
        places = np.flatnonzero(keep)
        chosen = [int(np.searchsorted(places, one)) for one in self.result.chosen or () if keep[one]]
        result = replace(self.result, pool=self.result.pool[places], chosen=tuple(chosen) or None)
        return replace(self, result=result)

    def files(self, kind: str, limits: Limits) -> Iterator[tuple[str, bytes]]:
        """(name, content) of a download."""
        from berdiff.output.exports import nifti_files

        grid = self.result.grid
        refers = kind != "dicom-seg" or grid.source.kind == "dicom"
        check(refers, f"{self.result.name}: only of a DICOM image a dicom-seg can be made", "kind")
        size = len(self.result.pool) * len(self.result.targets) * prod((grid.whole or grid).shape)
        most = 4 * limits.pool_bytes
        check(size <= most, f"{self.result.name}: the masks take more than {most // MIB} MiB", "limit")
        output = Output(self.result, self.representatives)
        for name in FILES[kind]:
            if name == "nifti" and size > limits.samples_file_bytes:
                yield from nifti_files(output, [name for name in ARRAYS if name != "samples"])
            else:
                yield from format_of(name).write(output)


def segment(
    item: Item, entry: ModelEntry, request: JobRequest, images: Images, limits: Limits, progress: Progress
) -> Segmented:
    """The masks that `berdiff segment --center` gives, bit for bit. InputError in the words of that command."""
    model = entry.load()
    center = request.center
    placed = len(center or ()) == 3
    region = Region(None if center is None else tuple(center), slice=placed and request.slice)
    if placed and not request.slice:
        region = replace(region, extent=request.extent)
    check(placed or not request.slice, "slice: it needs a center of slice, row and column", "conflict")
    options = SamplerOptions(steps=request.steps)
    settings = SegmentSettings(
        request.samples, request.seed, request.set, request.pool, options, region, force=request.force
    )
    sampler = model.check(settings)
    opened = images.read(item, entry.name, entry.spec, settings).at(settings.region, whole=False)
    names = tuple(Path(file).name for file in opened.grid.source.files)
    opened = replace(opened, grid=_unnamed(opened.grid, names))
    region = meant(settings.region, opened.grid, opened.what)
    seen = covered(model.size, opened.grid, opened.network)
    shape = opened.grid.part(region.ranges(opened.grid.shape, seen, opened.what)).shape
    drawn = settings.drawn * len(entry.spec.targets) * prod(shape)
    most = f"at most {limits.pool_bytes // MIB} MiB of masks"
    expect(drawn <= limits.pool_bytes, item.name, f"{most} (one slice, or fewer samples)", drawn // MIB, "limit")
    slices = shape[0] if len(shape) == 3 else 1
    batches, done = -(-slices // settings.batch_size), 0

    def step(one: Any) -> None:
        nonlocal done
        done += 1
        progress(done, max(batches * one.total, done))

    progress(0, batches * (sampler.count if sampler else 1))
    result = model.results([opened], settings, callback=step)[0]
    result = replace(result, scan=None, image=result.image.copy())  # a view would keep all of the image
    return Segmented(result, entry.name, request.representatives)


def _unnamed(grid: Grid, names: tuple[str, ...]) -> Grid:
    """With names instead of paths: no path of this machine goes into a result."""
    whole = None if grid.whole is None else _unnamed(grid.whole, names)
    return replace(grid, source=replace(grid.source, addresses=names), whole=whole)

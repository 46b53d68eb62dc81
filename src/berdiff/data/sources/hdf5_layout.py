"""The groups of an HDF5 file as `hdf5` reads it: everything but the pixels, checked."""

import posixpath
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import h5py
import numpy as np

from berdiff.data.case import SPLITS
from berdiff.data.describe import expect
from berdiff.data.sources.hdf5_file import find, named_dataset, rows_of, rows_per_block
from berdiff.schema import Settings

MAX_TEXT = 4096  # bytes of one uid, or of the names of one image's raters


@dataclass(frozen=True)
class LayoutOptions(Settings):
    """What is where in the file."""

    groups: tuple[str, ...] = ()
    """The groups to read, each with the split it is: train=train val=validation. A group without a split, such as
    data, is split by patient. Without it, those called train, val and test (one of them alone is no split), or the
    root."""
    images: str = "images"  # Dataset of the images.
    masks: str = "labels"  # Dataset of the labels: one label map per image, or a channel per rater.
    uids: str | None = "uids"  # Dataset of the patients; None: each image counts as a patient of its own.
    slices: str | None = None
    """Dataset of the slices' numbers. Without it, `slices` where there is one, or else they are counted."""
    counts: str | None = None
    """Dataset with the number of raters of each image, whose channels come first. Without it, every channel is one."""
    rater_names: str | None = None
    """Dataset with the raters' names in the order of the channels: (R,), or (N,) with commas between an image's own."""
    raters: tuple[str, ...] = ()
    """The raters to read, by the names of --rater-names or else by the numbers of their channels, from 0. Without it,
    all."""
    channels_last: bool = False  # The images are (N, H, W, C).
    transpose: bool = False
    """Exchange rows and columns. Slices of NIfTI arrays usually need it to be upright, as the other sources make them
    and `berdiff segment` reads them."""

    def check(self) -> None:
        expect(self.raters or not self.rater_names, "rater_names", "--raters beside it, the names to read")
        expect(len(set(self.raters)) == len(self.raters), "raters", "each once", " ".join(self.raters), "name")


@dataclass(frozen=True)
class Row:
    """What is known of one image before its pixels are read."""

    name: str
    patient: str
    raters: list[int]  # the channels of its labels that are to be read
    count: int  # channels that hold a rater's mask: zeros come after them


@dataclass(frozen=True)
class Group:
    """One group."""

    name: str  # "" is the root
    split: str  # "" where the store is to make one
    images: h5py.Dataset
    labels: h5py.Dataset
    image_axis: int | None  # of the channels; None: images (N, H, W)
    rater_axis: int | None  # of the raters; None: one label map per image
    transpose: bool
    rows: list[Row]

    @property
    def dtype(self) -> np.dtype:
        return self.images.dtype.newbyteorder("=")

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of the images as `blocks` gives them."""
        channels, height, width = _shape(self.images, self.image_axis)
        return (channels, width, height) if self.transpose else (channels, height, width)

    @property
    def channels(self) -> int:
        """Of the labels: one, or one for each rater."""
        return 1 if self.rater_axis is None else self.labels.shape[self.rater_axis]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Images (B, C, H, W) and labels (B, R, H, W), a few at a time: memory does not grow with the file."""
        parts = (self.images, self.image_axis), (self.labels, self.rater_axis)
        step = rows_per_block(self.images, self.labels)
        for first in range(0, len(self.rows), step):
            images, labels = (self._block(*part, slice(first, first + step)) for part in parts)
            yield images, labels

    def _block(self, dataset: h5py.Dataset, axis: int | None, rows: slice) -> np.ndarray:
        block = rows_of(dataset, _place(dataset), rows)
        block = block[:, None] if axis is None else np.moveaxis(block, axis, 1)
        block = block.swapaxes(-1, -2) if self.transpose else block
        return block.astype(block.dtype.newbyteorder("="), copy=False)


def find_groups(file: h5py.File, options: LayoutOptions) -> list[Group]:
    """The groups to read; a patient's images are counted over all of them."""
    seen: Counter[str] = Counter()
    return [_group(file, name, split, seen, options) for name, split in _names(file, options)]


def _names(file: h5py.File, options: LayoutOptions) -> list[tuple[str, str]]:
    """(group, split) of those to read."""
    if not options.groups:
        path = Path(file.filename)
        found = [split for split in SPLITS if isinstance(find(file, split, path), h5py.Group)]
        ways = f"groups {', '.join(SPLITS)} or a dataset {options.images} (see --groups and --images)"
        expect(found or find(file, options.images, path), file.filename, ways, ", ".join(file) or "nothing", "missing")
        return [(split, split if len(found) > 1 else "") for split in found] or [("", "")]
    named = []
    for text in options.groups:
        split, equals, name = text.rpartition("=")
        known = split in SPLITS or not equals
        expect(known, "--groups", f"{', '.join(SPLITS)} before = and a group after it", f"{text!r}")
        named.append((name.strip("/"), split))
    one_way = len({split == "" for _, split in named}) == 1 and len({name for name, _ in named}) == len(named)
    expect(one_way, "--groups", "each group once, all with a split or none", " ".join(options.groups), "conflict")
    return named


def _group(file: h5py.File, name: str, split: str, seen: Counter[str], options: LayoutOptions) -> Group:
    images, labels = (_find(file, name, dataset) for dataset in (options.images, options.masks))
    image_axis = _image_axis(images, options)
    n, (_, height, width) = len(images), _shape(images, image_axis)
    rater_axis = _rater_axis(labels, n, height, width)

    def column(dataset: str, length: int | None = n) -> list[str]:
        return texts(_find(file, name, dataset), length)

    numbered = options.slices or ("slices" if find(file, posixpath.join(name, "slices"), Path(file.filename)) else None)
    numbers = column(numbered) if numbered else [""] * n
    patients = column(options.uids) if options.uids else [f"{name or 'image'}-{i}" for i in range(n)]
    cases: list[str] = []
    for patient, number in zip(patients, numbers, strict=True):
        cases.append(f"{patient}_{number or seen[patient]:0>3}")
        seen[patient] += 1
    names = column(options.rater_names, None) if options.rater_names else None
    counts = column(options.counts) if options.counts else None
    channels = 1 if rater_axis is None else labels.shape[rater_axis]
    read = _rater_channels(cases, channels, options.raters, names, counts, _place(labels))
    rows = [Row(case, patient, *row) for case, patient, row in zip(cases, patients, read, strict=True)]
    return Group(name, split, images, labels, image_axis, rater_axis, options.transpose, rows)


def _image_axis(images: h5py.Dataset, options: LayoutOptions) -> int | None:
    """The axis of the channels, once the images' shape and type are checked."""
    fits = images.ndim == 4 or (images.ndim == 3 and not options.channels_last)
    axes = "(N, H, W, C)" if options.channels_last else "(N, C, H, W) or (N, H, W)"
    _expect_dataset(fits and images.dtype.kind in "uif", images, f"{axes} of integers or floats")
    _expect_dataset(prod(images.shape[1:]) > 0, images, "at least one value per image")
    return (3 if options.channels_last else 1) if images.ndim == 4 else None


def _rater_axis(labels: h5py.Dataset, n: int, height: int, width: int) -> int | None:
    """The axis of the raters, once the labels' shape and type are checked; the images' shape tells which it is."""
    one, shape = (n, height, width), labels.shape
    axes = [axis for axis in (1, 3) if len(shape) == 4 and shape[:axis] + shape[axis + 1 :] == one]
    fits = labels.dtype.kind in "uib" and (shape == one or len(axes) == 1) and prod(shape[1:]) > 0
    several = f"({n}, R, {height}, {width}) or ({n}, {height}, {width}, R)"
    _expect_dataset(fits, labels, f"integers {one}, or with a channel per rater {several}")
    return axes[0] if axes else None


def _find(file: h5py.File, group: str, name: str) -> h5py.Dataset:
    """A dataset of a group, or of the root where its name begins with /, whose bytes are in this file."""
    return named_dataset(file, posixpath.join(group, name).strip("/"), Path(file.filename))


def _place(dataset: h5py.Dataset) -> str:
    return f"{dataset.file.filename}: {(dataset.name or '').strip('/')}"


def _expect_dataset(right: object, dataset: h5py.Dataset, expected: str) -> None:
    expect(right, _place(dataset), expected, f"{dataset.shape} of {dataset.dtype}", "shape")


def _shape(images: h5py.Dataset, axis: int | None) -> tuple[int, int, int]:
    """(C, H, W), whatever the order in the file."""
    rest = list(images.shape)
    channels = 1 if axis is None else rest.pop(axis)
    return channels, rest[1], rest[2]


def texts(dataset: h5py.Dataset, length: int | None) -> list[str]:
    """A column of texts or whole numbers, as texts; `length` is how many there must be."""
    plain = dataset.dtype.kind in "iuS" or h5py.check_string_dtype(dataset.dtype) is not None
    fits = dataset.ndim == 1 and length in (None, len(dataset))
    expected = f"a text or whole number for each of {length} images" if length is not None else "a column of texts"
    _expect_dataset(fits and plain and dataset.dtype.itemsize <= MAX_TEXT, dataset, expected)
    values = rows_of(dataset, _place(dataset))
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values]


def _rater_channels(
    cases: list[str],
    channels: int,
    raters: tuple[str, ...],
    names: list[str] | None,
    counts: list[str] | None,
    what: str,
) -> list[tuple[list[int], int]]:
    """(the channels to read, how many hold a mask) of each case; the options of the layout say what each argument is.
    `what` names the labels in an error."""
    chosen: list[tuple[list[int], int]] = []
    wanted = _wanted(len(cases), channels, raters, names)
    for case, numbers, count in zip(cases, wanted, counts or [str(channels)] * len(cases), strict=True):
        fits = count.isdecimal() and 1 <= int(count) <= channels
        expect(fits, f"{what}: case {case!r}", f"1 to {channels} raters, one per channel", f"{count} in --counts")
        present = [number for number in numbers if number < int(count)]
        expect(present, f"{what}: case {case!r}", f"a mask of {' or '.join(raters)} (--raters)")
        chosen.append((present, int(count)))
    return chosen


def _wanted(n: int, channels: int, raters: tuple[str, ...], names: list[str] | None) -> list[list[int]]:
    """The channels of the raters that are asked for, of each of n cases."""
    if not raters:
        return [list(range(channels))] * n
    if names is None:
        numbers = [int(rater) if rater.isdecimal() else channels for rater in raters]
        expected = f"channels from 0 to {channels - 1} (or names, see --rater-names)"
        expect(max(numbers) < channels, "--raters", expected, " ".join(raters), "name")
        return [numbers] * n
    listed = [[name.strip() for name in text.split(",")] for text in names]
    most = max(map(len, listed), default=0)
    if len(listed) == channels and most == 1:
        listed = [[name for (name,) in listed]] * n
    fits = len(listed) == n and most <= channels
    expected = f"{channels} names, or for each of {n} images up to {channels} with commas between them"
    expect(fits, "--rater-names", expected, f"{len(names)} texts of up to {most} names", "shape")
    known = sorted(set().union(*listed))
    for rater in raters:
        expect(rater in known, "--raters", f"names among {', '.join(known)}", rater, "name")
    return [[own.index(rater) for rater in raters if rater in own] for own in listed]

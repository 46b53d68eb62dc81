"""LIDC v1 as HDF5: groups train, val and test with `images`, `labels` and `uids`, as PHiSeg, CCDM and MoSE use it.

Labels come as (N, H, W, R) or (N, R, H, W); images as uint8, or as floats in [0, 1] or in [-0.5, 0.5].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from berdiff.data.case import SPLITS, Case, Reading
from berdiff.data.describe import decoding, expect
from berdiff.data.images import binary
from berdiff.data.input_spec import Intensity
from berdiff.data.sources.hdf5_file import find, named_dataset, open_hdf5, rows_of, rows_per_block
from berdiff.data.sources.lidc import LidcReading
from berdiff.errors import InputError

TOLERANCE = 1e-3  # float images that leave their range by rounding are clipped


@dataclass(frozen=True)
class Options:
    """`data_lidc.hdf5` needs none: everything is in the file."""


@dataclass(frozen=True)
class _Group:
    """One split, checked."""

    split: str
    images: h5py.Dataset  # (N, H, W)
    labels: h5py.Dataset  # (N, H, W, R) or (N, R, H, W)
    axis: int  # of the raters in `labels`
    rows: list[tuple[str, str, str]]  # (name, patient, volume) of each slice

    @property
    def step(self) -> int:
        """How many slices are read at a time."""
        return rows_per_block(self.images, self.labels)


def read(path: Path, options: Options) -> Reading:
    file = open_hdf5(path)
    with decoding(path, "a whole HDF5 file"):
        groups = [_group(file, split, path) for split in SPLITS if find(file, split, path) is not None]
    expect(groups, path, f"groups {', '.join(SPLITS)}", ", ".join(file) or "nothing")
    layouts = {(group.images.shape[1:], group.labels.shape[group.axis], group.images.dtype.kind) for group in groups}
    expect(len(layouts) == 1, path, "one size, type and number of readers in all groups", layouts)
    size, raters, kind = layouts.pop()
    offset = _offset(groups, path) if kind == "f" else 0.0
    return LidcReading(
        intensity=Intensity("minmax", field=max(size)),  # so it is packed; checked against the DICOM
        raters=raters,
        size=size,
        dtype="float32" if kind == "f" else "uint8",
        total=sum(len(group.images) for group in groups),
        cases=(case for group in groups for case in _cases(group, offset, path)),
    )


def _group(file: h5py.File, split: str, path: Path) -> _Group:
    images, labels = (named_dataset(file, f"{split}/{name}", path) for name in ("images", "labels"))
    fits, found = images.dtype == np.uint8 or images.dtype.kind == "f", f"{images.shape} {images.dtype}"
    expect(fits and images.ndim == 3, f"{path}: {split}/images", "(N, H, W) of uint8 or floats", found)
    n, height, width = shape = images.shape
    axes = [axis for axis in (1, 3) if labels.ndim == 4 and labels.shape[:axis] + labels.shape[axis + 1 :] == shape]
    expected = f"({n}, {height}, {width}, readers) or ({n}, readers, {height}, {width})"
    expect(len(axes) == 1, f"{path}: {split}/labels", expected, labels.shape)
    expect(labels.dtype.kind in "uib", f"{path}: {split}/labels", "integers", labels.dtype)

    def column(name: str) -> np.ndarray:
        dataset = named_dataset(file, f"{split}/{name}", path)
        expect(dataset.shape == (n,), f"{path}: {dataset.name}", f"one value for each of {n} slices", dataset.shape)
        return rows_of(dataset, f"{path}: {dataset.name}")

    patients = [uid.decode("utf-8", "replace") if isinstance(uid, bytes) else str(uid) for uid in column("uids")]
    rows = [(f"{split}/{index}", patient, patient) for index, patient in enumerate(patients)]
    if find(file, f"{split}/nodules", path) and find(
        file, f"{split}/slices", path
    ):  # then a slice has the name it has in the PNG tree
        rows = [
            (f"{patient}/nodule-{nodule}/slice-{z}", patient, f"{patient}/nodule-{nodule}")
            for patient, nodule, z in zip(patients, column("nodules"), column("slices"), strict=True)
        ]
    return _Group(split, images, labels, axes[0], rows)


def _offset(groups: list[_Group], path: Path) -> float:
    """What to add to float images to bring them to [0, 1]. It takes the whole file to know: a first pass."""
    low, high = np.inf, -np.inf
    for group in groups:
        for block in _blocks(group.images, path, group.step):
            expect(np.isfinite(block).all(), f"{path}: {group.split}/images", "finite values", "NaN or infinity")
            low, high = min(low, float(block.min())), max(high, float(block.max()))
    for offset in (0.0, 0.5):
        if low + offset >= -TOLERANCE and high + offset <= 1 + TOLERANCE:
            return offset
    raise InputError(f"{path}: images: expected values in [0, 1] or [-0.5, 0.5], found {low:g} to {high:g}")


def _cases(group: _Group, offset: float, path: Path) -> Iterator[Case]:
    rows = enumerate(group.rows)
    for images, labels in zip(*(_blocks(part, path, group.step) for part in (group.images, group.labels)), strict=True):
        if images.dtype != np.uint8:
            images = np.clip(images.astype(np.float32) + np.float32(offset), 0, 1)
        masks = binary(np.moveaxis(labels, group.axis, 1), f"{path}: {group.split}/labels")
        for image, of_raters in zip(images, masks, strict=True):
            i, (name, patient, volume) = next(rows)
            source, split = f"{group.split}[{i}]", group.split
            yield Case(name, patient, image[None], of_raters[:, None], volume, source=source, split=split)


def _blocks(dataset: h5py.Dataset, path: Path, step: int) -> Iterator[np.ndarray]:
    for first in range(0, len(dataset), step):
        yield rows_of(dataset, f"{path}: {dataset.name}", slice(first, first + step))

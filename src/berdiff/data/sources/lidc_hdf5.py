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
from berdiff.data.sources.hdf5_file import find, named_dataset, open_hdf5
from berdiff.data.sources.hdf5_layout import Group, LayoutOptions, find_groups, texts
from berdiff.data.sources.lidc import LidcReading
from berdiff.errors import InputError

TOLERANCE = 1e-3  # float images that leave their range by rounding are clipped


@dataclass(frozen=True)
class Options:
    """`data_lidc.hdf5` needs none: everything is in the file."""


def read(path: Path, options: Options) -> Reading:
    file = open_hdf5(path)
    with decoding(path, "a whole HDF5 file"):
        splits = [split for split in SPLITS if find(file, split, path) is not None]
        expect(splits, path, f"groups {', '.join(SPLITS)}", ", ".join(file) or "nothing", "missing")
        groups = find_groups(file, LayoutOptions(groups=tuple(f"{split}={split}" for split in splits)))
        names = [_names(file, group, path) for group in groups]
    for group in groups:
        of_lidc = group.image_axis is None and (group.dtype == np.uint8 or group.dtype.kind == "f")
        found = f"{group.images.shape} {group.dtype}"
        expect(of_lidc, f"{path}: {group.name}/images", "(N, H, W) of uint8 or floats", found, "shape")
        expected = "(N, H, W, readers) or (N, readers, H, W)"
        expect(group.rater_axis is not None, f"{path}: {group.name}/labels", expected, group.labels.shape, "shape")
    layouts = {(group.shape[1:], group.channels, group.dtype.kind) for group in groups}
    expect(len(layouts) == 1, path, "one size, type and number of readers in all groups", layouts, "shape")
    size, raters, kind = layouts.pop()
    offset = _offset(groups, path) if kind == "f" else 0.0
    return LidcReading(
        intensity=Intensity("minmax", field=max(size)),  # so it is packed; checked against the DICOM
        raters=raters,
        size=size,
        dtype="float32" if kind == "f" else "uint8",
        total=sum(len(group.rows) for group in groups),
        cases=(case for each in zip(groups, names, strict=True) for case in _cases(*each, offset, path)),
    )


def _names(file: h5py.File, group: Group, path: Path) -> list[tuple[str, str]]:
    """(name, volume) of each slice."""
    patients = [row.patient for row in group.rows]
    if not all(find(file, f"{group.name}/{name}", path) for name in ("nodules", "slices")):
        return [(f"{group.name}/{index}", patient) for index, patient in enumerate(patients)]
    numbers = (named_dataset(file, f"{group.name}/{name}", path) for name in ("nodules", "slices"))
    columns = (texts(dataset, len(patients)) for dataset in numbers)
    return [  # as in the PNG tree
        (f"{patient}/nodule-{nodule}/slice-{z}", f"{patient}/nodule-{nodule}")
        for patient, nodule, z in zip(patients, *columns, strict=True)
    ]


def _offset(groups: list[Group], path: Path) -> float:
    """What to add to float images to bring them to [0, 1]. It takes the whole file to know: a first pass."""
    low, high = np.inf, -np.inf
    for group in groups:
        for images, _ in group.blocks():
            expect(np.isfinite(images).all(), f"{path}: {group.name}/images", "finite values", "NaN or infinity")
            low, high = min(low, float(images.min())), max(high, float(images.max()))
    for offset in (0.0, 0.5):
        if low + offset >= -TOLERANCE and high + offset <= 1 + TOLERANCE:
            return offset
    raise InputError(f"{path}: images: expected values in [0, 1] or [-0.5, 0.5], found {low:g} to {high:g}")


def _cases(group: Group, names: list[tuple[str, str]], offset: float, path: Path) -> Iterator[Case]:
    rows = enumerate(zip(group.rows, names, strict=True))
    for images, labels in group.blocks():
        if images.dtype != np.uint8:
            images = np.clip(images.astype(np.float32) + np.float32(offset), 0, 1)
        masks = binary(labels, f"{path}: {group.name}/labels")
        for image, of_raters in zip(images, masks, strict=True):
            i, (row, (name, volume)) = next(rows)
            source = f"{group.name}[{i}]"
            yield Case(name, row.patient, image, of_raters[:, None], volume, source=source, split=group.split)

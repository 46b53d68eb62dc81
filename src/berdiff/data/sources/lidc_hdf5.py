"""LIDC v1 as HDF5: groups train, val and test with `images`, `labels` and `uids`, as PHiSeg, CCDM and MoSE use it.

Labels come as (N, H, W, R) or (N, R, H, W); images as uint8, or as floats in [0, 1] or in [-0.5, 0.5].
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from berdiff.data.case import SPLITS, Case, Reading
from berdiff.data.images import binary
from berdiff.errors import InputError

BLOCK = 256  # slices read at a time
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
    raters_last: bool
    patients: list[str]
    volumes: list[str]
    names: list[str]


def read(path: Path, options: Options) -> Reading:
    if not path.is_file():
        raise InputError(f"{path}: expected an HDF5 file, found {'a folder' if path.is_dir() else 'nothing'}")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise InputError(f"{path}: expected a whole HDF5 file, found a damaged or foreign one ({error})") from error
    groups = [_group(file, split, path) for split in SPLITS if split in file]
    if not groups:
        found = ", ".join(file) or "nothing"
        raise InputError(f"{path}: expected groups {', '.join(SPLITS)}, found {found}")
    layouts = {(group.images.shape[1:], _raters(group), group.images.dtype.kind) for group in groups}
    if len(layouts) > 1:
        raise InputError(f"{path}: expected one size, type and number of readers in all groups, found {layouts}")
    offset = _offset(groups, path) if groups[0].images.dtype.kind == "f" else 0.0
    height, width = groups[0].images.shape[1:]
    return Reading(
        channels=("ct",),
        targets=("nodule",),
        raters=_raters(groups[0]),
        size=(height, width),
        dtype="float32" if groups[0].images.dtype.kind == "f" else "uint8",
        total=sum(len(group.images) for group in groups),
        cases=(case for group in groups for case in _cases(group, offset, path)),
    )


def _group(file: h5py.File, split: str, path: Path) -> _Group:
    images, labels, uids = (_dataset(file, f"{split}/{name}", path) for name in ("images", "labels", "uids"))
    if images.ndim != 3 or not (images.dtype == np.uint8 or images.dtype.kind == "f"):
        found = f"{images.shape} {images.dtype}"
        raise InputError(f"{path}: {split}/images: expected (N, H, W) of uint8 or floats, found {found}")
    n, height, width = images.shape
    fits_last = labels.ndim == 4 and labels.shape[:3] == (n, height, width)
    fits_first = labels.ndim == 4 and (labels.shape[0], *labels.shape[2:]) == (n, height, width)
    if fits_last == fits_first:
        expected = f"({n}, {height}, {width}, readers) or ({n}, readers, {height}, {width})"
        raise InputError(f"{path}: {split}/labels: expected {expected}, found {labels.shape}")
    if labels.dtype.kind not in "uib":
        raise InputError(f"{path}: {split}/labels: expected integers, found {labels.dtype}")
    patients = volumes = [_text(uid) for uid in _column(uids, n, path)]
    names = [f"{split}/{index}" for index in range(n)]
    if f"{split}/nodules" in file and f"{split}/slices" in file:  # then a slice has the name it has in the PNG tree
        nodules, slices = (_column(_dataset(file, f"{split}/{name}", path), n, path) for name in ("nodules", "slices"))
        volumes = [f"{patient}/nodule-{nodule}" for patient, nodule in zip(patients, nodules, strict=True)]
        names = [f"{volume}/slice-{z}" for volume, z in zip(volumes, slices, strict=True)]
    return _Group(split, images, labels, fits_last, patients, volumes, names)


def _column(dataset: h5py.Dataset, n: int, path: Path) -> np.ndarray:
    if dataset.shape != (n,):
        raise InputError(f"{path}: {dataset.name}: expected one value for each of {n} slices, found {dataset.shape}")
    return dataset[:]


def _dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """A dataset whose bytes are in this file: HDF5 can point at other files, which is not followed."""
    steps = name.split("/")
    for depth in range(1, len(steps) + 1):
        link = file.get("/".join(steps[:depth]), getlink=True)
        if isinstance(link, h5py.ExternalLink):
            raise InputError(f"{path}: {name}: expected data in this file, found a link to {link.filename}")
    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise InputError(f"{path}: expected a dataset {name}, found {'a group' if found is not None else 'none'}")
    if found.external or found.is_virtual:
        raise InputError(f"{path}: {name}: expected data in this file, found it kept in another one")
    return found


def _offset(groups: list[_Group], path: Path) -> float:
    """What to add to float images to bring them to [0, 1]. It takes the whole file to know: a first pass."""
    low, high = np.inf, -np.inf
    for group in groups:
        for block in _blocks(group.images, path):
            if not np.isfinite(block).all():
                raise InputError(f"{path}: {group.split}/images: expected finite values, found NaN or infinity")
            low, high = min(low, float(block.min())), max(high, float(block.max()))
    if low >= -TOLERANCE and high <= 1 + TOLERANCE:
        return 0.0
    if low >= -0.5 - TOLERANCE and high <= 0.5 + TOLERANCE:
        return 0.5
    raise InputError(f"{path}: images: expected values in [0, 1] or [-0.5, 0.5], found {low:g} to {high:g}")


def _cases(group: _Group, offset: float, path: Path) -> Iterator[Case]:
    index = 0
    for images, labels in zip(_blocks(group.images, path), _blocks(group.labels, path), strict=True):
        if images.dtype != np.uint8:
            images = np.clip(images.astype(np.float32) + np.float32(offset), 0, 1)
        masks = binary(np.moveaxis(labels, -1, 1) if group.raters_last else labels, f"{path}: {group.split}/labels")
        for image, readers in zip(images, masks, strict=True):
            yield Case(
                name=group.names[index],
                patient=group.patients[index],
                image=image[None],
                masks=readers[:, None],
                volume=group.volumes[index],
                source=f"{group.split}[{index}]",
                split=group.split,
            )
            index += 1


def _blocks(dataset: h5py.Dataset, path: Path) -> Iterator[np.ndarray]:
    for first in range(0, len(dataset), BLOCK):
        try:
            yield dataset[first : first + BLOCK]
        except OSError as error:
            raise InputError(f"{path}: {dataset.name}: expected whole data, found it damaged ({error})") from error


def _raters(group: _Group) -> int:
    return group.labels.shape[3 if group.raters_last else 1]


def _text(uid: object) -> str:
    return uid.decode("utf-8", "replace") if isinstance(uid, bytes) else str(uid)

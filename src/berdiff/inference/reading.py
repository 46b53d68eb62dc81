"""Read an input as the network wants to see it, and remember how to put masks back on its grid."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np

from berdiff.data import dicom, images, volumes
from berdiff.data.sources.folder_files import open_numpy
from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff.inference.intensity import Intensity, to_unit
from berdiff.inference.result import Source

UNKNOWN = (float("nan"), float("nan"))


@dataclass(frozen=True, eq=False)
class Opened:
    """An input, read: a 2D image or a volume of upright slices."""

    name: str
    image: np.ndarray  # (C, H, W) or (C, Z, H, W) float32 in [0, 1]
    spacing: tuple[float, ...]  # mm along the last axes
    source: Source
    what: str  # as it is called in a message
    readers: np.ndarray | None = None  # (R, K, H, W) uint8, of a store's case
    notes: tuple[str, ...] = ()

    @property
    def planes(self) -> int:
        """How many slices it has."""
        return self.image.shape[1] if self.image.ndim == 4 else 1


@dataclass(frozen=True, eq=False)
class _Values:
    """The values as stored, before they are scaled."""

    values: np.ndarray  # (C, H, W) or (C, Z, H, W)
    spacing: tuple[float, ...]
    source: Source
    ct: bool = False
    volume: volumes.Volume | None = None  # where it lies in space


def read(item: Input, channels: int, intensity: Intensity, names: tuple[str, ...] = ()) -> Opened:
    """The image of an input; `channels` is how many the network takes, `names` what they are called."""
    if item.error:
        raise InputError(item.error)
    if item.store is not None:
        return _case(item, channels)
    first, *others = item.paths
    if item.kind == "dicom":
        found = _dicom(item.paths)
    elif others:
        found = _joined([_file(path, item.kind, 1) for path in item.paths], item)
    else:
        found = _file(first, item.kind, channels)
    if len(found.values) != channels:
        called = f" ({', '.join(names)})" if names else ""
        raise InputError(
            f"{item.what}: expected {channels} channel(s){called}, as the model was trained with, found "
            f"{len(found.values)}"
        )
    return _scaled(item.name, found, intensity, item.what)


def from_array(array: np.ndarray, channels: int, intensity: Intensity, name: str, spacing: Any = None) -> Opened:
    """An array `(H, W)`, `(Z, H, W)`, or with its channels first or last, as a network of `channels` takes it."""
    values = arranged(np.asarray(array), channels, name)
    axes = values.ndim - 1
    given = (float("nan"),) * axes if spacing is None else tuple(float(mm) for mm in spacing)
    if len(given) != axes or any(mm <= 0 for mm in given):
        raise InputError(f"spacing: expected {axes} positive numbers of mm, one an axis, found {spacing}")
    found = _Values(values, given, Source("array", shape=values.shape[1:]))
    return _scaled(name, found, intensity, name)


def arranged(array: np.ndarray, channels: int, what: str) -> np.ndarray:
    """(C, H, W) for a 2D image, (C, Z, H, W) for a volume; only the shape and `channels` tell which is which."""
    shape = array.shape
    if array.dtype.kind not in "biuf" or not array.size:
        raise InputError(f"{what}: expected an array of numbers, found {array.dtype} of shape {shape}")
    if array.dtype.kind == "b":
        array = array.astype(np.uint8) * 255
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InputError(f"{what}: expected finite values, found NaN or infinity")
    if len(shape) == 2:
        return array[None]
    if len(shape) == 3 and shape[0] == channels:
        return array
    if len(shape) == 3 and shape[-1] == channels and channels > 1:
        return np.moveaxis(array, -1, 0)
    if len(shape) == 3 and channels == 1 and shape[-1] != 3:
        return array[None]
    if len(shape) == 4 and shape[0] == channels:
        return array
    kinds = "(H, W), (Z, H, W) or (1, Z, H, W)" if channels == 1 else f"({channels}, H, W) or ({channels}, Z, H, W)"
    raise InputError(f"{what}: expected an array {kinds} for a network of {channels} channel(s), found {shape}")


# --- one file a reader -----------------------------------------------------------------------------------------------


def _file(path: Path, kind: str, channels: int) -> _Values:
    if kind == "nifti":
        return _nifti(path, channels)
    if kind == "npy":
        values = arranged(open_numpy(path), channels, str(path))
        return _Values(values, (float("nan"),) * (values.ndim - 1), Source("npy", (path,), values.shape[1:]))
    values = images.read_image(path, channels)
    return _Values(values, UNKNOWN, Source("png", (path,), values.shape[1:]))


def _nifti(path: Path, channels: int) -> _Values:
    shape = volumes.stored_shape(path)
    if len(shape) == 2:
        values = volumes.read_plane(path)[None]
        stored: Any = nibabel.load(path)
        return _Values(values, UNKNOWN, Source("nifti", (path,), shape, stored.affine, stored.header))
    several = len(shape) > 3 and shape[3] > 1
    volume = volumes.read_volume(path, 4 if several else 3)
    stored = nibabel.load(path)
    back = volumes.turn_back(stored.affine)
    source = Source("nifti", (path,), tuple(shape[:3]), np.asarray(stored.affine), stored.header, back)
    values = volume.voxels if several else volume.voxels[None]
    return _Values(values, _spacing(volume), source, volume=volume)


def _dicom(paths: tuple[Path, ...]) -> _Values:
    headers = [dicom.read_header(path) for path in paths]
    ct = headers[0].modality == "CT"
    if len(headers) == 1:
        values = dicom.read_pixels(paths[0])[None]
        spacing = headers[0].spacing or UNKNOWN
        return _Values(values, spacing, Source("dicom", paths, values.shape[1:]), ct)
    series = dicom.read_volume(headers)
    affine = volumes.series_affine(series)
    volume = volumes.upright(paths[0].parent, series.hu.T, affine)
    source = Source("dicom", series.files, series.hu.shape, back=volumes.turn_back(affine))
    return _Values(volume.voxels[None], _spacing(volume), source, ct)


def _joined(parts: list[_Values], item: Input) -> _Values:
    """The sequences of a case as channels: all must have one shape and lie in one place."""
    first = parts[0]
    for path, part in zip(item.paths, parts, strict=True):
        if part.values.shape != first.values.shape:
            expected, found = ("x".join(map(str, of.values.shape[1:])) for of in (first, part))
            raise InputError(f"{path}: expected {expected} pixels like {item.paths[0].name}, found {found}")
        if first.volume is not None and part.volume is not None:
            volumes.check_same_place(first.volume, part.volume)
    values = np.concatenate([part.values for part in parts])
    return replace(first, values=values, source=replace(first.source, paths=item.paths))


def _case(item: Input, channels: int) -> Opened:
    store = item.store
    assert store is not None
    if len(store.channels) != channels:
        raise InputError(
            f"{store.address}: expected {channels} channel(s), as the model was trained with, found "
            f"{len(store.channels)} ({', '.join(store.channels)})"
        )
    image, masks = store.read([item.index])
    row, column = store.cases.spacing[item.index]
    readers = masks[0, : int(store.cases.raters[item.index])]
    source = Source("store", item.paths, image.shape[2:])
    return Opened(item.name, image[0], (float(row), float(column)), source, item.what, readers, store.notes)


def _scaled(name: str, found: _Values, intensity: Intensity, what: str) -> Opened:
    planar = found.values.ndim == 3
    values = found.values[:, None] if planar else found.values
    image = to_unit(values, intensity, what, planar, found.ct)
    return Opened(name, np.ascontiguousarray(image[:, 0] if planar else image), found.spacing, found.source, what)


def _spacing(volume: volumes.Volume) -> tuple[float, float, float]:
    """mm, (slice, row, column)."""
    column, row, between = np.linalg.norm(volume.affine[:3, :3], axis=0)
    return float(between), float(row), float(column)

"""One image and its grid: the values of a file as (slice, row, column), slice 0 at the feet, row 0 in front, column 0
at the patient's right, and the way back to the file's own axes. A picture is as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any, Literal

import numpy as np

from berdiff.data.describe import by, check, expect, present
from berdiff.data.input_spec import Modality, Range
from berdiff.data.numbers import MAX_MM

Kind = Literal["png", "nifti", "dicom", "npy", "store", "array"]  # "png" is any picture: PNG, JPG or TIFF
UNKNOWN = (nan, nan)
LEFT_BACK_UP = ("L", "P", "S")  # where columns, rows and slices go, in nibabel's letters


@dataclass(frozen=True, eq=False)
class Source:
    """Where an image came from, and how to put an array back on its grid."""

    kind: Kind
    paths: tuple[Path, ...] = ()  # the files; of a DICOM series in the order of `to_stored`'s first axis
    shape: tuple[int, ...] = ()  # of the stored grid: (H, W); NIfTI (X, Y, Z); DICOM series (Z, rows, columns)
    # (4, 4) -> mm as NIfTI counts them, right, front, up: of NIfTI exactly as in the file, from (i, j, k); of DICOM
    # from (column, row, slice) as stored; None where the files state no place.
    affine: np.ndarray | None = None
    header: Any = None  # NIfTI: the nibabel header, for units, codes and descriptions
    headers: tuple[Any, ...] = ()  # DICOM: of each of `paths` what derived objects take over, as a pydicom Dataset
    back: np.ndarray | None = None  # volumes: nibabel's orientation (column, row, slice) -> the stored (X, Y, Z)
    addresses: tuple[str, ...] = ()  # of the files, where they are at an address and `paths` are copies
    resampled: bool = False  # a DICOM series with gaps: a slice is no file any more

    @property
    def files(self) -> tuple[str, ...]:
        """What a result names as its source."""
        return self.addresses or tuple(map(str, self.paths))

    def to_stored(self, array: np.ndarray) -> np.ndarray:
        """(..., Z, H, W) or (..., H, W), upright -> the same leading axes, then the stored grid (`shape`)."""
        if self.back is None:
            return array
        turned = apply_orientation(array.T, self.back).T  # (..., Z, Y, X)
        return np.ascontiguousarray(turned if self.kind == "dicom" else turned.swapaxes(-3, -1))


@dataclass(frozen=True, eq=False)
class Grid:
    """Where the pixels of an upright array lie: of a whole image, or of a region of it (`part`)."""

    shape: tuple[int, ...]  # (Z, H, W), or (H, W) of a picture
    spacing: tuple[float, ...]  # mm along these axes; nan where unknown
    affine: np.ndarray | None = None  # (4, 4) (column, row, slice) -> mm right, front, up; None: no place in space
    source: Source = Source("array")
    whole: "Grid | None" = None  # of a region: the image's own grid
    ranges: tuple[Range, ...] = ()  # of a region: where it lies in `whole`

    @property
    def planar(self) -> bool:
        """Whether it is a 2D picture, not a volume."""
        return len(self.shape) == 2

    @property
    def first(self) -> int:
        """The number of its first slice in the whole volume."""
        return self.ranges[0][0] if self.ranges and not self.planar else 0

    @property
    def box(self) -> tuple[slice, ...]:
        """Where it lies in the whole image, as an index of the last axes."""
        return tuple(slice(*ends) for ends in self.ranges) or (slice(None),) * len(self.shape)

    @property
    def aspect(self) -> float:
        """The height of a pixel over its width, for pictures; 1 where the spacing is unknown."""
        row, column = self.spacing[-2:]
        return float(np.clip(row / column, 1 / 16, 16)) if np.isfinite([row, column]).all() else 1.0

    @property
    def world(self) -> np.ndarray | None:
        """(column, row, slice) -> mm as its file counts: of NIfTI right, front and up, of DICOM left, back, up."""
        turned = [-1.0, -1.0, 1.0, 1.0] if self.source.kind == "dicom" else [1.0] * 4
        return None if self.affine is None else np.diag(turned) @ self.affine

    def to_voxel(self, place: Sequence[float], what: str = "image") -> tuple[float, float, float]:
        """(z, y, x) in mm -> (slice, row, column), exactly; `what` names the image in the error."""
        world = present(self.world, what, "a volume with a place in space for mm")
        column, row, number, _ = np.linalg.solve(world, np.append(place[::-1], 1.0))
        return float(number), float(row), float(column)

    def to_mm(self, place: Sequence[float], what: str = "image") -> list[float]:
        """(slice, row, column) -> (x, y, z) in mm."""
        world = present(self.world, what, "a volume with a place in space for mm")
        return (world @ np.append(place[::-1], 1.0))[:3].tolist()

    def part(self, ranges: Sequence[Range]) -> "Grid":
        """The grid of a region, one range per axis; of all of it, itself."""
        if all(ends == (0, length) for ends, length in zip(ranges, self.shape, strict=True)):
            return self
        affine = self.affine
        if affine is not None:
            affine = affine.copy()
            affine[:3, 3] += affine[:3, :3] @ [first for first, _ in reversed(ranges)]
        starts = [first for first, _ in self.ranges] or [0] * len(ranges)
        within = tuple((start + first, start + end) for start, (first, end) in zip(starts, ranges, strict=True))
        shape = tuple(end - first for first, end in ranges)
        return replace(self, shape=shape, affine=affine, whole=self.whole or self, ranges=within)

    def placed(self, array: np.ndarray) -> np.ndarray:
        """(..., *shape) of a region -> on the grid of the whole image, with 0 around it."""
        if self.whole is None:
            return array
        around = np.zeros((*array.shape[: -len(self.shape)], *self.whole.shape), array.dtype)
        around[(..., *self.box)] = array
        return around

    def to_stored(self, array: np.ndarray) -> np.ndarray:
        """(..., *shape) -> the same leading axes, then the whole grid of the source's own files."""
        return self.source.to_stored(self.placed(array))


@dataclass(frozen=True, eq=False)
class Image:
    """The values of a file, of a DICOM series, or of a file per channel, as stored but upright."""

    values: np.ndarray  # (C, Z, H, W); Z is 1 for a picture
    grid: Grid
    modality: str = "unknown"  # ct, mr, picture; or as DICOM calls another one; of other files guessed by the values
    colour: bool = False  # its channels are the colours of one picture
    title: str = ""  # what people call it: of a DICOM series patient, description, number and date
    details: Mapping[str, str] = field(default_factory=dict)  # the same in parts, with the UIDs
    warnings: tuple[str, ...] = ()  # of how it was read

    @property
    def source(self) -> Source:
        return self.grid.source

    @property
    def ct(self) -> bool:
        """Whether the file states that its values are Hounsfield units."""
        return self.source.kind == "dicom" and self.modality == "ct"

    @property
    def stack(self) -> bool:
        """Slices in an .npy file, which states no place in space."""
        return self.source.kind == "npy" and not self.grid.planar


def likely_modality(values: np.ndarray, planar: bool) -> Modality:
    """What values look like where no file says it: a CT has air far below 0, an MR nothing below 0; 8 bits say
    nothing, and floats in [0, 1] were scaled before."""
    if values.dtype == np.uint8:
        return "picture" if planar else "unknown"
    low, high = values.min(), values.max()
    if low <= -500 or (low < -200 and (values.dtype.kind in "iu" or not (values % 1).any())):
        return "ct"
    if planar and values.dtype.kind == "u":
        return "picture"
    return "mr" if low >= 0 and high > 1 and not planar else "unknown"


def check_same_place(image: Image, other: Image) -> None:
    """Both must have one shape and, where both say so, lie in one place: no corner more than half a voxel away."""
    here, there = image.grid, other.grid
    name, path = here.source.paths[0].name, there.source.paths[0]
    unit = "pixels" if here.planar else "slices, rows, columns"
    expect(here.shape == there.shape, path, f"{by(here.shape)} {unit} like {name}", by(there.shape), "shape")
    if here.affine is None or there.affine is None:
        return
    Z, H, W = here.shape
    ends = np.array([(c, r, s, 1) for c in (0, W - 1) for r in (0, H - 1) for s in (0, Z - 1)])
    apart = np.linalg.norm((ends @ (here.affine - there.affine).T)[:, :3], axis=1).max()
    voxel = np.linalg.norm(here.affine[:3, :3], axis=0).min()
    check(apart <= voxel / 2, f"{path}: up to {apart:.3g} mm apart from {name}", "place")


# --- orientations, in nibabel's words, which is imported where a volume is turned: pictures do without ----------------


def upright(stored: np.ndarray, source: Source, what: object, **about: Any) -> Image:
    """An array of any three axes [and channel] as (slice, row, column), by its affine; `what` is for errors."""
    from nibabel.orientations import inv_ornt_aff

    stated = present(source.affine, what, "a place in space")
    turn = checked_turn(stated, what)
    values = np.ascontiguousarray(apply_orientation(stored, turn).T)
    affine = stated @ inv_ornt_aff(turn, stored.shape[:3])
    column, row, between = np.linalg.norm(affine[:3, :3], axis=0).tolist()
    grid = Grid(values.shape[-3:], (between, row, column), affine, replace(source, back=turn_back(stated)))
    return Image(values if values.ndim == 4 else values[None], grid, **about)


def upright_shape(stored: tuple[int, ...], affine: np.ndarray, what: object) -> tuple[int, ...]:
    """The shape of (column, row, slice[, channel]) in any stored order, once turned upright and reversed."""
    return apply_orientation(np.broadcast_to(0, stored), checked_turn(affine, what)).T.shape  # no voxel is stored


def checked_turn(affine: np.ndarray, what: object) -> np.ndarray:
    """`turn_upright` of an affine that may come from anywhere."""
    small = np.isfinite(affine).all() and np.abs(affine).max() <= MAX_MM
    places = small and abs(np.linalg.det(affine[:3, :3])) >= 1e-12
    expect(places, what, "an affine that places the voxels in space", affine[:3].tolist(), "place")
    return turn_upright(affine)


def turn_upright(affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation from the axes of an affine to (left, back, up)."""
    from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

    return ornt_transform(io_orientation(affine), axcodes2ornt(LEFT_BACK_UP))


def turn_back(affine: np.ndarray) -> np.ndarray:
    """nibabel's orientation from (left, back, up) to the axes of an affine: what undoes `turn_upright`."""
    from nibabel.orientations import axcodes2ornt, io_orientation, ornt_transform

    return ornt_transform(axcodes2ornt(LEFT_BACK_UP), io_orientation(affine))


def apply_orientation(array: np.ndarray, orientation: np.ndarray) -> np.ndarray:
    from nibabel.orientations import apply_orientation

    return apply_orientation(array, orientation)


def dicom_affine(column: np.ndarray, row: np.ndarray, step: np.ndarray, origin: np.ndarray) -> np.ndarray:
    """(column, row, slice) -> millimetres as NIfTI counts them: right and front, where DICOM has left and back."""
    affine = np.eye(4)
    affine[:3] = np.stack([column, row, step, origin], axis=1)
    affine[:2] *= -1
    return affine

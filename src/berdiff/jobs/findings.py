"""Findings: places in an input that are segmented each by itself, by a table of centres or a mask of candidates."""

import re
from collections.abc import Sequence
from math import floor, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from berdiff import schema
from berdiff.data.csv_table import read_csv
from berdiff.data.describe import by, check, expect
from berdiff.data.reading import read_labels
from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff.inference.opening import ReadInput
from berdiff.inference.region import Region
from berdiff.inference.settings import FindingOptions, option


class Finding(NamedTuple):
    name: str
    center: tuple[int, ...] = ()  # (z, y, x) of the upright volume, or (y, x)
    error: str = ""  # why it cannot be segmented


# --- by a table ------------------------------------------------------------------------------------------------------

COLUMNS = ("case", "z", "y", "x")
# A finding's results are a folder of this name beside the files of its case.
_NAME = re.compile(r"(?!\.)[^/\\\x00-\x1f]{1,100}(?<!\.csv)(?<!\.json)(?<!\.nii\.gz)")


class _Row(NamedTuple):
    """A line of the table."""

    where: str
    name: str
    place: tuple[float | None, ...] = ()  # z (None: empty), y, x
    error: str = ""


class Centers:
    """A table of centres. A bad line is the fault of one finding; a file that is no such table, of the command."""

    kind = "centers"

    def __init__(self, path: Path, mm: bool) -> None:
        self.path, self.mm = path, mm
        by_name: dict[str, dict[str, _Row]] = {}
        for case, row in _read_rows(path):
            rows = by_name.setdefault(case, {})
            name = row.name or f"finding-{len(rows) + 1}"
            same = rows.setdefault(name.casefold(), row._replace(name=name))
            if same.where != row.where:  # neither is taken: which one is meant is not known
                error = f"{row.where}: the case {case!r} has another finding called {name!r}"
                rows[name.casefold()] = same._replace(error=error)
        check(by_name, f"{path}: no centres in the table", "missing")
        self.rows = {case: list(rows.values()) for case, rows in by_name.items()}

    def choose(self, inputs: Sequence[Input], every: bool) -> list[Input]:
        """Those inputs that have findings; `every`: the given ones are all there are, so others are unknown."""
        known = {item.name for item in inputs}
        chosen = [item for item in inputs if item.name in self.rows or item.error]
        some = ", ".join(map(repr, sorted(known)[:3])) + (", ..." if len(known) > 3 else "")
        for case, rows in self.rows.items() if every else ():
            if case not in known:
                error = f"{rows[0].where}: no input is called {case!r}; there are {some}"
                chosen.append(Input(case or rows[0].where, (self.path,), error=error))
        return chosen

    def asked(self, item: Input) -> Any:
        """What decides the findings of an input, in plain JSON types."""
        rows = [[row.name, *row.place] for row in self.rows[item.name]]
        return {"unit": "mm" if self.mm else "voxel", "centers": rows}

    def find(self, item: Input, read: ReadInput) -> list[Finding]:
        """At least one; those that cannot be segmented among them."""
        found: list[Finding] = []
        for row in self.rows[item.name]:
            try:
                found.append(Finding(row.name, () if row.error else self._center(row, read), row.error))
            except InputError as error:
                found.append(Finding(row.name, error=str(error)))
        return found

    def _center(self, row: _Row, read: ReadInput) -> tuple[int, ...]:
        place, shape = row.place, read.shape
        volume, placed = len(shape) == 3, read.grid.affine is not None
        check(placed or not self.mm, f"{row.where}: {read.what} has no place in space, which mm need", "place")
        check(place[0] is not None or not (volume or self.mm), f"{row.where}: the column z is empty", "missing")
        check(place[0] is None or volume or self.mm, f"{row.where}: {read.what} is 2D, leave z empty", "place")
        exact = [at for at in place if at is not None]
        exact = read.grid.to_voxel(exact, read.what) if self.mm else exact
        center = tuple(floor(number + 0.5) for number in exact)
        inside = all(0 <= at < length for at, length in zip(center, shape, strict=True))
        axes = "slices, rows, columns" if volume else "rows, columns"
        voxel = " ".join(f"{at:g}" for at in center) + (" (as voxel)" if self.mm else "")
        expect(inside, row.where, f"a centre inside the {by(shape)} {axes} of {read.what}", voxel, "place")
        return center


def _read_rows(path: Path) -> list[tuple[str, _Row]]:
    """(case, line) of each line; what is wrong with a line is noted in it."""
    columns, lines = read_csv(path, COLUMNS)
    rows: list[tuple[str, _Row]] = []
    for where, line, more in lines:
        case, name = (line.get(column, "") for column in ("case", "finding"))
        try:
            check(not more, f"{where}: more than {len(columns)} columns", "shape")
            named = "a finding's name without / or \\, not beginning with a dot nor ending like a file of its case"
            expect(not name or _NAME.fullmatch(name), where, named, repr(name), "name")
            place = tuple(_number(line.get(column), where, column) for column in ("z", "y", "x"))
            rows.append((case, _Row(where, name, place)))
        except InputError as error:
            rows.append((case, _Row(where, name, error=str(error))))
    return rows


def _number(text: str | None, where: str, column: str) -> float | None:
    text = text or ""
    if column == "z" and not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    expect(isfinite(number), where, f"a number in the column {column}", repr(text) if text else "none")
    return number


# --- by a mask -------------------------------------------------------------------------------------------------------

MOST = 1000  # findings in one mask; more are the specks of one that was thresholded too low
SUFFIXES = (".nii.gz", ".nii", ".png")


class Candidates:
    """Masks on the grids of the inputs; every connected piece, by face, edge or corner, is a finding."""

    kind = "candidates"

    def __init__(self, path: Path) -> None:
        expect(path.exists(), path, "a mask, or a folder of masks", "nothing there", "missing")
        self.path = path

    def choose(self, inputs: Sequence[Input], every: bool) -> list[Input]:
        fits = self.path.is_dir() or len(inputs) == 1
        expect(fits, self.path, f"a folder with a mask for each of {len(inputs)} inputs", "a file", "kind")
        return list(inputs)

    def asked(self, item: Input) -> Any:
        mask = self._mask(item)
        return {"mask": str(mask.resolve()), "bytes": mask.stat().st_size}

    def find(self, item: Input, read: ReadInput) -> list[Finding]:
        mask = self._mask(item)
        if read.case is not None:
            raise InputError(f"{mask}: masks of candidates go with image files, not with a case of {read.what}", "kind")
        labels = read_labels(mask, read.file)
        whole = labels.dtype.kind in "biu" or (labels == np.rint(labels)).all()
        expect(whole, mask, "a mask of whole numbers", "fractions", "kind")
        centers = piece_centers(labels != 0, read.grid.spacing, mask)
        return [Finding(f"finding-{i}", at[-len(read.shape) :]) for i, at in enumerate(centers, 1)]

    def _mask(self, item: Input) -> Path:
        if self.path.is_file():
            return self.path
        paths = [path for suffix in SUFFIXES if (path := self.path / f"{item.name}{suffix}").is_file()]
        expected, names = f"one mask of it, {self.path / item.name}.nii.gz", [path.name for path in paths]
        expect(len(paths) == 1, item.what, expected, ", ".join(names) or "none", "missing")
        return paths[0]


def piece_centers(mask: np.ndarray, spacing: Sequence[float], where: object) -> list[tuple[int, ...]]:
    """Of each connected piece of a mask `(Z, H, W)`, in the order of their first voxels: its voxel that lies nearest to
    its centre of mass."""
    from scipy import ndimage  # pyright: ignore[reportMissingTypeStubs]

    pieces = np.zeros(mask.shape, np.int32)
    scipy: Any = ndimage
    scipy.label(mask, structure=np.ones((3, 3, 3)), output=pieces)
    count = int(pieces.max())
    check(count, f"{where}: the mask is empty", "missing")
    expect(count <= MOST, where, f"a mask of at most {MOST} connected pieces", count, "limit")
    scale = np.array([1.0, *spacing])[-3:]
    scale = scale if np.isfinite(scale).all() else np.ones(3)
    centers: list[tuple[int, ...]] = []
    for number, box in enumerate(scipy.find_objects(pieces), 1):
        voxels = np.argwhere(pieces[box] == number)
        away = ((voxels - voxels.mean(0)) * scale) ** 2
        nearest = voxels[away.sum(1).argmin()] + [axis.start for axis in box]
        centers.append(tuple(nearest.tolist()))
    return centers


# --- which are asked for ---------------------------------------------------------------------------------------------

FindingSource = Centers | Candidates


def open_findings(options: FindingOptions, region: Region) -> FindingSource | None:
    """Where the findings come from; None where none are asked for, and the inputs are segmented as they are."""
    schema.check(options, FindingOptions, option)
    if options.centers is None and options.candidates is None:
        for name, given in (("--extent", region.extent is not None), ("--slice", region.slice)):
            check(not given or region.center, f"{name}: needs --center Z Y X, --centers or --candidates", "conflict")
        return None
    given = "--centers" if options.candidates is None else "--candidates"
    check(not region.chosen, f"{given}: does not go with --center, --box or --slices", "conflict")
    if options.centers is not None:
        return Centers(options.centers, options.centers_unit == "mm")
    assert options.candidates is not None
    return Candidates(options.candidates)

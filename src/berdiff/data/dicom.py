"""DICOM slices and series: headers first, pixels of the slices that are wanted, each defect in one sentence."""

import io
import math
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from berdiff.data.describe import by, decoding, expect, present
from berdiff.data.image import UNKNOWN, Grid, Image, Source, dicom_affine, upright, upright_shape
from berdiff.data.limits import check_bytes, check_size
from berdiff.data.numbers import MAX_MM, finite
from berdiff.data.paths import expect_file, expect_folder, fault_of, files_under

if TYPE_CHECKING:
    import pydicom  # at run time where a file is read: most commands never see a DICOM file

SUFFIXES = (".dcm", ".dicom", ".ima")
SAME_POSITION = 1e-3  # mm: two slices nearer than this are at one place
UNEVEN = 0.1  # of the usual distance of slices: another distance is a gap
ROUNDED = 0.1 + 1e-6  # mm: some scanners write positions with one decimal
LONGEST_TEXT = 64  # characters of a series' description, as in DICOM itself
MAX_ELEMENTS = 50_000  # of one file, beside those in sequences
_PIXELS = (0x7FE00008, 0x7FE00009, 0x7FE00010)
SHOWN_GAPS = 5  # in a message
CHUNK = 2**20  # bytes that are inflated at a time
_TEXTS = {"patient": "PatientID", "study_uid": "StudyInstanceUID", "series_uid": "SeriesInstanceUID"}
_TEXTS |= {"modality": "Modality", "sop_class": "SOPClassUID"}
# What a series is called by, in any form or none: no reason to refuse a file
_NAMES = {"description": "SeriesDescription", "number": "SeriesNumber", "study_date": "StudyDate"}
_NAMES |= {"series_date": "SeriesDate"}
_COUNTS = {"instance": ("InstanceNumber", 0), "frames": ("NumberOfFrames", 1), "channels": ("SamplesPerPixel", 1)}
_GEOMETRY = {"spacing": ("PixelSpacing", 2), "position": ("ImagePositionPatient", 3)}
_GEOMETRY |= {"orientation": ("ImageOrientationPatient", 6), "thickness": ("SliceThickness", 1)}
# What files derived from an image take over from it: needed, or only where it is stated; and of the patient and study
NEEDED = ("SOPInstanceUID", "SOPClassUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
NEEDED += ("PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient")
STATED = ("Rows", "Columns", "Modality", "LossyImageCompression", "LossyImageCompressionRatio")
STATED += ("LossyImageCompressionMethod",)
PERSONAL = ("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID")
PERSONAL += ("StudyDate", "StudyTime")
_TAGS = ["Rows", "Columns", *_TEXTS.values(), *_NAMES.values()]
_TAGS += [tag for tag, _ in (*_COUNTS.values(), *_GEOMETRY.values())]


@dataclass(frozen=True, slots=True)
class SliceHeader:
    """What one file states of its slice, without the pixels. Geometry a file does not state is None."""

    path: Path
    patient: str
    study_uid: str  # "" where the file has none
    series_uid: str
    modality: str
    sop_class: str
    instance: int
    shape: tuple[int, int]  # (rows, columns)
    frames: int
    channels: int
    spacing: tuple[float, float] | None  # mm per pixel, (row, column)
    position: tuple[float, float, float] | None  # mm, centre of the first pixel, in patient coordinates
    orientation: tuple[float, ...] | None  # direction cosines of a row and of a column
    thickness: float | None  # mm
    description: str  # of the series, and its number and dates: "" where the file has none
    number: str
    study_date: str
    series_date: str

    def geometry(self) -> tuple[tuple[float, float], tuple[float, float, float]]:
        """(spacing, position), or an error that names the missing tag."""
        spacing = present(self.spacing, self.path, "the DICOM tag PixelSpacing")
        return spacing, present(self.position, self.path, "the DICOM tag ImagePositionPatient")

    def plane(self) -> tuple[float, ...]:
        """The orientation, or an error that names the missing tag."""
        return present(self.orientation, self.path, "the DICOM tag ImageOrientationPatient")

    def affine(self, step: np.ndarray | None = None) -> np.ndarray | None:
        """(column, row, slice) -> mm as NIfTI counts them, by the step from a slice to the next, or by the thickness of
        this one; None where the file states no place."""
        if self.spacing is None or self.position is None or self.orientation is None:
            return None
        across, down = np.reshape(self.orientation, (2, 3))
        step = np.cross(across, down) * (max(self.thickness or 0, 0) or 1.0) if step is None else step
        return dicom_affine(across * self.spacing[1], down * self.spacing[0], step, np.array(self.position))

    @property
    def title(self) -> str:
        """What people call the series by: patient, description and number, date; "" where the file states none."""
        number = f"series {self.number}" if self.number else ""
        series = f"{self.description} ({number})" if self.description and number else self.description or number
        return ", ".join(part for part in (self.patient, series, _date(self.series_date or self.study_date)) if part)

    @property
    def details(self) -> dict[str, str]:
        """The same in parts, with the UIDs."""
        parts = {"patient": self.patient, "series": self.description, "series number": self.number}
        parts |= {"date": _date(self.series_date or self.study_date)}
        parts |= {"study UID": self.study_uid, "series UID": self.series_uid}
        return {name: text for name, text in parts.items() if text}

    @property
    def about(self) -> dict[str, Any]:
        """What an image of it says of itself."""
        return {"modality": self.modality.lower() or "unknown", "title": self.title, "details": self.details}


@contextmanager
def quiet() -> Iterator[None]:
    """Without the libraries' warnings of odd headers, which print values, perhaps names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _numbers(data: "pydicom.Dataset", path: Path, tag: str, count: int) -> tuple[float, ...] | None:
    """The `count` finite numbers of a tag, positive for a spacing; None where the file has no such tag."""
    value = data.get(tag)
    if value is None or value == "":
        return None
    numbers = tuple(float(v) for v in ([value] if isinstance(value, (int, float, str)) else value))
    kind, bound = ("positive", 0) if tag == "PixelSpacing" else ("finite", -MAX_MM)
    fits = len(numbers) == count and all(bound < number < MAX_MM for number in numbers)
    expect(fits, path, f"{count} {kind} numbers in the DICOM tag {tag}", value)
    return numbers


def _text(data: "pydicom.Dataset", tag: str) -> str:
    """One printable line of a tag; "" where it has none, or a value that cannot be read."""
    try:
        text = " ".join(str(data.get(tag) or "").split())
    except Exception:  # of any kind: pydicom converts a value when it is asked for
        return ""
    return "".join(c for c in text if c.isprintable())[:LONGEST_TEXT]


def _date(text: str) -> str:
    """20240131 -> 2024-01-31"""
    return f"{text[:4]}-{text[4:6]}-{text[6:]}" if len(text) == 8 and text.isdecimal() else ""


def read_header(path: str | Path) -> SliceHeader:
    """The header of one DICOM object, image or not."""
    from pydicom.filereader import read_partial
    from pydicom.tag import Tag

    path = Path(path)
    with opened(path, "a DICOM file", "one that cannot be read") as file:
        data = read_partial(file, _Counted(before_pixels=True), specific_tags=[Tag(name) for name in _TAGS])
        values: dict[str, Any] = {name: str(data.get(tag) or "") for name, tag in _TEXTS.items()}
        values |= {name: int(data.get(tag) or default) for name, (tag, default) in _COUNTS.items()}
        values |= {name: _text(data, tag) for name, tag in _NAMES.items()}
        values |= {name: _numbers(data, path, tag, count) for name, (tag, count) in _GEOMETRY.items()}
        shape = (int(data.get("Rows") or 0), int(data.get("Columns") or 0))
    expect(values["series_uid"], path, "the DICOM tag SeriesInstanceUID")
    (thickness,) = values.pop("thickness") or (None,)
    return SliceHeader(path=path, shape=shape, thickness=thickness, **values)


def read_pixels(path: str | Path) -> np.ndarray:
    """(H, W) float32 rescaled values of one slice: Hounsfield units for a CT, which must state how to get them."""
    return _read_slice(Path(path))[0]


def _read_slice(path: Path) -> tuple[np.ndarray, "pydicom.Dataset"]:
    """The pixels, and what derived files take over from the same file."""
    from pydicom.filereader import read_partial

    with opened(path, "whole DICOM pixel data", "data that cannot be read") as file:
        check_bytes(path, path.stat().st_size)  # it is read as a whole
        data = read_partial(file, _Counted(before_pixels=False))
        counts = [int(data.get(tag) or 1) for tag in ("NumberOfFrames", "Rows", "Columns", "SamplesPerPixel")]
        check_size(path, counts, max(4, int(data.get("BitsAllocated") or 0) // 8))
        stored = data.pixel_array
        rescale = {tag: _numbers(data, path, tag, 1) for tag in ("RescaleSlope", "RescaleIntercept")}
    for tag, number in rescale.items():
        needed = f"the DICOM tag {tag}, without which a CT has no Hounsfield units"
        expect(number is not None or data.get("Modality") != "CT", path, needed)
    plane = stored.ndim == 2 and stored.size
    expect(plane, path, "a DICOM image of one frame and one channel", f"shape {stored.shape}", "shape")
    (slope,), (intercept,) = rescale["RescaleSlope"] or (1.0,), rescale["RescaleIntercept"] or (0.0,)
    with np.errstate(over="ignore", invalid="ignore"):  # what comes out of it is refused
        values = finite(stored, path).astype(np.float32) * np.float32(slope) + np.float32(intercept)
    return finite(values, path), _kept(data)


def _kept(data: "pydicom.Dataset") -> "pydicom.Dataset":
    """The elements that derived files take over, not converted yet: what is odd in them matters there alone."""
    from pydicom import Dataset
    from pydicom.tag import Tag

    tags = [Tag(name) for name in (*NEEDED, *STATED, *PERSONAL, "SliceThickness") if name in data]
    kept = Dataset({tag: data.get_item(tag) for tag in tags})
    kept.set_original_encoding(*data.original_encoding, data.original_character_set)
    return kept


@contextmanager
def opened(path: Path, expected: str, found: str) -> Iterator[io.BufferedReader]:
    """A regular file; whatever pydicom raises inside is the file's fault."""
    expect_file(path, "a DICOM file")
    with quiet(), decoding(path, expected, found), _Guarded(io.FileIO(path)) as file:
        yield file


class _Counted:
    """Asked by pydicom at each element whether to stop there: a file of zeros is millions of elements."""

    def __init__(self, before_pixels: bool) -> None:
        self._left, self._before_pixels = MAX_ELEMENTS, before_pixels

    def __call__(self, tag: int, vr: str | None, length: int) -> bool:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {MAX_ELEMENTS} elements")
        return self._before_pixels and tag in _PIXELS


class _Guarded(io.BufferedReader):
    """Of a deflated file pydicom inflates the rest at once: here it is measured first."""

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(size)
        if size is None or size < 0:
            self._check_inflated(content)
        return content

    def _check_inflated(self, content: bytes) -> None:
        inflater, length = zlib.decompressobj(-zlib.MAX_WBITS), 0
        while content and not inflater.eof:
            length += len(inflater.decompress(content, CHUNK))
            content = inflater.unconsumed_tail
            check_bytes(
                self.name, length, share=1 / 64, found="more in a deflated file"
            )  # one slice, in several copies


def is_dicom(path: Path) -> bool:
    """By the suffix, or, without one, by the letters DICM at byte 128; an index file (DICOMDIR), XML or text is
    none."""
    if path.suffix.lower() in SUFFIXES:
        return True
    if path.name == "DICOMDIR" or path.suffix[1:].isalpha():
        return False
    if fault_of(path):
        return False
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def headers_by_series(folder: str | Path, modality: str | None = None) -> dict[str, list[SliceHeader]]:
    """The headers of all DICOM images under a folder by series UID; with a modality ("CT"), all others are left out."""
    folder = Path(folder)
    expect_folder(folder, "a folder of DICOM files")
    series: dict[str, list[SliceHeader]] = {}
    for path in filter(is_dicom, files_under(folder)):
        header = read_header(path)
        if modality not in (None, header.modality):
            continue
        expect(min(header.shape) > 0, path, "a DICOM image with Rows and Columns", by(header.shape), "shape")
        found = f"{header.frames} frame(s) and {header.channels} channel(s)"
        expect(header.frames == header.channels == 1, path, "an image of one frame and one channel", found, "shape")
        series.setdefault(header.series_uid, []).append(header)
    expect(series, folder, f"{modality or 'DICOM'} files in this folder")
    return series


def read_slice(header: SliceHeader) -> Image:
    """One slice by itself."""
    values, kept = _read_slice(header.path)
    source = Source("dicom", (header.path,), values.shape, header.affine(), headers=(kept,))
    return Image(values[None, None], Grid(values.shape, header.spacing or UNKNOWN, source=source), **header.about)


def read_series(folder: str | Path, allow_gaps: bool = False) -> Image:
    """The one series of a folder as a volume, even of one slice."""
    series = headers_by_series(folder)
    expect(len(series) <= 1, folder, "the slices of one DICOM series", f"{len(series)} series", "kind")
    return read_volume(next(iter(series.values())), allow_gaps, Path(folder))


def gaps(positions: Sequence[float] | np.ndarray) -> tuple[float, list[tuple[float, float]]]:
    """The usual distance (the median, in mm) of slices at ascending `positions`, and the neighbours that are not so far
    apart. Two slices at one place have no distance."""
    steps = np.diff(np.asarray(positions, float))
    apart = steps[steps >= SAME_POSITION]
    usual = float(np.median(apart)) if len(apart) else math.nan
    uneven = (steps >= SAME_POSITION) & (np.abs(steps - usual) > max(UNEVEN * usual, ROUNDED))
    return usual, [(float(positions[i]), float(positions[i + 1])) for i in np.flatnonzero(uneven).tolist()]


def gap_words(found: Sequence[tuple[float, float]]) -> str:
    """10 to 15 mm, 20 to 40 mm, ..."""
    words = ", ".join(f"{one:.6g} to {other:.6g} mm" for one, other in found[:SHOWN_GAPS])
    return words + (f" and {len(found) - SHOWN_GAPS} more" if len(found) > SHOWN_GAPS else "")


def read_volume(headers: Sequence[SliceHeader], allow_gaps: bool = False, folder: Path | None = None) -> Image:
    """The slices of one series, in any order, as a volume; `folder` is what an error is about. Slices must be evenly
    apart; with `allow_gaps` missing ones are interpolated, and of two at one place the lower instance number is
    taken."""
    first = headers[0]
    (spacing, _), plane = first.geometry(), first.plane()
    like = f"as in {first.path.name}"
    for header in headers:
        path, turned = header.path, header.orientation or (math.nan,)
        study, own = first.study_uid or "none", header.study_uid or "none"
        expect(study == own, path, f"the StudyInstanceUID {study} {like}", own, "conflict")
        expect(header.shape == first.shape, path, f"{by(first.shape)} pixels {like}", by(header.shape), "shape")
        same = np.allclose(header.geometry()[0], spacing, atol=1e-4)
        expect(same, path, f"a PixelSpacing of {spacing} {like}", header.spacing, "conflict")
        same = np.allclose(turned, plane, atol=1e-3)
        found = f"{header.orientation} at the position {header.position}"
        expect(same, path, f"the ImageOrientationPatient {plane} {like}", found, "place")
    positions = np.array([header.geometry()[1] for header in headers])
    normal = np.cross(plane[:3], plane[3:])
    along = np.array([np.dot(normal, position) for position in positions])
    order = sorted(range(len(headers)), key=lambda i: (along[i], headers[i].instance))
    kept, doubled = order[:1], 0
    for i in order[1:]:
        path, one, place = headers[i].path, headers[kept[-1]].path, along[i]
        single = place - along[kept[-1]] >= SAME_POSITION
        again = f"the position of {one.name} again, {place:.6g} mm (`berdiff segment --allow-gaps` takes one of them)"
        expect(single or allow_gaps, path, "one file per slice", again, "place")
        kept += [i] if single else []
        doubled += not single
    ordered, places, folder = [headers[i] for i in kept], along[kept], folder or first.path.parent
    usual, missing = gaps(places)
    even = f"slices {usual:.4g} mm apart"
    found = f"{gap_words(missing)}; slices seem to be missing (`berdiff segment --allow-gaps` interpolates them)"
    expect(not missing or allow_gaps, folder, even, found, "place")
    check_size(folder, (len(kept), *first.shape), 4)
    hu, taken = np.empty((len(kept), *first.shape), np.float32), list[Any]()
    for z, header in enumerate(ordered):
        hu[z], derived = _read_slice(header.path)
        taken.append(derived)
    warnings = [f"{doubled} slices at the place of another left out"] if doubled else []
    files, positions = tuple(header.path for header in ordered), positions[kept]
    if missing:
        grid = places[0] + usual * np.arange(math.floor((places[-1] - places[0]) / usual + UNEVEN) + 1)
        check_size(folder, (len(grid) + len(files), *first.shape), 4)
        hu = _interpolated(hu, places, grid)
        positions = np.stack([np.interp(grid, places, axis) for axis in positions.T], 1)
        warnings.insert(0, f"interpolated to {even}, as slices are missing: {gap_words(missing)}")
    step = (positions[-1] - positions[0]) / (len(hu) - 1) if len(hu) > 1 else None
    about = {"headers": () if missing else tuple(taken), "resampled": bool(missing)}
    source = Source("dicom", files, hu.shape, ordered[0].affine(step), **about)
    return upright(hu.T, source, folder, warnings=("; ".join(warnings),) if warnings else (), **first.about)


def upright_shape_of(first: SliceHeader, count: int) -> tuple[int, ...]:
    """The shape of `count` slices as a volume, by the header of one."""
    first.geometry()
    first.plane()
    affine = present(first.affine(), first.path, "a place in space")
    return upright_shape((first.shape[1], first.shape[0], count), affine, first.path)


def _interpolated(stored: np.ndarray, places: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(Z, H, W) at ascending `places` -> slices at `grid`, linear between the two nearest."""
    hu = np.empty((len(grid), *stored.shape[1:]), np.float32)
    above = np.clip(np.searchsorted(places, grid), 1, len(places) - 1)
    shares = np.clip((grid - places[above - 1]) / (places[above] - places[above - 1]), 0, 1)
    for z, (i, share) in enumerate(zip(above.tolist(), shares.tolist(), strict=True)):
        hu[z] = stored[i - 1] * (1 - share) + stored[i] * share
    return hu

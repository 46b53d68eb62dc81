"""DICOM slices and series: headers first, pixels only when asked for, and each defect told in one sentence.

A header costs well under a millisecond and a slice of pixels a hundred times more, so a folder of a hundred thousand
files is sorted and checked by headers, and only the slices that are wanted are decoded.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pydicom
from pydicom.errors import InvalidDicomError

from berdiff.data.paths import files_under
from berdiff.errors import InputError

SUFFIXES = (".dcm", ".dicom", ".ima")
SAME_POSITION = 1e-3  # mm: two slices nearer than this are at one place
# What pydicom raises, by experience, on files that are cut short, are not DICOM, or carry values that do not parse.
UNREADABLE = (
    InvalidDicomError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    struct.error,
)
_TAGS = [
    "PatientID",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "SOPInstanceUID",
    "InstanceNumber",
    "Modality",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
    "SliceThickness",
    "Rows",
    "Columns",
    "SamplesPerPixel",
    "NumberOfFrames",
]


@dataclass(frozen=True, slots=True)
class SliceHeader:
    """What one file says of its slice, without the pixels. Geometry a file does not state is None."""

    path: Path
    patient: str
    study_uid: str
    series_uid: str
    sop_uid: str
    instance: int
    modality: str
    shape: tuple[int, int]  # (rows, columns)
    frames: int
    channels: int
    spacing: tuple[float, float] | None  # mm a pixel, (row, column)
    position: tuple[float, float, float] | None  # mm, centre of the first pixel, in patient coordinates
    orientation: tuple[float, ...] | None  # direction cosines of a row and of a column
    thickness: float | None  # mm

    def check_plain(self) -> None:
        """Refuse what is no image, or more than one frame or channel."""
        if min(self.shape) <= 0:
            raise InputError(f"{self.path}: expected a DICOM image with Rows and Columns, found {_size(self)}")
        if self.frames != 1 or self.channels != 1:
            raise InputError(
                f"{self.path}: expected a DICOM image of one frame and one channel, "
                f"found {self.frames} frame(s) and {self.channels} channel(s)"
            )

    def geometry(self) -> tuple[tuple[float, float], tuple[float, float, float]]:
        """(spacing, position), or the sentence that says which tag is missing."""
        if self.spacing is None:
            raise InputError(f"{self.path}: expected the DICOM tag PixelSpacing, found none")
        if self.position is None:
            raise InputError(f"{self.path}: expected the DICOM tag ImagePositionPatient, found none")
        return self.spacing, self.position


@dataclass(frozen=True, eq=False)
class DicomVolume:
    """A whole series, slices in order along the normal of its plane."""

    hu: np.ndarray  # (Z, H, W) float32: Hounsfield units for a CT, rescaled values for any other modality
    spacing: tuple[float, float, float]  # mm, (slice, row, column)
    positions: np.ndarray  # (Z, 3) float64, mm: centre of each slice's first pixel, in patient coordinates
    orientation: tuple[float, ...]  # direction cosines of a row and of a column
    patient: str
    study_uid: str
    series_uid: str
    modality: str
    files: tuple[Path, ...]  # (Z,), in the order of the slices


def _numbers(
    data: pydicom.Dataset, path: Path, tag: str, count: int, positive: bool = False
) -> tuple[float, ...] | None:
    """The `count` finite numbers of a tag; None where the file has no such tag."""
    value = data.get(tag)
    if value is None or value == "":
        return None
    found = [value] if isinstance(value, (int, float, str)) else list(value)
    numbers = tuple(float(v) for v in found)
    if len(numbers) != count or not all(map(math.isfinite, numbers)) or (positive and min(numbers) <= 0):
        kind = "positive numbers" if positive else "finite numbers"
        raise InputError(f"{path}: expected {count} {kind} in the DICOM tag {tag}, found {value}")
    return numbers


def read_header(path: str | Path) -> SliceHeader:
    """The header of one DICOM object, image or not."""
    path = Path(path)
    try:
        data = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=_TAGS)
        numbers = {
            "spacing": _numbers(data, path, "PixelSpacing", 2, positive=True),
            "position": _numbers(data, path, "ImagePositionPatient", 3),
            "orientation": _numbers(data, path, "ImageOrientationPatient", 6),
            "thickness": _numbers(data, path, "SliceThickness", 1),
        }
        frames = int(data.get("NumberOfFrames") or 1)
        channels = int(data.get("SamplesPerPixel") or 1)
        instance = int(data.get("InstanceNumber") or 0)
        shape = (int(data.get("Rows") or 0), int(data.get("Columns") or 0))
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(f"{path}: expected a DICOM file, found one that cannot be read ({_short(error)})") from None
    if not data.get("SeriesInstanceUID"):
        raise InputError(f"{path}: expected the DICOM tag SeriesInstanceUID, found none")
    thickness = numbers["thickness"]
    return SliceHeader(
        path=path,
        patient=str(data.get("PatientID") or ""),
        study_uid=str(data.get("StudyInstanceUID") or ""),
        series_uid=str(data.SeriesInstanceUID),
        sop_uid=str(data.get("SOPInstanceUID") or ""),
        instance=instance,
        modality=str(data.get("Modality") or ""),
        shape=shape,
        frames=frames,
        channels=channels,
        spacing=numbers["spacing"],  # pyright: ignore[reportArgumentType]
        position=numbers["position"],  # pyright: ignore[reportArgumentType]
        orientation=numbers["orientation"],
        thickness=thickness[0] if thickness else None,
    )


def read_pixels(path: str | Path) -> np.ndarray:
    """(H, W) float32 rescaled values of one slice: Hounsfield units for a CT, which must say how to get them."""
    path = Path(path)
    try:
        data = pydicom.dcmread(path)
        stored = data.pixel_array
        ct = data.get("Modality") == "CT"
        slope, intercept = (_numbers(data, path, tag, 1) for tag in ("RescaleSlope", "RescaleIntercept"))
    except InputError:
        raise
    except UNREADABLE as error:
        raise InputError(
            f"{path}: expected whole DICOM pixel data, found data that cannot be read ({_short(error)})"
        ) from None
    if ct and (slope is None or intercept is None):
        missing = "RescaleSlope" if slope is None else "RescaleIntercept"
        raise InputError(
            f"{path}: expected the DICOM tag {missing}, without which a CT has no Hounsfield units, found none"
        )
    if stored.ndim != 2:
        raise InputError(f"{path}: expected a DICOM image of one frame and one channel, found shape {stored.shape}")
    return stored.astype(np.float32) * np.float32(slope[0] if slope else 1) + np.float32(
        intercept[0] if intercept else 0
    )


def dicom_files(folder: str | Path) -> Iterator[Path]:
    """Every DICOM file under a folder, at any depth, in a fixed order."""
    return filter(is_dicom, files_under(Path(folder)))


def is_dicom(path: Path) -> bool:
    """A file is taken for its suffix, or, without one, for the letters DICM at byte 128.

    An index file (DICOMDIR), XML, text and the like are left alone. A file with a DICOM suffix that is no DICOM is so
    found, and told, on reading.
    """
    if path.suffix.lower() in SUFFIXES:
        return True
    return path.name != "DICOMDIR" and not path.suffix[1:].isalpha() and _has_magic(path)


def headers_by_series(folder: str | Path, modality: str | None = None) -> dict[str, list[SliceHeader]]:
    """The headers of all DICOM images under a folder, by series UID: folder names play no part.

    With a modality ("CT"), whatever else the folder holds (radiographs, reports, segmentations) is left out.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            f"{folder}: expected a folder of DICOM files, found {'a file' if folder.exists() else 'nothing'}"
        )
    series: dict[str, list[SliceHeader]] = {}
    for path in dicom_files(folder):
        header = read_header(path)
        if modality in (None, header.modality):
            header.check_plain()
            series.setdefault(header.series_uid, []).append(header)
    if not series:
        raise InputError(f"{folder}: expected {modality or 'DICOM'} files in this folder, found none")
    return series


def read_series(folder: str | Path) -> DicomVolume:
    """The one series of a folder as a volume; the folder must hold no other series and no slice twice."""
    series = headers_by_series(folder)
    if len(series) > 1:
        raise InputError(f"{folder}: expected the slices of one DICOM series, found {len(series)} series")
    return read_volume(next(iter(series.values())))


def read_volume(headers: Sequence[SliceHeader]) -> DicomVolume:
    """The slices of one series, in any order, as a volume."""
    first = headers[0]
    spacing, _ = first.geometry()
    if first.orientation is None:
        raise InputError(f"{first.path}: expected the DICOM tag ImageOrientationPatient, found none")
    for header in headers:
        if header.shape != first.shape:
            raise InputError(
                f"{header.path}: expected {_size(first)} pixels as in {first.path.name}, found {_size(header)}"
            )
        if not np.allclose(header.geometry()[0], spacing, atol=1e-4):
            raise InputError(
                f"{header.path}: expected a PixelSpacing of {spacing} as in {first.path.name}, found {header.spacing}"
            )
        if header.orientation is None or not np.allclose(header.orientation, first.orientation, atol=1e-3):
            raise InputError(
                f"{header.path}: expected the ImageOrientationPatient {first.orientation} of {first.path.name}, "
                f"found {header.orientation}"
            )
    normal = np.cross(first.orientation[:3], first.orientation[3:])
    along = {id(h): float(np.dot(normal, h.geometry()[1])) for h in headers}
    ordered = sorted(headers, key=lambda h: along[id(h)])
    gaps = [along[id(b)] - along[id(a)] for a, b in pairwise(ordered)]
    for (a, b), gap in zip(pairwise(ordered), gaps, strict=True):
        if gap < SAME_POSITION:
            raise InputError(f"{b.path}: expected one file a slice, found the position of {a.path.name} again")
    between = float(np.median(gaps)) if gaps else (first.thickness or math.nan)
    return DicomVolume(
        hu=np.stack([read_pixels(h.path) for h in ordered]),
        spacing=(between, *spacing),
        positions=np.array([h.geometry()[1] for h in ordered]),
        orientation=first.orientation,
        patient=first.patient,
        study_uid=first.study_uid,
        series_uid=first.series_uid,
        modality=first.modality,
        files=tuple(h.path for h in ordered),
    )


def _size(header: SliceHeader) -> str:
    return f"{header.shape[0]} x {header.shape[1]}"


def _short(error: BaseException) -> str:
    """The first sentence of a library's message: the rest speaks to programmers."""
    return (str(error).split("\n")[0].split(". ")[0] or type(error).__name__)[:160]


def _has_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"

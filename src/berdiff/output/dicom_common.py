"""What all DICOM files of a result share: the images they refer to, whose they are, and UIDs that follow from masks.

Of a source image only the attributes listed here are taken over. Whatever else its header holds (institution,
physicians, descriptions, comments, private elements) cannot reach a file.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from berdiff import __version__
from berdiff.data.describe import decoding, expect, refusing
from berdiff.data.dicom import NEEDED, PERSONAL, STATED, quiet
from berdiff.inference.result import Result
from berdiff.output.captions import NOT_CLINICAL

if TYPE_CHECKING:
    from pydicom import Dataset
    from pydicom.sr.coding import Code

UIDS = NEEDED[:5]
REFERS = "which a DICOM output refers to (--write nifti needs none)"
REMOVED = "patient and study attributes left empty; UIDs kept"
# What the segments are of, in SNOMED CT: a word of the target's name -> (code, meaning). DICOM's context group 7159.
TYPES = {
    "edema": ("79654002", "Edema"),
    "necro": ("6574001", "Necrosis"),
    "nodule": ("27925004", "Nodule"),
    "tumour": ("108369006", "Neoplasm"),
    "tumor": ("108369006", "Neoplasm"),
    "cyst": ("441457006", "Cyst"),
}
LESION = ("52988006", "Lesion")
MAX_LABEL = 64  # characters, of the value representation LO


class DicomSource:
    """The DICOM images that a result is of, and how files derived from them are called."""

    def __init__(self, result: Result) -> None:
        self.result, self.anonymous = result, result.anonymous

    @cached_property
    def images(self) -> list["Dataset"]:
        """A small header per slice, in the order of `stored`: of one patient, study, series and frame of reference."""
        result = self.result
        paths = result.grid.source.paths
        headers = result.grid.source.headers
        images = [_reduced(*of, self.anonymous) for of in zip(paths, headers, strict=True)]
        slices = result.grid.source.shape[0] if result.volume else 1  # as stored: upright, it may be cut another way
        expect(slices == len(images), result.name, f"{slices} DICOM files, one per slice", len(images), "shape")
        first, like = images[0], f"as in {paths[0].name}"
        for path, image in zip(paths, images, strict=True):
            for tag in ("StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID", "PatientID"):
                same = image[tag].value == first[tag].value
                expect(same, path, f"the DICOM tag {tag} {like}", "another one", "conflict")
            # equal within rounding, as the reader has checked; highdicom wants the very same digits
            image["ImageOrientationPatient"] = first["ImageOrientationPatient"]
            image["PixelSpacing"] = first["PixelSpacing"]
            image.SliceThickness = self._thickness
        return images

    @cached_property
    def _thickness(self) -> str:
        """In mm: the slices' own where the first states it, else their distance."""
        from pydicom.valuerep import format_number_as_ds

        source = self.result.grid.source
        paths, ends = source.paths, (source.headers[0], source.headers[-1])
        if ends[0].get("SliceThickness"):
            return str(ends[0].SliceThickness)
        expect(len(paths) > 1, paths[0], f"the DICOM tag SliceThickness, {REFERS}", code="missing")
        first, last = (np.array(data.ImagePositionPatient, float) for data in ends)
        return format_number_as_ds(float(np.linalg.norm(last - first)) / (len(paths) - 1))

    def stored(self, arrays: np.ndarray) -> np.ndarray:
        """(m, [Z,] H, W) of the result -> (m, slices, rows, columns), the slices in the order of `images`."""
        stored = self.result.grid.to_stored(arrays)
        return stored if self.result.volume else stored[:, None]

    @cached_property
    def segmented(self) -> np.ndarray:
        """Places in `images` of the slices that were segmented, in part or whole."""
        inside = np.ones((1, *self.result.grid.shape), bool)
        return np.flatnonzero(self.stored(inside).any(axis=(0, 2, 3)))

    @cached_property
    def identity(self) -> str:
        """Of these samples of these images: writing them again makes the same objects, not new ones."""
        digest = hashlib.sha256()
        for part in _packed(self.result):
            digest.update(part)
        settings = json.dumps(dict(self.result.settings), sort_keys=True)
        for text in (__version__, settings, *(image.SOPInstanceUID for image in self.images)):
            digest.update(f"{text}\0".encode())
        return digest.hexdigest() + ("-anonymous" if self.anonymous else "")  # another header is another object

    def uid(self, *what: str) -> str:
        from pydicom.uid import generate_uid

        return str(generate_uid(entropy_srcs=[self.identity, *what]))

    def equipment(self, file: str, number: int) -> dict[str, Any]:
        """What the constructors of all kinds of objects want to know of the series and of its maker."""
        return {
            "series_instance_uid": self.uid(file, "series"),
            "series_number": number,
            "manufacturer": "berdiff",
            "manufacturer_model_name": "berdiff",
            "software_versions": __version__,
            "device_serial_number": "0",
            "series_description": f"berdiff {file}, {NOT_CLINICAL}",
        }

    @property
    def algorithm(self) -> str:
        return clean(f"berdiff {self.result.settings.get('model', '')}".strip())

    @contextmanager
    def building(self, what: str) -> Iterator[None]:
        """What highdicom refuses in headers that no check here knows becomes the one sentence of this input."""
        trouble = (ValueError, KeyError, TypeError, AttributeError)
        with quiet(), refusing(trouble, self.result.name, f"images that a {what} can refer to", "others"):
            yield

    def content(self, data: "Dataset") -> bytes:
        """The file of an object. Its own organisation of frames gets a UID that the next run gives too."""
        if self.anonymous:
            data.PatientIdentityRemoved, data.DeidentificationMethod = "YES", REMOVED
        organisation = self.uid(data.SOPInstanceUID, "dimensions")
        for item in (*data.get("DimensionOrganizationSequence", ()), *data.get("DimensionIndexSequence", ())):
            item.DimensionOrganizationUID = organisation
        buffer = io.BytesIO()
        with quiet():
            data.save_as(buffer)
        return buffer.getvalue()


def _packed(result: Result) -> Iterator[bytes]:
    """The bits of the pool on the whole image's grid, one after the other, as `np.packbits` would give them of all."""
    rest = np.zeros(0, np.uint8)
    for mask in result.pool.reshape(-1, *result.grid.shape):
        bits = np.concatenate([rest, result.whole(mask).ravel()])
        full = len(bits) // 8 * 8
        yield np.packbits(bits[:full]).tobytes()
        rest = bits[full:]
    yield np.packbits(rest).tobytes()


def clean(label: str) -> str:
    """As a DICOM string of at most 64 characters, in which a backslash would begin another value.

    Of a very long name the end is kept, which says what of it is meant.
    """
    printable = "".join(c if c.isprintable() else " " for c in label.replace("\\", "/"))
    return printable[-MAX_LABEL:].strip() or "?"


def property_type(target: str) -> "Code":
    """What a target is, by the words in its name."""
    from pydicom.sr.coding import Code

    code, meaning = next((found for word, found in TYPES.items() if word in target.lower()), LESION)
    return Code(code, "SCT", meaning)


def _reduced(path: Path, data: "Dataset", anonymous: bool) -> "Dataset":
    """The header of one source image with all that a derived object must take over from it, and nothing else."""
    from pydicom import Dataset

    kept = Dataset()
    with quiet(), decoding(path, "a DICOM header", "one with values that cannot be read"):
        for tag in NEEDED:
            expect(data.get(tag), path, f"the DICOM tag {tag}, {REFERS}", code="missing")
        for tag in UIDS:  # digits and dots: not all that real files hold is more proper than that
            value = str(data[tag].value)
            expect(re.fullmatch(r"[0-9.]{1,64}", value), path, f"a UID in the DICOM tag {tag}, {REFERS}", repr(value))
        known = data.SOPClassUID.name != data.SOPClassUID
        expect(known, path, f"a SOP class that DICOM defines, {REFERS}", f"the SOP class {data.SOPClassUID}")
        for tag in (*NEEDED, *STATED):
            if tag in data:
                kept[tag] = data[tag]
        for tag in PERSONAL:
            setattr(kept, tag, "" if anonymous else _valid(tag, data.get(tag)))
    kept.SpecificCharacterSet = "ISO_IR 192"  # UTF-8, whatever the source is written in: targets have any name
    kept.ReferringPhysicianName = ""  # may be empty, and is not needed
    return kept


def _valid(tag: str, value: Any) -> Any:
    """The value; empty where the standard has no such date, time or sex."""
    from pydicom.valuerep import DA, TM

    if tag == "PatientSex":
        return value if value in ("M", "F", "O") else ""
    checks: dict[str, Callable[[str], Any]] = {"PatientBirthDate": DA, "StudyDate": DA, "StudyTime": TM}
    try:
        checks.get(tag, str)(str(value or ""))
    except ValueError:
        return ""
    return value or ""

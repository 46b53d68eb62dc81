"""DICOM SEG: what a clinic's viewer shows over the very images that were segmented.

Two objects a result: a binary one with a segment for each contour and each representative (they overlap, which DICOM
allows), and a fractional one with the saliency as a probability.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from berdiff import __version__
from berdiff.errors import InputError
from berdiff.files import whole_file
from berdiff.inference.result import Result
from berdiff.inference.summary import Representative
from berdiff.inference.tiles import LEVEL_COLOURS, LEVELS, SAMPLE_COLOUR
from berdiff.inference.words import NOT_CLINICAL, percent

if TYPE_CHECKING:
    from highdicom.seg import SegmentDescription
    from pydicom import Dataset

NEEDED = ("SOPInstanceUID", "SOPClassUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
NEEDED_GEOMETRY = ("PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient")
# What the segments are of, in SNOMED CT: a word of the target's name -> (code, meaning). DICOM's context group 7159.
TYPES = {
    "nodule": ("27925004", "Nodule"),
    "tumour": ("108369006", "Neoplasm"),
    "tumor": ("108369006", "Neoplasm"),
    "cyst": ("441457006", "Cyst"),
}
LESION = ("52988006", "Lesion")
LONGEST_LABEL = 64  # characters, of the value representation LO


class Segment(NamedTuple):
    mask: np.ndarray  # ([Z,] H, W): 0 and 1, or a share
    target: str
    label: str
    colour: str


def write_dicom_seg(folder: Path, result: Result, representatives: Sequence[Representative]) -> list[Path]:
    """contours.seg.dcm and saliency.seg.dcm in `folder`; only for a result whose source is DICOM."""
    if result.source.kind != "dicom":
        raise InputError(
            f"{result.name}: expected a DICOM input for dicom-seg, which refers to it, found {result.source.kind}"
        )
    images = [_source(path) for path in result.source.paths]
    slices = result.source.shape[0] if result.volume else 1  # as stored: an upright volume may be cut another way
    if slices != len(images):
        raise InputError(f"{result.name}: expected {slices} DICOM files, one a slice, found {len(images)}")
    identity = _identity(result, images)
    drawn, shares = list(_binary(result, representatives)), list(_fractional(result))
    binary = _segmentation(result, images, drawn, "BINARY", identity)
    fractional = _segmentation(result, images, shares, "FRACTIONAL", identity)
    return [_written(folder / "contours.seg.dcm", binary), _written(folder / "saliency.seg.dcm", fractional)]


def _binary(result: Result, representatives: Sequence[Representative]) -> Iterator[Segment]:
    contours = result.contours(LEVELS)
    for k, target in enumerate(result.targets):
        for level, mask, colour in zip(LEVELS, contours[:, k], LEVEL_COLOURS, strict=True):
            yield Segment(mask, target, f"{target}: in at least {percent(level)} of samples", colour)
        for i, found in enumerate(representatives):
            label = f"{target}: representative {i + 1}, {percent(found.frequency)} of samples"
            yield Segment(found.mask[k], target, label, SAMPLE_COLOUR)


def _fractional(result: Result) -> Iterator[Segment]:
    for k, target in enumerate(result.targets):
        yield Segment(result.saliency[k], target, f"{target}: share of samples", SAMPLE_COLOUR)


def _segmentation(
    result: Result, images: list["Dataset"], segments: list[Segment], kind: str, identity: str
) -> "Dataset":
    from highdicom.seg import Segmentation

    stored = result.source.to_stored(np.stack([segment.mask for segment in segments]))
    stored = stored if result.volume else stored[:, None]  # (S, Z, H, W), the slices in the order of the files
    return Segmentation(
        source_images=images,
        pixel_array=np.ascontiguousarray(np.moveaxis(stored, 0, -1)),
        segmentation_type=kind,
        segment_descriptions=[_described(i + 1, of, result, identity) for i, of in enumerate(segments)],
        series_instance_uid=_uid(identity, kind, "series"),
        series_number=1 if kind == "BINARY" else 2,
        sop_instance_uid=_uid(identity, kind),
        instance_number=1,
        manufacturer="berdiff",
        manufacturer_model_name="berdiff",
        software_versions=__version__,
        device_serial_number="0",
        content_label="BERDIFF",
        content_description=f"{len(result.samples)} samples, {NOT_CLINICAL}",
        series_description=f"berdiff {kind.lower()}, {NOT_CLINICAL}",
    )


def _described(number: int, segment: Segment, result: Result, identity: str) -> "SegmentDescription":
    from highdicom import AlgorithmIdentificationSequence
    from highdicom.color import CIELabColor
    from highdicom.seg import SegmentDescription
    from pydicom.sr.codedict import codes
    from pydicom.sr.coding import Code

    code, meaning = next((found for word, found in TYPES.items() if word in segment.target.lower()), LESION)
    label = segment.label[-LONGEST_LABEL:]  # of a very long target name the end says what the segment is
    return SegmentDescription(
        segment_number=number,
        segment_label=label,
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
        segmented_property_type=Code(code, "SCT", meaning),
        algorithm_type="AUTOMATIC",
        algorithm_identification=AlgorithmIdentificationSequence(
            name=f"berdiff {result.settings.get('model', '')}".strip()[:LONGEST_LABEL],
            family=codes.DCM.ArtificialIntelligence,
            version=__version__,
        ),
        tracking_id=label,
        tracking_uid=_uid(identity, label),
        display_color=CIELabColor.from_string(segment.colour),
    )


def _source(path: Path) -> "Dataset":
    """The header of one source image, with all that a segmentation must take over from it."""
    from pydicom import dcmread

    from berdiff.data.dicom import UNREADABLE

    try:
        data = dcmread(path, stop_before_pixels=True)
    except UNREADABLE as error:
        raise InputError(f"{path}: expected a DICOM file, found one that cannot be read ({error})") from None
    missing = next((tag for tag in (*NEEDED, *NEEDED_GEOMETRY) if not data.get(tag)), None)
    if missing:
        raise InputError(f"{path}: expected the DICOM tag {missing}, which dicom-seg refers to, found none")
    return data


def _identity(result: Result, images: list["Dataset"]) -> str:
    """Of these samples of these images: so writing them again makes the same objects, not new ones."""
    parts = hashlib.sha256(np.packbits(result.samples).tobytes())
    for text in (__version__, json.dumps(dict(result.settings), sort_keys=True), *(i.SOPInstanceUID for i in images)):
        parts.update(f"{text}\0".encode())
    return parts.hexdigest()


def _uid(identity: str, *what: str) -> str:
    from pydicom.uid import generate_uid

    return str(generate_uid(entropy_srcs=[identity, *what]))


def _written(path: Path, data: Any) -> Path:
    with whole_file(path) as part:
        data.save_as(part)
    return path

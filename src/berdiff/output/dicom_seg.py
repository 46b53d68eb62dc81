"""DICOM SEG: what a clinic's viewer shows over the very images that were segmented.

Three objects per result: a binary one with a segment for each target, what most samples mark; a binary one with a
segment for each contour and each representative mask (they overlap, which DICOM allows); and a fractional one with the
saliency as a probability.
"""

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from berdiff import __version__
from berdiff.data.describe import expect, refusing
from berdiff.data.dicom import UNREADABLE
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import NOT_CLINICAL, percent
from berdiff.output.colours import LEVELS, level_colours, target_colours

if TYPE_CHECKING:
    from highdicom.seg import SegmentDescription
    from pydicom import Dataset

NEEDED = ("SOPInstanceUID", "SOPClassUID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
NEEDED += ("PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient")
# What DICOM wants in every file, if empty: some tools that remove names leave the tags out.
MAY_BE_EMPTY = ("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "AccessionNumber", "StudyID")
MAY_BE_EMPTY += ("StudyDate", "StudyTime", "ReferringPhysicianName")
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


class Segment(NamedTuple):
    mask: np.ndarray  # ([Z,] H, W): 0 and 1, or a share
    target: str
    label: str
    colour: str


def dicom_seg_files(result: Result, representatives: Sequence[Representative]) -> Iterator[tuple[str, bytes]]:
    """mask.seg.dcm, contours.seg.dcm and saliency.seg.dcm, by name, for a result whose source is DICOM."""
    images = [_source(path) for path in result.geometry.paths]
    slices = result.geometry.shape[0] if result.volume else 1  # as stored: an upright volume may be cut another way
    expect(slices == len(images), result.name, f"{slices} DICOM files, one per slice", len(images))
    # of these samples of these images: so writing them again makes the same objects, not new ones
    digest = hashlib.sha256(np.packbits(result.pool).tobytes())
    for text in (__version__, json.dumps(dict(result.settings), sort_keys=True), *(i.SOPInstanceUID for i in images)):
        digest.update(f"{text}\0".encode())
    identity = digest.hexdigest()
    colours = target_colours(len(result.targets))
    each = list(zip(result.majority(), result.saliency, result.targets, colours, strict=True))
    majority = [Segment(mask, name, name, colour) for mask, _, name, colour in each]
    shares = [Segment(share, name, f"{name}: share of samples", colour) for _, share, name, colour in each]
    contours = list(_contours(result, representatives))
    files = (("mask", "BINARY", majority), ("contours", "BINARY", contours), ("saliency", "FRACTIONAL", shares))
    for number, (file, kind, segments) in enumerate(files, 1):
        buffer = io.BytesIO()
        _segmentation(result, images, segments, kind, file, number, identity).save_as(buffer)
        yield f"{file}.seg.dcm", buffer.getvalue()


def _contours(result: Result, representatives: Sequence[Representative]) -> Iterator[Segment]:
    contours, count = result.contours(LEVELS), len(result.targets)
    for k, (target, colour) in enumerate(zip(result.targets, target_colours(count), strict=True)):
        for level, mask, shade in zip(LEVELS, contours[:, k], level_colours(k, count), strict=True):
            yield Segment(mask, target, f"{target}: in at least {percent(level)} of samples", shade)
        for i, found in enumerate(representatives, 1):
            label = f"{target}: representative {i}, {percent(found.frequency)} of samples"
            yield Segment(found.mask[k], target, label, colour)


def _segmentation(
    result: Result, images: list["Dataset"], segments: list[Segment], kind: str, file: str, number: int, identity: str
) -> "Dataset":
    from highdicom.seg import Segmentation

    stored = result.geometry.to_stored(np.stack([segment.mask for segment in segments]))
    stored = stored if result.volume else stored[:, None]  # (S, Z, H, W), the slices in the order of the files
    return Segmentation(
        source_images=images,
        pixel_array=np.ascontiguousarray(np.moveaxis(stored, 0, -1)),
        segmentation_type=kind,
        segment_descriptions=[_description(i + 1, of, result, identity) for i, of in enumerate(segments)],
        series_instance_uid=_uid(identity, file, "series"),
        series_number=number,
        sop_instance_uid=_uid(identity, file),
        instance_number=1,
        manufacturer="berdiff",
        manufacturer_model_name="berdiff",
        software_versions=__version__,
        device_serial_number="0",
        content_label="BERDIFF",
        content_description=f"{len(result.pool)} samples, {NOT_CLINICAL}",
        series_description=f"berdiff {file}, {NOT_CLINICAL}",
    )


def _description(number: int, segment: Segment, result: Result, identity: str) -> "SegmentDescription":
    from highdicom import AlgorithmIdentificationSequence
    from highdicom.color import CIELabColor
    from highdicom.seg import SegmentDescription
    from pydicom.sr.codedict import codes
    from pydicom.sr.coding import Code

    code, meaning = next((found for word, found in TYPES.items() if word in segment.target.lower()), LESION)
    label = segment.label[-MAX_LABEL:]  # of a very long target name the end names the segment
    return SegmentDescription(
        segment_number=number,
        segment_label=label,
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
        segmented_property_type=Code(code, "SCT", meaning),
        algorithm_type="AUTOMATIC",
        algorithm_identification=AlgorithmIdentificationSequence(
            name=f"berdiff {result.settings.get('model', '')}".strip()[:MAX_LABEL],
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

    with refusing(UNREADABLE, path, "a DICOM file", "one that cannot be read"):
        data = dcmread(path, stop_before_pixels=True)
    for tag in NEEDED:
        expect(data.get(tag), path, f"the DICOM tag {tag}, which dicom-seg refers to")
    for tag in MAY_BE_EMPTY:
        if tag not in data:
            setattr(data, tag, "")
    return data


def _uid(identity: str, *what: str) -> str:
    from pydicom.uid import generate_uid

    return str(generate_uid(entropy_srcs=[identity, *what]))

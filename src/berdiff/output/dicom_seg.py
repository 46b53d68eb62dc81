"""DICOM SEG: what a clinic's viewer shows over the very images that were segmented.

Three objects per result: a binary one with a segment for each target, what most samples mark; a binary one with a
segment for each contour and each representative mask (they overlap, which DICOM allows); and a fractional one with the
saliency as a probability.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from berdiff import __version__
from berdiff.inference.representatives import Representative
from berdiff.output.captions import NOT_CLINICAL, percent
from berdiff.output.colours import LEVELS, level_colours, target_colours
from berdiff.output.dicom_common import DicomSource, clean, property_type
from berdiff.output.formats import Files, Output

if TYPE_CHECKING:
    from highdicom.seg import Segmentation, SegmentDescription


class Segment(NamedTuple):
    mask: np.ndarray  # ([Z,] H, W): 0 and 1, or a share
    target: str
    label: str
    colour: str


def dicom_seg_files(output: Output) -> Files:
    """mask.seg.dcm, contours.seg.dcm and saliency.seg.dcm, by name."""
    source, result = output.dicom, output.result
    yield "mask.seg.dcm", source.content(mask_segmentation(source))
    contours = list(_contours(source, output.representatives))
    yield "contours.seg.dcm", source.content(_segmentation(source, contours, "BINARY", "contours", 2))
    each = zip(result.saliency, result.targets, target_colours(len(result.targets)), strict=True)
    shares = [Segment(share, name, f"{name}: share of samples", colour) for share, name, colour in each]
    yield "saliency.seg.dcm", source.content(_segmentation(source, shares, "FRACTIONAL", "saliency", 3))


def mask_segmentation(source: DicomSource) -> "Segmentation":
    """What mask.seg.dcm holds: the majority, a segment per target in their order."""
    result = source.result
    each = zip(result.majority(), result.targets, target_colours(len(result.targets)), strict=True)
    majority = [Segment(mask, name, name, colour) for mask, name, colour in each]
    return _segmentation(source, majority, "BINARY", "mask", 1)


def _contours(source: DicomSource, representatives: Sequence[Representative]) -> Iterator[Segment]:
    result = source.result
    contours, count = result.contours(LEVELS), len(result.targets)
    for k, (target, colour) in enumerate(zip(result.targets, target_colours(count), strict=True)):
        for level, mask, shade in zip(LEVELS, contours[:, k], level_colours(k, count), strict=True):
            yield Segment(mask, target, f"{target}: in more than {percent(level)} of samples", shade)
        for i, found in enumerate(representatives, 1):
            label = f"{target}: representative {i}, {percent(found.frequency)} of samples"
            yield Segment(found.mask[k], target, label, colour)


def _segmentation(source: DicomSource, segments: list[Segment], kind: str, file: str, number: int) -> "Segmentation":
    from highdicom.seg import Segmentation

    stored = source.stored(np.stack([segment.mask for segment in segments]))
    labels = [segment.label for segment in segments]  # more or fewer representatives make another object
    images = source.images
    with source.building("DICOM SEG"):
        return Segmentation(
            source_images=images,
            pixel_array=np.ascontiguousarray(np.moveaxis(stored, 0, -1)),
            segmentation_type=kind,
            segment_descriptions=[_description(source, i, of) for i, of in enumerate(segments, 1)],
            sop_instance_uid=source.uid(file, *labels),
            instance_number=1,
            omit_empty_frames=bool(stored.any()),  # what highdicom does then anyway, with a warning
            content_label="BERDIFF",
            content_description=f"{len(source.result.pool)} samples, {NOT_CLINICAL}",
            **source.equipment(file, number),
        )


def _description(source: DicomSource, number: int, segment: Segment) -> "SegmentDescription":
    from highdicom import AlgorithmIdentificationSequence
    from highdicom.color import CIELabColor
    from highdicom.seg import SegmentDescription
    from pydicom.sr.codedict import codes

    label = clean(segment.label)
    return SegmentDescription(
        segment_number=number,
        segment_label=label,
        segmented_property_category=codes.SCT.MorphologicallyAbnormalStructure,
        segmented_property_type=property_type(segment.target),
        algorithm_type="AUTOMATIC",
        algorithm_identification=AlgorithmIdentificationSequence(
            name=source.algorithm, family=codes.DCM.ArtificialIntelligence, version=__version__
        ),
        tracking_id=label,
        tracking_uid=source.uid(str(number), segment.label),
        display_color=CIELabColor.from_string(segment.colour),
    )

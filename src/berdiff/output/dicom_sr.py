"""DICOM SR: the measurements as a report that viewers, archives and registries read (template TID 1500).

A group per target refers to its segment of mask.seg.dcm, which is written beside it. It holds the shares of samples
that mark something and nothing; area or volume and longest diameter, each as the median and the 5 and 95 % quantiles
among the samples that mark it; and of a volume how many mm along z were segmented. DICOM has no codes for the shares.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from berdiff import __version__
from berdiff.output.captions import MARKED_BY, MARKED_MEANS, NOT_CLINICAL
from berdiff.output.dicom_common import DicomSource, clean, property_type
from berdiff.output.dicom_seg import mask_segmentation
from berdiff.output.formats import Files, Output

if TYPE_CHECKING:
    from highdicom.seg import Segmentation
    from highdicom.sr import AlgorithmIdentification, Measurement
    from pydicom import Dataset

SERIES = 5  # after DICOM SEG and the map
LIBRARY = ("CT", "MR", "PT")  # modalities of which highdicom describes the images in the report's library
SHARES = {
    "finding_probability": ("marked-by", "Share of simulated readers who would mark something here"),
    "empty_share": ("marks-nothing", "Share of simulated readers who would mark nothing here"),
}
EXTENT = ("extent-z", "99BERDIFF", "Length along the slices that was segmented")
# of the measurements' units: UCUM's code and how it is called
UNITS = {
    "mm": ("mm", "millimeter"),
    "mm^2": ("mm2", "square millimeter"),
    "mm^3": ("mm3", "cubic millimeter"),
    "px": ("{pixels}", "pixels"),
    "px^2": ("{pixels}", "pixels"),
    "voxel": ("{voxels}", "voxels"),
}


def dicom_sr_files(output: Output) -> Files:
    """mask.seg.dcm and measurements.sr.dcm."""
    source = output.dicom
    segmentation = mask_segmentation(source)
    report = _report(source, segmentation)
    yield "mask.seg.dcm", source.content(segmentation)
    yield "measurements.sr.dcm", source.content(report)


def _report(source: DicomSource, segmentation: "Segmentation") -> "Dataset":
    from highdicom import sr
    from pydicom.sr.codedict import codes
    from pydicom.uid import generate_uid

    device = sr.DeviceObserverIdentifyingAttributes(
        uid=str(generate_uid(entropy_srcs=["berdiff", __version__])),
        name="berdiff",
        manufacturer_name="berdiff",
        model_name=f"berdiff {__version__}",
    )
    observer = sr.ObserverContext(codes.DCM.Device, device)
    marked = source.stored(source.result.saliency > 0).any(axis=(0, 2, 3))
    shown = np.flatnonzero(marked) if marked.any() else source.segmented
    images = [source.images[z] for z in shown]
    with source.building("DICOM SR"):
        content = sr.MeasurementReport(
            observation_context=sr.ObservationContext(observer_device_context=observer),
            procedure_reported=codes.SCT.ImagingProcedure,
            imaging_measurements=[_group(source, segmentation, k, images) for k in range(len(source.result.targets))],
            title=codes.DCM.ImagingMeasurementReport,
            referenced_images=images if images[0].get("Modality") in LIBRARY else None,
        )
        return sr.Comprehensive3DSR(
            evidence=[*images, segmentation],
            content=content,
            sop_instance_uid=source.uid("measurements"),
            instance_number=1,
            is_complete=True,
            **source.equipment("measurements", SERIES),
        )


def _group(source: DicomSource, segmentation: "Segmentation", k: int, images: list["Dataset"]) -> Any:
    """What was measured of target k: of its segment, or where the majority marks nothing, of the images."""
    from highdicom import sr
    from pydicom.sr.codedict import codes

    result = source.result
    description = segmentation.SegmentSequence[k]
    about = {
        "tracking_identifier": sr.TrackingIdentifier(description.TrackingUID, description.TrackingID),
        "finding_type": property_type(result.targets[k]),
        "finding_category": codes.SCT.MorphologicallyAbnormalStructure,
        "algorithm_id": _algorithm(source),
        "measurements": list(_measurements(result.measurements()[result.targets[k]])),
    }
    majority = result.majority()
    on = source.stored(majority[k, None]).any(axis=(0, 2, 3))  # the slices that the segment is on
    if not on.any():
        of = [sr.SourceImageForMeasurementGroup(*_uids(image)) for image in images]
        return sr.MeasurementsAndQualitativeEvaluations(source_images=of, **about)
    of = [sr.SourceImageForSegmentation(*_uids(source.images[z])) for z in np.flatnonzero(on)]
    if result.volume and (not result.one_slice or len(of) > 1):  # an upright slice may run across the stored ones
        segment = sr.ReferencedSegment(*_uids(segmentation), segment_number=k + 1, source_images=of)
        return sr.VolumetricROIMeasurementsAndQualitativeEvaluations(referenced_segment=segment, **about)
    number = sum(bool(mask.any()) for mask in majority[: k + 1])  # an empty segment has no frame
    frame = sr.ReferencedSegmentationFrame(*_uids(segmentation), number, k + 1, of[0])
    del frame[0].ReferencedSOPSequence[0].ReferencedSegmentNumber  # DICOM forbids it beside the number of a frame
    return sr.PlanarROIMeasurementsAndQualitativeEvaluations(referenced_segment=frame, **about)


def _uids(data: "Dataset") -> tuple[str, str]:
    return data.SOPClassUID, data.SOPInstanceUID


def _algorithm(source: DicomSource) -> "AlgorithmIdentification":
    from highdicom import sr
    from pydicom.sr.codedict import codes

    settings = source.result.settings
    parameters = [f"samples: {len(source.result.pool)}", NOT_CLINICAL]
    parameters += [f"{name}: {settings[name]}" for name in ("seed", "weights_sha256") if name in settings]
    parameters = [clean(text) for text in parameters]
    parameters += ["".join(c if c.isprintable() else " " for c in f"warning: {of}") for of in source.result.warnings]
    return sr.AlgorithmIdentification(
        name=source.algorithm,
        version=__version__,
        parameters=[*parameters, f"{MARKED_BY}: {MARKED_MEANS}"],
        family=codes.DCM.ArtificialIntelligence,
    )


def _measurements(measured: dict[str, Any]) -> Iterator["Measurement"]:
    from highdicom.sr import CodedConcept, Measurement
    from pydicom.sr.codedict import codes

    names = {"area": codes.SCT.Area, "volume": codes.SCT.Volume, "longest_diameter": codes.SCT.LongAxis}
    quantiles = {
        "q50": codes.SCT.Median,
        "q05": CodedConcept("371888009", "SCT", "5th percentile"),
        "q95": CodedConcept("371889001", "SCT", "95th percentile"),
    }
    own = {name: CodedConcept(code, "99BERDIFF", meaning) for name, (code, meaning) in SHARES.items()}
    for name, concept in own.items():
        yield Measurement(concept, 100 * measured[name], CodedConcept("%", "UCUM", "Percent"))
    if (mm := measured.get("extent_mm")) is not None:
        yield Measurement(CodedConcept(*EXTENT), mm, CodedConcept("mm", "UCUM", "millimeter"))
    among = CodedConcept("marking", "99BERDIFF", "Among the samples that mark something")
    for name, concept in names.items():
        of = measured.get(name)
        if of and of["q50"] is not None:
            code, meaning = UNITS[of["unit"]]
            unit = CodedConcept(code, "UCUM", meaning)
            for quantile, derivation in quantiles.items():
                yield Measurement(concept, of[quantile], unit, derivation=derivation, method=among)

"""DICOM Parametric Map: the saliency as numbers on the source's own slices, for viewers that colour and probe maps.

One object per target with 32-bit floats and one mapping of values, the form that viewers read: a map of several
quantities, or of scaled integers, is lost on most of them. Frames are the slices that were segmented, no others: what
nobody looked at has no probability of 0.
"""

from typing import TYPE_CHECKING

import numpy as np

from berdiff.output.captions import NOT_CLINICAL
from berdiff.output.dicom_common import DicomSource, clean
from berdiff.output.formats import Files, Output
from berdiff.output.overlay_files import by_target

if TYPE_CHECKING:
    from pydicom import Dataset

SERIES = 4  # after the three of DICOM SEG


def dicom_pm_files(output: Output) -> Files:
    """saliency.pm.dcm, of several targets saliency-TARGET.pm.dcm: instances of one series."""
    source, result = output.dicom, output.result
    for k, name in enumerate(by_target(result.targets, "saliency")):
        shares = source.stored(result.saliency[k, None])[0, source.segmented]
        yield f"{name}.pm.dcm", source.content(_map(source, shares, k))


def _map(source: DicomSource, shares: np.ndarray, k: int) -> "Dataset":
    """The shares (slices, rows, columns) of target k."""
    from highdicom import VOILUTTransformation
    from highdicom.pm import ParametricMap, RealWorldValueMapping
    from pydicom.sr.codedict import codes

    target = source.result.targets[k]
    mapping = RealWorldValueMapping(
        lut_label="SALIENCY",
        lut_explanation=clean(f"{target}: share of samples that mark a pixel"),
        unit=codes.UCUM.NoUnits,
        value_range=(0.0, 1.0),
        slope=1,
        intercept=0,
        quantity_definition=codes.DCM.FractionalProbabilisticSegmentation,
    )
    # exact: with the plain linear function a window of width 1 would be a threshold
    window = VOILUTTransformation(window_center=0.5, window_width=1.0, voi_lut_function="LINEAR_EXACT")
    images = [source.images[z] for z in source.segmented]
    with source.building("DICOM Parametric Map"):
        data = ParametricMap(
            source_images=images,
            pixel_array=np.ascontiguousarray(shares, np.float32),
            sop_instance_uid=source.uid("saliency map", str(k)),
            instance_number=k + 1,
            contains_recognizable_visual_features=False,
            real_world_value_mappings=[mapping],
            voi_lut_transformations=[window],
            content_label="SALIENCY",
            content_description=clean(f"{target}, {len(source.result.pool)} samples, {NOT_CLINICAL}"),
            **source.equipment("saliency map", SERIES),
        )
        data.Laterality = ""  # of which side is not known here, and must be stated so
        return data

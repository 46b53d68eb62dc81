"""What can be written of a result, and where to. No torch here: the command line reads it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from annotated_types import Ge

from berdiff.remote import is_remote
from berdiff.schema import Settings

# name on the command line -> what is written. Arrays are PNG for a 2D image and NIfTI for a volume.
KINDS = {
    "samples": "each of the masks",
    "saliency": "the share of the samples that mark a pixel",
    "variance": "the variance over the samples",
    "mask": "what more than half of the samples mark; of exclusive targets the likeliest",
    "contours": "what more than 25, 50 and 75 % of the samples mark",
    "representatives": "the representative masks, with their frequencies",
    "json": "measurements, frequencies, settings and source",
    "csv": "measurements, one line per target",
    "overlay": "the contours over the image, and several targets together",
    "panel": "everything in one picture",
    "nifti": "all of the masks and maps as NIfTI, where the source lies",
    "dicom-seg": "DICOM SEG that refers to the source images (DICOM inputs)",
    "dicom-pm": "DICOM Parametric Map of the saliency, one per target (DICOM inputs)",
    "dicom-sr": "DICOM SR with the measurements, and the DICOM SEG that it refers to (DICOM inputs)",
    "report": "a page for the browser, all in one file",
    "viewer": "a page to look through image, masks and slices in, all in one file",
}
DEFAULT_KINDS = {
    "dicom": ("dicom-seg", "dicom-pm", "dicom-sr", "json", "overlay"),
    "nifti": ("nifti", "json", "overlay"),
    "volume": ("nifti", "json", "overlay"),
    "image": ("samples", "saliency", "mask", "representatives", "json", "overlay"),
}
if TYPE_CHECKING:
    Kind = str
else:
    Kind = tyro.extras.literal_type_from_choices(KINDS)
_LIST = "\n".join(f"- {kind}: {words}" for kind, words in KINDS.items())
_HELP = f"what to write; default: by the kind of input\n{_LIST}"
_OUT = tyro.constructors.PrimitiveConstructorSpec(  # not Path: it would take s3://bucket for s3:/bucket
    nargs=1,
    metavar="DIR",
    instance_from_str=lambda texts: texts[0] if is_remote(texts[0]) else Path(texts[0]),
    is_instance=lambda value: isinstance(value, Path | str),
    str_from_instance=lambda value: [str(value)],
)


@dataclass(frozen=True)
class OutputSettings(Settings):
    """What is written, and where to."""

    out: Annotated[Path | str, _OUT]
    """folder for the results, in which every input gets a folder of its own; or an address such as s3://bucket/results"""
    write: Annotated[tuple[Kind, ...] | None, tyro.conf.arg(metavar="KIND ...", help=_HELP)] = None
    representatives: Annotated[int, Ge(1)] = 3
    """number of representative masks, each with the share of all samples that are nearest to it"""
    anonymous: bool = False
    """leave out who the patient is, and the names and paths of the inputs, in all files and names of files"""

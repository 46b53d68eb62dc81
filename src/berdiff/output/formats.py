"""The formats of results, in one table, and where they are written to. No torch here: the command line reads it.

What `--write` takes, its help, `Result.save` and the pages that list files all follow from `FORMATS`. Other packages
join by the entry point `berdiff.formats` (docs/extending.md).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from annotated_types import Ge

from berdiff.plugins import Registry
from berdiff.remote import is_remote
from berdiff.schema import Settings

if TYPE_CHECKING:
    from berdiff.inference.representatives import Representative
    from berdiff.inference.result import Result
    from berdiff.output.dicom_common import DicomSource

Files = Iterator[tuple[str, bytes]]  # (name, content)


@dataclass(frozen=True, eq=False)
class Output:
    """What a format writes."""

    result: "Result"
    representatives: "Sequence[Representative]"
    nifti: bool = False  # of a 2D image too, masks and maps are NIfTI

    @cached_property
    def dicom(self) -> "DicomSource":
        """The DICOM images that the result is of; read once for all formats."""
        from berdiff.output.dicom_common import DicomSource

        return DicomSource(self.result)


@dataclass(frozen=True)
class Format:
    """One word of `--write`."""

    what: str  # is written, for the help
    write: Callable[[Output], Files]
    needs: Literal["", "dicom"] = ""  # dicom: images that the files refer to
    ending: str = ""  # of the name of a file, for `Result.save` to write this format alone


def _later(module: str, function: str, *arguments: Any) -> Callable[[Output], Files]:
    """A function that is imported on use, of a module beside this or one by its full name."""
    module = module if "." in module else f"berdiff.output.{module}"
    return lambda output: getattr(import_module(module), function)(output, *arguments)


def _arrays(name: str, what: str, ending: str = "") -> tuple[str, Format]:
    return name, Format(what, _later("exports", "array_files", name), ending=ending)


# Masks and maps are PNG for a 2D image and NIfTI for a volume.
FORMATS = dict(
    [
        _arrays("samples", "each of the masks"),
        _arrays("saliency", "the share of the samples that mark a pixel"),
        _arrays("variance", "the variance over the samples"),
        _arrays("mask", "what more than half of the samples mark; of exclusive targets the likeliest", ".nii.gz"),
        _arrays("contours", "what more than 25, 50 and 75 % of the samples mark"),
        _arrays("representatives", "the representative masks, with their frequencies"),
    ]
)
FORMATS |= {
    "json": Format("measurements, frequencies, settings and source", _later("exports", "json_file"), ending=".json"),
    "csv": Format("measurements, one line per target", _later("exports", "csv_file")),
    "npz": Format("image, masks and saliency as arrays of NumPy", _later("exports", "npz_file"), ending=".npz"),
    "overlay": Format("the contours over the image, all targets too", _later("overlay_files", "overlay_files")),
    "panel": Format("everything in one picture", _later("panels", "panel_file"), ending=".png"),
    "nifti": Format("all of the masks and maps as NIfTI, where the source lies", _later("exports", "nifti_files")),
    "dicom-seg": Format("DICOM SEG that refers to the images", _later("dicom_seg", "dicom_seg_files"), "dicom"),
    "dicom-pm": Format("DICOM Parametric Maps of the saliency", _later("dicom_pm", "dicom_pm_files"), "dicom"),
    "dicom-sr": Format("DICOM SR of the measurements, and its SEG", _later("dicom_sr", "dicom_sr_files"), "dicom"),
    "report": Format("a page for the browser, all in one file", _later("html_report", "report_file"), ending=".html"),
    "viewer": Format("a page to look through image and masks in", _later("berdiff_viewer.page", "viewer_file")),
}
ARRAYS = ("saliency", "variance", "contours", "mask", "representatives", "samples")  # what `nifti` has
DEFAULTS = {
    "dicom": ("dicom-seg", "dicom-pm", "dicom-sr", "json", "overlay"),
    "nifti": ("nifti", "json", "overlay"),
    "volume": ("nifti", "json", "overlay"),
    "image": ("samples", "saliency", "mask", "representatives", "json", "overlay"),
}
_PLUGINS = Registry("berdiff.formats", {})


def names() -> list[str]:
    """All formats, ours first."""
    return list(dict.fromkeys([*FORMATS, *_PLUGINS.names()]))


def format_of(name: str) -> Format:
    """One of `names`; ours come first."""
    return FORMATS.get(name) or _PLUGINS.load(name)


if TYPE_CHECKING:
    Name = str
else:
    Name = tyro.extras.literal_type_from_choices(names())
_LIST = "\n".join(
    f"- {name}: {of.what}{' (DICOM inputs)' * (of.needs == 'dicom')}" if (of := FORMATS.get(name)) else f"- {name}"
    for name in names()
)
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
    write: Annotated[tuple[Name, ...] | None, tyro.conf.arg(metavar="FORMAT ...", help=_HELP)] = None
    representatives: Annotated[int, Ge(1)] = 3
    """number of representative masks, each with the share of all samples that are nearest to it"""
    anonymous: bool = False
    """leave out who the patient is, and the names and paths of the inputs, in all files and names of files"""

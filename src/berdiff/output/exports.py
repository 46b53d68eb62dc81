"""A result as files. `write` is the one door: each kind of `kinds.KINDS` makes files by name, written here, whole."""

import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from berdiff import __version__, schema
from berdiff.data.csv_table import csv_text
from berdiff.data.describe import expect
from berdiff.errors import as_keywords
from berdiff.files import whole_file, whole_folder
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.anonymous import without_identity
from berdiff.output.captions import SIZES, notes, percent
from berdiff.output.colours import LEVELS
from berdiff.output.dicom_common import DicomSource
from berdiff.output.dicom_pm import dicom_pm_files
from berdiff.output.dicom_seg import dicom_seg_files
from berdiff.output.dicom_sr import dicom_sr_files
from berdiff.output.html_report import ReportEntry, page
from berdiff.output.kinds import DEFAULT_KINDS, KINDS
from berdiff.output.label_files import label_meaning, palette_picture
from berdiff.output.nifti import nifti_bytes
from berdiff.output.overlay_files import Files, by_target, overlay_files
from berdiff.output.panels import png_bytes, result_panel
from berdiff.output.tiles import MAX_VARIANCE, picture_bytes
from berdiff.targets.targets import label_map

Representatives = Sequence[Representative]
Arrays = Iterator[tuple[str, np.ndarray]]  # (name without suffix, masks in uint8 or a map in float32)


def write(
    result: Result,
    folder: str | Path,
    kinds: Sequence[str] = (),
    representatives: int = 3,
    anonymous: bool = False,
) -> list[Path]:
    """Write the `kinds` (none: by the kind of input) into `folder`, each file whole or not at all, and return them in
    order of writing. `anonymous`: without patient, names and paths of the source, as `output/anonymous.py` has it."""
    source = result.geometry.kind
    if result.geometry.resampled:  # its slices are not those that DICOM could refer to
        source = "nifti"
    kinds = kinds or DEFAULT_KINDS.get(source) or DEFAULT_KINDS["volume" if result.volume else "image"]
    for kind in kinds:
        expect(kind in KINDS, "--write", f"some of {', '.join(KINDS)}", repr(kind))
        refers = kind not in DICOM_MAKERS or source == "dicom"
        found = "a series with gaps" if result.geometry.resampled else source
        expect(refers, result.name, f"a DICOM input for {kind}, which refers to it", found)
    chosen = result.representatives(representatives)
    dicom = DicomSource(result, anonymous)
    result = without_identity(result) if anonymous else result
    written: dict[Path, None] = {}
    for kind in kinds:
        files = DICOM_MAKERS[kind](dicom, chosen) if kind in DICOM_MAKERS else MAKERS[kind](result, chosen)
        for name, content in files:
            path = Path(folder) / name
            if path not in written:
                with whole_file(path) as part:
                    part.write_bytes(content)
                written[path] = None
    return list(written)


# --- masks and maps --------------------------------------------------------------------------------------------------


def _arrays(kind: str, result: Result, chosen: Representatives, nifti: bool) -> Arrays:
    """(name, (K, [Z,] H, W)) of one kind; the samples are a file each, or as NIfTI one (K, n, [Z,] H, W)."""
    match kind:
        case "samples" if nifti:
            yield "samples", result.samples.swapaxes(0, 1)
        case "samples":
            digits = len(str(len(result.samples)))
            yield from ((f"samples/sample-{i:0{digits}d}", sample) for i, sample in enumerate(result.samples, 1))
        case "contours":
            yield from zip((f"contour-{100 * level:.0f}pct" for level in LEVELS), result.contours(LEVELS), strict=True)
        case "representatives":
            yield from ((_representative_name(i, found), found.mask) for i, found in enumerate(chosen, 1))
        case "mask":
            yield "mask", result.majority()
        case _:
            yield kind, getattr(result, kind)  # saliency, variance


def _representative_name(number: int, found: Representative) -> str:
    return f"representative-{number}-{percent(found.frequency).replace(' %', 'pct')}"


def array_files(kind: str, result: Result, chosen: Representatives, nifti: bool = False) -> Files:
    """PNG of a 2D image: a mask as 0 and 255, a share as 0 to 255, a variance so that 255 is the largest there is.

    Masks of targets that fit into one label map are label maps, in PNG with the targets' colours as palette.
    """
    nifti, labels = nifti or result.volume, kind in MASKS and result.one_map
    meaning = schema.dump(label_meaning(result.targets, result.kind)) if labels else ""
    brightest = MAX_VARIANCE if kind == "variance" else 1
    for stem, masks in _arrays(kind, result, chosen, nifti):
        each = [(stem, label_map(masks))] if labels else zip(by_target(result.targets, stem), masks, strict=True)
        for name, array in each:
            if nifti:
                yield f"{name}.nii.gz", nifti_bytes(array, result, meaning)
            elif labels:
                yield f"{name}.png", picture_bytes(palette_picture(array, len(result.targets)))
            else:
                pixels = np.rint(array / brightest * np.float32(255)).astype(np.uint8)
                yield f"{name}.png", picture_bytes(Image.fromarray(pixels))
    if labels:
        yield "labels.json", meaning.encode()


# --- what people read ------------------------------------------------------------------------------------------------


def facts(result: Result, chosen: Representatives) -> dict[str, Any]:
    """What result.json holds: an unknown spacing is null."""
    geometry = result.geometry
    return {
        "berdiff": __version__,
        "name": result.name,
        "title": result.title or None,
        "details": dict(result.details),
        "warnings": list(result.warnings),
        "source": {"kind": geometry.kind, "files": geometry.addresses or [str(path) for path in geometry.paths]},
        "settings": dict(result.settings),
        "targets": result.targets,
        "kind": result.kind,
        "labels": label_meaning(result.targets, result.kind)["labels"] if result.one_map else None,
        "shape": result.pool.shape[2:],
        "spacing_mm": [float(mm) if np.isfinite(mm) else None for mm in result.spacing],
        "region": result.roi,
        "set": result.settings.get("set", "independent"),
        "samples": len(result.samples),
        "pool": len(result.pool),
        "chosen": None if result.chosen is None else [place + 1 for place in result.chosen],
        "measurements": result.measurements(),
        "representatives": [
            {"name": _representative_name(i, found), "frequency": found.frequency, "sample": found.index + 1}
            for i, found in enumerate(chosen, 1)
        ],
        "contours": LEVELS,
        "notes": notes(result),
    }


def _measurements(result: Result) -> str:
    """One line per target; the lines of several inputs fit below each other."""
    measured = result.measurements()
    sizes = [name for name in SIZES if name in measured[result.targets[0]]]
    parts = ("unit", "q05", "q50", "q95")
    shares = ["finding_probability", "empty_share"]
    shares += ["extent_mm"] if "extent_mm" in measured[result.targets[0]] else []
    rows: list[list[Any]] = [["input", "target", *shares, *(f"{size}_{part}" for size in sizes for part in parts)]]
    for target, of in measured.items():
        values = [*(of[name] for name in shares), *(of[size][part] for size in sizes for part in parts)]
        rows.append([result.name, target, *values])
    return csv_text(rows)


def _report(result: Result, chosen: Representatives) -> bytes:
    return page(f"berdiff: {result.shown_name}", [ReportEntry(result, chosen)]).encode()


def _viewer(result: Result, chosen: Representatives) -> bytes:
    """By name and on use: the viewer is a package of its own, which imports this one."""
    return import_module("berdiff_viewer.page").result_page(result, chosen).encode()


def _file(name: str, content: Callable[[Result, Representatives], bytes]) -> Callable[[Result, Representatives], Files]:
    return lambda result, chosen: iter([(name, content(result, chosen))])


MASKS = ("mask", "representatives", "samples")
ARRAYS = ("saliency", "variance", "contours", *MASKS)
MAKERS: dict[str, Callable[[Result, Representatives], Files]] = {
    **{kind: partial(array_files, kind) for kind in ARRAYS},
    "json": _file("result.json", lambda result, chosen: schema.dump(facts(result, chosen)).encode()),
    "csv": _file("measurements.csv", lambda result, chosen: _measurements(result).encode()),
    "overlay": lambda result, chosen: overlay_files(result),
    "panel": _file("panel.png", lambda result, chosen: png_bytes(result_panel(result, chosen))),
    "nifti": lambda result, chosen: chain.from_iterable(array_files(kind, result, chosen, True) for kind in ARRAYS),
    "report": _file("report.html", _report),
    "viewer": _file("viewer.html", _viewer),
}
DICOM_MAKERS: dict[str, Callable[[DicomSource, Representatives], Files]] = {
    "dicom-seg": dicom_seg_files,
    "dicom-pm": lambda source, chosen: dicom_pm_files(source),
    "dicom-sr": lambda source, chosen: dicom_sr_files(source),
}


# --- one result, from Python -----------------------------------------------------------------------------------------

SINGLE = {".nii.gz": "mask", ".png": "panel", ".html": "report", ".json": "json", ".npz": "arrays"}
ENDINGS = f"the name of a new folder, or one that ends in {', '.join(SINGLE)}"


@as_keywords()
def save(
    result: Result, path: str | Path, kinds: Sequence[str] = (), representatives: int = 3, anonymous: bool = False
) -> list[Path]:
    """Write a result into a new folder, or the one thing that the ending of the name says; whole or not at all."""
    path = Path(path)
    ending = next((ending for ending in SINGLE if path.name.endswith(ending)), None)
    if ending is None:
        other = path.suffix[1:].isalpha()
        expect(not other, f"path: {path}", ENDINGS, f"the ending {path.suffix}")
        expect(not path.exists(), f"path: {path}", "a new folder", "one that exists already")
        with whole_folder(path) as part:
            written = write(result, part, kinds, representatives, anonymous)
        return [path / file.relative_to(part) for file in written]
    expect(not kinds, "write", "it with a folder alone", f"it with a name that ends in {ending}")
    result = without_identity(result) if anonymous else result
    with whole_file(path) as part:
        part.write_bytes(_single(result, ending, result.representatives(representatives)))
    return [path]


def _single(result: Result, ending: str, chosen: Representatives) -> bytes:
    """The content of a file with this ending."""
    if ending == ".npz":
        arrays = {"image": result.image, "samples": result.samples, "saliency": result.saliency}
        of_content = {"mask": result.majority(), "targets": np.array(result.targets), "spacing": result.spacing}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays, **of_content)
        return content.getvalue()
    if ending == ".nii.gz":
        files = [content for name, content in array_files("mask", result, chosen, True) if name.endswith(ending)]
        expect(len(files) == 1, "path", "a folder, for targets that may overlap", f"one file for {len(files)} targets")
        return files[0]
    ((_, content),) = MAKERS[SINGLE[ending]](result, chosen)
    return content

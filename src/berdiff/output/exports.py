"""A result as files: `write` is the one door, through which each format of `formats.FORMATS` goes, file by file whole.

Masks and maps, tables and arrays are made here; pictures, pages and DICOM files have modules of their own.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from berdiff import schema
from berdiff.data.csv_table import csv_text
from berdiff.data.describe import check, expect
from berdiff.errors import as_keywords
from berdiff.files import whole_file, whole_folder
from berdiff.inference.result import Result
from berdiff.output.anonymous import without_identity
from berdiff.output.captions import SIZES
from berdiff.output.colours import LEVELS, rgb_of, target_colours
from berdiff.output.formats import ARRAYS, DEFAULTS, FORMATS, Files, Output, format_of, names
from berdiff.output.nifti import nifti_bytes
from berdiff.output.overlay_files import by_target
from berdiff.output.result_file import label_meaning, representative_name, result_file
from berdiff.output.tiles import MAX_VARIANCE, picture_bytes
from berdiff.targets.targets import label_map

MASKS = ("mask", "representatives", "samples")


def write(
    result: Result,
    folder: str | Path,
    formats: Sequence[str] = (),
    representatives: int = 3,
    anonymous: bool = False,
) -> list[Path]:
    """Write `formats` (none: by the kind of input) into `folder`, each file whole or not at all, and return them in
    order of writing. `anonymous`: without patient, names and paths of the source, as `output/anonymous.py` has it."""
    source = result.grid.source
    kind = "nifti" if source.resampled else source.kind  # its slices are not those that DICOM could refer to
    formats = formats or DEFAULTS.get(kind) or DEFAULTS["volume" if result.volume else "image"]
    for name in formats:
        expect(name in names(), "--write", f"some of {', '.join(names())}", repr(name), "name")
        refers = format_of(name).needs != "dicom" or kind == "dicom"
        found = "a series with gaps" if source.resampled else kind
        expect(refers, result.name, f"a DICOM input for {name}, which refers to it", found, "unsupported")
    output = Output(without_identity(result) if anonymous else result, result.representatives(representatives))
    written: dict[Path, None] = {}
    for format in map(format_of, formats):
        for name, content in format.write(output):
            path = Path(folder) / name
            if path not in written:
                with whole_file(path) as part:
                    part.write_bytes(content)
                written[path] = None
    return list(written)


@as_keywords()
def save(
    result: Result, path: str | Path, formats: Sequence[str] = (), representatives: int = 3, anonymous: bool = False
) -> list[Path]:
    """Write a result into a new folder, or the one format that the ending of the name says; whole or not at all."""
    path, single = Path(path), {format.ending: format for format in FORMATS.values() if format.ending}
    ending = next((ending for ending in single if path.name.endswith(ending)), None)
    if ending is None:
        endings = f"the name of a new folder, or one that ends in {', '.join(single)}"
        expect(not path.suffix[1:].isalpha(), f"path: {path}", endings, f"the ending {path.suffix}", "name")
        check(not path.exists(), f"path: {path} exists already; expected a new folder", "conflict")
        with whole_folder(path) as part:
            written = write(result, part, formats, representatives, anonymous)
        return [path / file.relative_to(part) for file in written]
    check(not formats, f"write: it goes with a folder alone, not with a name that ends in {ending}", "conflict")
    result = without_identity(result) if anonymous else result
    output = Output(result, result.representatives(representatives), nifti=True)
    files = [content for name, content in single[ending].write(output) if name.endswith(ending)]
    several = f"path: one file cannot hold {len(files)} targets that may overlap; expected a folder"
    check(len(files) == 1, several, "unsupported")
    with whole_file(path) as part:
        part.write_bytes(files[0])
    return [path]


# --- masks and maps --------------------------------------------------------------------------------------------------


def array_files(output: Output, name: str) -> Files:
    """PNG of a 2D image: a mask as 0 and 255, a share as 0 to 255, a variance so that 255 is the largest there is.

    Masks of targets that fit into one label map are label maps, in PNG with the targets' colours as palette.
    """
    result, nifti, labels = output.result, output.nifti or output.result.volume, False
    labels = name in MASKS and result.one_map
    meaning = schema.dump(label_meaning(result.targets, result.kind)) if labels else ""
    brightest = MAX_VARIANCE if name == "variance" else 1
    for stem, masks in _arrays(output, name, nifti):
        each = [(stem, label_map(masks))] if labels else zip(by_target(result.targets, stem), masks, strict=True)
        for file, array in each:
            if nifti:
                yield f"{file}.nii.gz", nifti_bytes(array, result.grid, meaning)
            elif labels:
                picture = Image.fromarray(result.whole(array))
                picture.putpalette([0, 0, 0, *chain.from_iterable(map(rgb_of, target_colours(len(result.targets))))])
                yield f"{file}.png", picture_bytes(picture)
            else:
                pixels = np.rint(result.whole(array) / brightest * np.float32(255)).astype(np.uint8)
                yield f"{file}.png", picture_bytes(Image.fromarray(pixels))
    if labels:
        yield "labels.json", meaning.encode()


def nifti_files(output: Output, names: Sequence[str] = ARRAYS) -> Files:
    """Arrays as NIfTI, also of an input that is none."""
    for name in names:
        yield from array_files(replace(output, nifti=True), name)


def _arrays(output: Output, name: str, nifti: bool) -> Iterator[tuple[str, np.ndarray]]:
    """(name without suffix, (K, [Z,] H, W) uint8 of masks or float32); samples are a file each, or as NIfTI one
    (K, n, [Z,] H, W)."""
    result = output.result
    match name:
        case "samples" if nifti:
            yield "samples", result.samples.swapaxes(0, 1)
        case "samples":
            digits = len(str(len(result.samples)))
            yield from ((f"samples/sample-{i:0{digits}d}", sample) for i, sample in enumerate(result.samples, 1))
        case "contours":
            yield from zip((f"contour-{100 * level:.0f}pct" for level in LEVELS), result.contours(LEVELS), strict=True)
        case "representatives":
            yield from ((representative_name(i, of), of.mask) for i, of in enumerate(output.representatives, 1))
        case "mask":
            yield "mask", result.majority()
        case _:
            yield name, getattr(result, name)  # saliency, variance


# --- tables and arrays -----------------------------------------------------------------------------------------------


def json_file(output: Output) -> Files:
    """Measurements, settings and provenance."""
    yield "result.json", schema.dump(result_file(output)).encode()


def csv_file(output: Output) -> Files:
    """One line per target; the lines of several inputs fit below each other."""
    result, measured = output.result, output.result.measurements()
    sizes = [name for name in SIZES if name in measured[result.targets[0]]]
    parts = ("unit", "q05", "q50", "q95")
    shares = ["finding_probability", "empty_share"]
    shares += ["extent_mm"] if "extent_mm" in measured[result.targets[0]] else []
    rows: list[list[Any]] = [["input", "target", *shares, *(f"{size}_{part}" for size in sizes for part in parts)]]
    for target, of in measured.items():
        values = [*(of[name] for name in shares), *(of[size][part] for size in sizes for part in parts)]
        rows.append([result.name, target, *values])
    yield "measurements.csv", csv_text(rows).encode()


def npz_file(output: Output) -> Files:
    """On the grid of the whole image, as all files are."""
    result = output.result
    arrays = {name: result.whole(getattr(result, name)) for name in ("image", "samples", "saliency")}
    arrays["image"] = arrays["image"] if result.scan is None else result.scan
    arrays |= {"mask": result.whole(result.majority()), "targets": np.array(result.targets)}
    arrays["spacing"] = np.array(result.grid.spacing)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    yield "arrays.npz", content.getvalue()

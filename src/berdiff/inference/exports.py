"""Write a result as files. `write` is the one door; KINDS says what there is."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from berdiff import __version__
from berdiff.errors import InputError
from berdiff.files import whole_file, write_text
from berdiff.inference.result import Result
from berdiff.inference.tiles import LEVELS, MOST_VARIANCE, best_channel, best_slice, best_view, pixel_aspect
from berdiff.inference.words import Digest, caption, digest, notes, percent

# name on the command line -> what is written. Arrays are PNG for a 2D image and NIfTI for a volume.
KINDS = {
    "samples": "every sample mask",
    "saliency": "the share of the samples that mark a pixel",
    "variance": "the variance over the samples",
    "mask": "what at least half of the samples mark",
    "contours": "what at least 25, 50 and 75 % of the samples mark",
    "representatives": "the masks that stand for all, with their frequencies",
    "json": "measurements, frequencies, settings and source",
    "overlay": "the contours over the image",
    "panel": "everything on one picture",
    "nifti": "all of the masks and maps as NIfTI, where the source lies",
    "dicom-seg": "DICOM SEG that refers to the source images (DICOM inputs)",
    "report": "a page for the browser, all in one file",
}


def write(result: Result, folder: str | Path, kinds: Sequence[str], representatives: int = 3) -> list[Path]:
    """Write the `kinds` into `folder`, each file whole or not at all, and return them in order of writing."""
    check_kinds(kinds, result)
    folder = Path(folder)
    of = digest(result, representatives)
    written = [path for kind in dict.fromkeys(kinds) for path in WRITERS[kind](result, of, folder)]
    return list(dict.fromkeys(written))


def check_kinds(kinds: Sequence[str], result: Result | None = None) -> None:
    """Say what is wrong with what is asked before anything is computed or written."""
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"--write: expected some of {', '.join(KINDS)}, found {kind!r}")
    if result is not None and "dicom-seg" in kinds and result.source.kind != "dicom":
        raise InputError(
            f"{result.name}: expected a DICOM input for dicom-seg, which refers to it, found {result.source.kind}"
        )


# --- masks and maps --------------------------------------------------------------------------------------------------


def _named(result: Result, stem: str, of_targets: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(file name without suffix, array) for each target of `(K, ...)`; one target needs no name."""
    for target, array in zip(result.targets, of_targets, strict=True):
        yield (stem if len(result.targets) == 1 else f"{stem}-{file_name(target)}"), array


def file_name(text: str) -> str:
    """Letters, digits, dots and dashes: safe on every file system."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.") or "target"


def _contents(result: Result, of: Digest, kind: str) -> Iterator[tuple[str, np.ndarray]]:
    """(name, ([Z,] H, W)) of one kind: masks are uint8, maps float32."""
    match kind:
        case "samples":
            digits = len(str(len(result.samples)))
            for i, sample in enumerate(result.samples):
                yield from _named(result, f"samples/sample-{i + 1:0{digits}d}", sample)
        case "saliency":
            yield from _named(result, "saliency", result.saliency)
        case "variance":
            yield from _named(result, "variance", result.variance)
        case "mask":
            yield from _named(result, "mask", result.mask())
        case "contours":
            for level, masks in zip(LEVELS, result.contours(LEVELS), strict=True):
                yield from _named(result, f"contour-{level:.0%}".replace("%", "pct"), masks)
        case "representatives":
            for i, found in enumerate(of.representatives):
                yield from _named(result, representative_name(i, found.frequency), found.mask)


def representative_name(number: int, frequency: float) -> str:
    return f"representative-{number + 1}-{percent(frequency).replace(' %', 'pct')}"


def _arrays(kind: str) -> "Writer":
    def writer(result: Result, of: Digest, folder: Path) -> list[Path]:
        if result.volume:
            return _nifti(result, of, folder, [kind])
        return [_png(folder / f"{name}.png", array) for name, array in _contents(result, of, kind)]

    return writer


def _png(path: Path, array: np.ndarray) -> Path:
    """A mask as 0 and 255; a share as 0 to 255, a variance so that 255 is the most it can be."""
    if array.dtype == np.uint8:
        grey = array * np.uint8(255)
    else:
        most = MOST_VARIANCE if path.name.startswith("variance") else 1.0
        grey = np.rint(array / most * 255).astype(np.uint8)
    return _saved(path, Image.fromarray(grey))


def _saved(path: Path, picture: Image.Image) -> Path:
    with whole_file(path) as part:
        picture.save(part, format="PNG")
    return path


def _nifti(
    result: Result,
    of: Digest,
    folder: Path,
    kinds: Sequence[str] = ("saliency", "variance", "mask", "contours", "representatives", "samples"),
) -> list[Path]:
    from berdiff.inference.nifti import write_nifti

    paths = []
    for kind in kinds:
        if kind == "samples":  # one file of n volumes
            named = _named(result, "samples", np.moveaxis(result.samples, 1, 0))
        else:
            named = _contents(result, of, kind)
        paths += [write_nifti(folder / f"{name}.nii.gz", result, array) for name, array in named]
    return paths


# --- what people read ------------------------------------------------------------------------------------------------


def facts(result: Result, of: Digest) -> dict[str, Any]:
    """What result.json holds, in plain JSON types: an unknown spacing is null."""
    return {
        "berdiff": __version__,
        "name": result.name,
        "source": {"kind": result.source.kind, "files": [str(path) for path in result.source.paths]},
        "settings": dict(result.settings),
        "targets": list(result.targets),
        "shape": list(result.samples.shape[2:]),
        "spacing_mm": [float(mm) if np.isfinite(mm) else None for mm in result.spacing],
        "region": None if result.roi is None else [list(ends) for ends in result.roi],
        "samples": len(result.samples),
        "measurements": of.measurements,
        "representatives": [
            {"name": representative_name(i, found.frequency), "frequency": found.frequency, "sample": found.index + 1}
            for i, found in enumerate(of.representatives)
        ],
        "contours": list(LEVELS),
        "notes": notes(result),
    }


def _json(result: Result, of: Digest, folder: Path) -> list[Path]:
    path = folder / "result.json"
    write_text(path, json.dumps(facts(result, of), indent=2, allow_nan=False) + "\n")
    return [path]


def _overlay(result: Result, of: Digest, folder: Path) -> list[Path]:
    """Of a volume, every slice with a contour on it; where there is none, the one with most of the finding."""
    from berdiff.inference.overlay import overlay

    aspect, paths, channel = pixel_aspect(result), [], best_channel(result, best_view(result))
    image = result.image[channel]
    on = f", on channel {channel + 1}" if len(result.image) > 1 else ""
    for k, (name, saliency) in enumerate(_named(result, "overlay", result.saliency)):
        said = f"{result.targets[k]}, outlined where at least this share of the samples mark it{on}"
        if not result.volume:
            picture = overlay(image, saliency, aspect, f"{result.name}: {said}", caption(result))
            paths.append(_saved(folder / f"{name}.png", picture))
            continue
        slices = np.flatnonzero((saliency >= LEVELS[0]).any(axis=(-2, -1)))
        for z in slices if len(slices) else [best_slice(result)]:
            title = f"{result.name}, slice {z}: {said}"
            picture = overlay(image[z], saliency[z], aspect, title, caption(result))
            paths.append(_saved(folder / name / f"slice-{z:04d}.png", picture))
    return paths


def _panel(result: Result, of: Digest, folder: Path) -> list[Path]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from berdiff.inference.pictures import panel

    path = folder / "panel.png"
    with whole_file(path) as part:
        FigureCanvasAgg(panel(result, of)).print_figure(part, dpi=120, format="png")
    return [path]


def _dicom_seg(result: Result, of: Digest, folder: Path) -> list[Path]:
    from berdiff.inference.dicom_seg import write_dicom_seg

    return write_dicom_seg(folder, result, of.representatives)


def _report(result: Result, of: Digest, folder: Path) -> list[Path]:
    from berdiff.inference.report import Entry, write_report

    return [write_report(folder / "report.html", f"berdiff: {result.name}", [Entry(result, of)])]


Writer = Callable[[Result, Digest, Path], list[Path]]
WRITERS: dict[str, Writer] = {
    **{kind: _arrays(kind) for kind in ("samples", "saliency", "variance", "mask", "contours", "representatives")},
    "json": _json,
    "overlay": _overlay,
    "panel": _panel,
    "nifti": _nifti,
    "dicom-seg": _dicom_seg,
    "report": _report,
}

"""A result as files. `write` is the one door: each kind of `kinds.KINDS` makes files by name, written here, whole."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from berdiff import __version__, schema
from berdiff.data.describe import expect
from berdiff.files import whole_file
from berdiff.inference.representatives import Representative
from berdiff.inference.result import Result
from berdiff.output.captions import notes, notes_line, percent
from berdiff.output.dicom_seg import dicom_seg_files
from berdiff.output.html_report import ReportEntry, page
from berdiff.output.kinds import DEFAULT_KINDS, KINDS
from berdiff.output.nifti import nifti_bytes
from berdiff.output.overlay import overlay
from berdiff.output.panels import png_bytes, result_panel
from berdiff.output.tiles import LEVELS, MAX_VARIANCE, picture_bytes
from berdiff.output.views import clearest_channel, close_up, fullest_slice

Representatives = Sequence[Representative]
Files = Iterator[tuple[str, bytes]]  # (name, content)
Arrays = Iterator[tuple[str, np.ndarray]]  # (name without suffix, masks in uint8 or a map in float32)


def write(result: Result, folder: str | Path, kinds: Sequence[str] = (), representatives: int = 3) -> list[Path]:
    """Write the `kinds` (none: by the kind of input) into `folder`, each file whole or not at all, and return them in
    order of writing."""
    source = result.geometry.kind
    kinds = kinds or DEFAULT_KINDS.get(source) or DEFAULT_KINDS["volume" if result.volume else "image"]
    for kind in kinds:
        expect(kind in KINDS, "--write", f"some of {', '.join(KINDS)}", repr(kind))
    refers = "dicom-seg" not in kinds or source == "dicom"
    expect(refers, result.name, "a DICOM input for dicom-seg, which refers to it", source)
    chosen = result.representatives(representatives)
    written: dict[Path, None] = {}
    for kind in kinds:
        for name, content in MAKERS[kind](result, chosen):
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
            yield "mask", result.mask()
        case _:
            yield kind, getattr(result, kind)  # saliency, variance


def _representative_name(number: int, found: Representative) -> str:
    return f"representative-{number}-{percent(found.frequency).replace(' %', 'pct')}"


def _by_target(result: Result, name: str, arrays: np.ndarray) -> Arrays:
    """(name, array) for each target of `(K, ...)`; one target needs no name. Names are safe on any file system."""
    for target, array in zip(result.targets, arrays, strict=True):
        safe = re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.") or "target"
        yield (name if len(result.targets) == 1 else f"{name}-{safe}"), array


def _array_files(kind: str, result: Result, chosen: Representatives, nifti: bool = False) -> Files:
    """PNG of a 2D image: a mask as 0 and 255, a share as 0 to 255, a variance so that 255 is the largest there is."""
    nifti = nifti or result.volume
    brightest = MAX_VARIANCE if kind == "variance" else 1
    for stem, masks in _arrays(kind, result, chosen, nifti):
        for name, array in _by_target(result, stem, masks):
            if nifti:
                yield f"{name}.nii.gz", nifti_bytes(result, array)
            else:
                pixels = np.rint(array / brightest * np.float32(255)).astype(np.uint8)
                yield f"{name}.png", picture_bytes(Image.fromarray(pixels))


# --- what people read ------------------------------------------------------------------------------------------------


def facts(result: Result, chosen: Representatives) -> dict[str, Any]:
    """What result.json holds: an unknown spacing is null."""
    return {
        "berdiff": __version__,
        "name": result.name,
        "source": {"kind": result.geometry.kind, "files": [str(path) for path in result.geometry.paths]},
        "settings": dict(result.settings),
        "targets": result.targets,
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


def _overlays(result: Result, chosen: Representatives) -> Files:
    """Of a volume, every slice with a contour on it; where there is none, the one with most of the finding."""
    channel = clearest_channel(close_up(result).result)
    image, note = result.image[channel], notes_line(result)
    on = f", on channel {channel + 1}" if len(result.image) > 1 else ""
    for (name, saliency), target in zip(_by_target(result, "overlay", result.saliency), result.targets, strict=True):
        planes = [(f"{name}.png", "", image, saliency)]
        if result.volume:
            marked = np.flatnonzero((saliency >= LEVELS[0]).any(axis=(-2, -1)))
            slices = marked if len(marked) else [fullest_slice(result)]
            planes = [(f"{name}/slice-{z:04d}.png", f", slice {z}", image[z], saliency[z]) for z in slices]
        for file, where, plane, share in planes:
            title = f"{result.name}{where}: {target}, outlined where at least this share of the samples mark it{on}"
            yield file, picture_bytes(overlay(plane, share, result.aspect, title, note))


def _report(result: Result, chosen: Representatives) -> bytes:
    return page(f"berdiff: {result.name}", [ReportEntry(result, chosen)]).encode()


def _file(name: str, content: Callable[[Result, Representatives], bytes]) -> Callable[[Result, Representatives], Files]:
    return lambda result, chosen: iter([(name, content(result, chosen))])


ARRAYS = ("saliency", "variance", "mask", "contours", "representatives", "samples")
MAKERS: dict[str, Callable[[Result, Representatives], Files]] = {
    **{kind: partial(_array_files, kind) for kind in ARRAYS},
    "json": _file("result.json", lambda result, chosen: schema.dump(facts(result, chosen)).encode()),
    "overlay": _overlays,
    "panel": _file("panel.png", lambda result, chosen: png_bytes(result_panel(result, chosen))),
    "nifti": lambda result, chosen: chain.from_iterable(_array_files(kind, result, chosen, True) for kind in ARRAYS),
    "dicom-seg": dicom_seg_files,
    "report": _file("report.html", _report),
}

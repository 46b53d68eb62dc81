"""The files of a case with findings: all of its findings in one table, and of a volume all of them on its grid.

CASE/findings.json, .csv   the findings, once all of them were tried
CASE/saliency.nii.gz       of a volume: in each voxel the highest saliency of all findings there
CASE/mask.nii.gz           of a volume: what is marked in the majority of any finding
CASE/FINDING/crop.npz      of a volume: what these are made of
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff import __version__, schema
from berdiff.errors import InputError
from berdiff.files import whole_file, write_text
from berdiff.inference.finding import Finding, to_mm, world_affine
from berdiff.inference.label_map import label_map
from berdiff.inference.model import Model
from berdiff.inference.opening import ReadInput
from berdiff.inference.result import Result
from berdiff.output.done_file import Sizes, are_whole, read_done, sizes_of
from berdiff.output.label_files import label_meaning
from berdiff.output.nifti import nifti_bytes
from berdiff.output.overlay_files import by_target
from berdiff.output.records import CROP
from berdiff.output.rows import COLUMNS, rows_of

FINDINGS = "findings.json"


@dataclass(frozen=True)
class FoundFinding(schema.Content):
    name: str


@dataclass(frozen=True)
class CaseFile(schema.Content):
    """findings.json, as far as it is read again."""

    name: str
    sources: list[dict[str, Any]]
    asked: Any
    findings: list[FoundFinding]
    failed: dict[str, str]
    files: Sizes


def findings_done(folder: Path, about: dict[str, Any]) -> list[str] | None:
    """The names of a case's findings where all of them are done and `about`, what was asked of what, is the same."""
    path = folder / FINDINGS
    try:
        there = schema.read(path, CaseFile, "the findings of a case")
        same = all(getattr(there, name) == value for name, value in schema.plain(about).items())
        if not same or there.failed or not are_whole(folder, there.files):
            return None
        names = [found.name for found in there.findings]
        return names if all(are_whole(folder / name, read_done(folder / name).files) for name in names) else None
    except InputError:  # not there, or damaged: it is made again
        return None


def write_case(
    folder: Path, about: dict[str, Any], read: ReadInput, found: Sequence[Finding], failed: dict[str, str], model: Model
) -> None:
    """The files of a case; `found` are its findings that are done. Where there is none, nothing is written."""
    if not found:
        return
    files = list(_volume_files(folder, read, found, model)) if len(read.shape) == 3 else []
    frame = None if world_affine(read) is None else "LPS" if read.placed.geometry.kind == "dicom" else "RAS"
    places = {one.name: None if frame is None else to_mm(read, one.center) for one in found}
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, "z", "y", "x", "x_mm", "y_mm", "z_mm"])
    listed: list[dict[str, Any]] = []
    for one in found:
        rows, mm = rows_of(folder / one.name, folder.parent), places[one.name] or ["", "", ""]
        writer.writerows([*row.values(), *("", *one.center)[-3:], *mm] for row in rows)
        measured = {row.target: row.measured for row in rows}
        listed.append({"name": one.name, "center": one.center, "center_mm": places[one.name], "measurements": measured})
    write_text(folder / "findings.csv", text.getvalue())
    facts = {"berdiff": __version__, **about, "frame": frame, "findings": listed, "failed": failed}
    facts["files"] = sizes_of(folder, [*files, "findings.csv"])
    write_text(folder / FINDINGS, schema.dump(facts))  # last: it says that the case is done


def _volume_files(folder: Path, read: ReadInput, found: Sequence[Finding], model: Model) -> Iterator[str]:
    """Write all findings of a volume on its grid, one array at a time; yield the names."""
    spec = model.input_spec
    empty = np.zeros((1, len(spec.targets), 0, 0, 0), np.uint8)
    whole = Result(**vars(read.placed), pool=empty, targets=spec.targets, kind=spec.kind)
    saliency = combined_saliency(folder, found, len(spec.targets), read.shape)
    for name, array in zip(by_target(whole, "saliency"), saliency, strict=True):
        yield _write(folder, f"{name}.nii.gz", nifti_bytes(whole, array))
    majority = combined_majority(folder, found, saliency, spec.kind == "exclusive")
    if whole.one_map:
        meaning = schema.dump(label_meaning(whole))
        yield _write(folder, "mask.nii.gz", nifti_bytes(whole, label_map(majority), meaning))
        yield _write(folder, "labels.json", meaning.encode())
    else:
        for name, array in zip(by_target(whole, "mask"), majority, strict=True):
            yield _write(folder, f"{name}.nii.gz", nifti_bytes(whole, array))


def combined_saliency(folder: Path, found: Sequence[Finding], targets: int, shape: Sequence[int]) -> np.ndarray:
    """(K, Z, H, W) float32: the highest of all findings in each voxel, 0 where there is none."""
    whole = np.zeros((targets, *shape), np.float32)
    for place, crop in _crops(folder, found, "saliency"):
        np.maximum(whole[place], crop, out=whole[place])
    return whole


def combined_majority(folder: Path, found: Sequence[Finding], saliency: np.ndarray, exclusive: bool) -> np.ndarray:
    """(K, Z, H, W) uint8: marked in the majority of any finding. Of exclusive targets, where findings overlap and do
    not agree, the one with the highest saliency."""
    whole = np.zeros(saliency.shape, np.uint8)
    for place, crop in _crops(folder, found, "majority"):
        whole[place] |= crop
    if exclusive:
        several = whole.sum(0) > 1
        best = np.where(whole[:, several], saliency[:, several], -1).argmax(0)
        whole[:, several] = best == np.arange(len(whole))[:, None]
    return whole


def _crops(folder: Path, found: Sequence[Finding], name: str) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    for one in found:
        with np.load(folder / one.name / CROP, allow_pickle=False) as content:
            first, crop = content["first"], content[name]
        ends = zip(first.tolist(), crop.shape[1:], strict=True)
        yield (slice(None), *(slice(start, start + length) for start, length in ends)), crop


def _write(folder: Path, name: str, content: bytes) -> str:
    with whole_file(folder / name) as part:
        part.write_bytes(content)
    return name

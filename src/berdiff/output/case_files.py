"""The files of a case with findings: all of its findings in one table, and of a volume all of them on its grid.

CASE/findings.json, .csv   the findings, once all of them were tried
CASE/saliency.nii.gz       of a volume: in each voxel the highest saliency of all findings there
CASE/mask.nii.gz           of a volume: what is marked in the majority of any finding
CASE/FINDING/crop.npz      of a volume: what these are made of
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from berdiff import __version__, schema
from berdiff.data.csv_table import csv_text
from berdiff.errors import InputError
from berdiff.inference.finding import Finding
from berdiff.inference.model import Model
from berdiff.inference.opening import ReadInput
from berdiff.output.done_file import Sizes, are_whole, parse_done, whole_result
from berdiff.output.label_files import label_meaning
from berdiff.output.nifti import nifti_bytes
from berdiff.output.overlay_files import by_target
from berdiff.output.records import CROP
from berdiff.output.result_files import DONE, ResultFiles
from berdiff.output.rows import COLUMNS, rows_of
from berdiff.targets.targets import Targets, label_map

FINDINGS, TABLE = "findings.json", "findings.csv"


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


def findings_done(files: ResultFiles, case: str, about: dict[str, Any]) -> list[str] | None:
    """The names of a case's findings where all of them are done and `about`, what was asked of what, is the same."""
    path = f"{case}/{FINDINGS}"
    content = files.read([path]).get(path)
    if content is None:
        return None
    where = files.address(path)
    try:
        plain = schema.loads(content, where, "the findings of a case")
        there = schema.parse(CaseFile, plain, lambda place: f"{where}: {place}")
    except InputError:  # damaged: it is made again
        return None
    same = all(getattr(there, name) == value for name, value in schema.plain(about).items())
    if not same or there.failed or not are_whole(files, case, there.files):
        return None
    names = [found.name for found in there.findings]
    return names if all(whole_result(files, f"{case}/{name}") for name in names) else None


def write_case(
    files: ResultFiles,
    case: str,
    about: dict[str, Any],
    read: ReadInput,
    found: Sequence[Finding],
    failed: dict[str, str],
    model: Model,
) -> None:
    """The files of a case; `found` are its findings that are done. Where there is none, nothing is written."""
    if not found:
        return
    written = dict[str, int]()
    for name, content in _volume_files(files, case, read, found, model) if len(read.shape) == 3 else ():
        files.write(f"{case}/{name}", content)
        written[name] = len(content)
    placed = read.placed
    frame = None if placed.affine is None else "LPS" if placed.geometry.kind == "dicom" else "RAS"
    places = {one.name: None if frame is None else placed.to_mm(one.center) for one in found}
    lines: list[list[Any]] = [[*COLUMNS, "z", "y", "x", "x_mm", "y_mm", "z_mm"]]
    listed: list[dict[str, Any]] = []
    folders = {one.name: f"{case}/{one.name}" for one in found}
    done = files.read([f"{folder}/{DONE}" for folder in folders.values()])
    for one in found:
        folder = folders[one.name]
        content = done[f"{folder}/{DONE}"]
        rows, mm = rows_of(parse_done(content, files.address(folder)), folder), places[one.name] or ["", "", ""]
        lines += [[*row.values(), *("", *one.center)[-3:], *mm] for row in rows]
        measured = {row.target: row.measured for row in rows}
        listed.append({"name": one.name, "center": one.center, "center_mm": places[one.name], "measurements": measured})
    table = csv_text(lines).encode()
    files.write(f"{case}/{TABLE}", table)
    written[TABLE] = len(table)
    facts = {"berdiff": __version__, **about, "frame": frame, "findings": listed, "failed": failed, "files": written}
    files.write(f"{case}/{FINDINGS}", schema.dump(facts).encode())  # last: it says that the case is done


def _volume_files(
    files: ResultFiles, case: str, read: ReadInput, found: Sequence[Finding], model: Model
) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the files that have all findings of a volume on its grid, one array at a time."""
    spec = model.input_spec
    saliency = combined_saliency(files, case, found, len(spec.targets), read.shape)
    for name, array in zip(by_target(spec.targets, "saliency"), saliency, strict=True):
        yield f"{name}.nii.gz", nifti_bytes(array, read.placed)
    majority = combined_majority(files, case, found, saliency, spec.kind == "exclusive")
    if Targets(spec.targets, spec.kind).one_map:
        meaning = schema.dump(label_meaning(spec.targets, spec.kind))
        yield "mask.nii.gz", nifti_bytes(label_map(majority), read.placed, meaning)
        yield "labels.json", meaning.encode()
    else:
        for name, array in zip(by_target(spec.targets, "mask"), majority, strict=True):
            yield f"{name}.nii.gz", nifti_bytes(array, read.placed)


def combined_saliency(
    files: ResultFiles, case: str, found: Sequence[Finding], targets: int, shape: Sequence[int]
) -> np.ndarray:
    """(K, Z, H, W) float32: the highest of all findings in each voxel, 0 where there is none."""
    whole = np.zeros((targets, *shape), np.float32)
    for place, crop in _crops(files, case, found, "saliency"):
        np.maximum(whole[place], crop, out=whole[place])
    return whole


def combined_majority(
    files: ResultFiles, case: str, found: Sequence[Finding], saliency: np.ndarray, exclusive: bool
) -> np.ndarray:
    """(K, Z, H, W) uint8: marked in the majority of any finding. Of exclusive targets, where findings overlap and do
    not agree, the one with the highest saliency."""
    whole = np.zeros(saliency.shape, np.uint8)
    for place, crop in _crops(files, case, found, "majority"):
        whole[place] |= crop
    if exclusive:
        several = whole.sum(0) > 1
        best = np.where(whole[:, several], saliency[:, several], -1).argmax(0)
        whole[:, several] = best == np.arange(len(whole))[:, None]
    return whole


def _crops(
    files: ResultFiles, case: str, found: Sequence[Finding], name: str
) -> Iterator[tuple[tuple[slice, ...], np.ndarray]]:
    for one in found:
        path = f"{case}/{one.name}/{CROP}"
        with np.load(io.BytesIO(files.read([path])[path]), allow_pickle=False) as content:
            first, crop = content["first"], content[name]
        ends = zip(first.tolist(), crop.shape[1:], strict=True)
        yield (slice(None), *(slice(start, start + length) for start, length in ends)), crop

"""The files of a case with findings: all of its findings in one table, and of a volume all of them on its grid.

CASE/findings.json, .csv   the findings, once all of them were tried
CASE/saliency.nii.gz       of a volume: in each voxel the highest saliency of all findings there
CASE/mask.nii.gz           of a volume: what is marked in the majority of any finding
CASE/FINDING/crop.npz      of a volume: what these are made of
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from berdiff import __version__, schema
from berdiff.data.csv_table import csv_text
from berdiff.errors import InputError
from berdiff.inference.model import Model
from berdiff.inference.opening import ReadInput
from berdiff.jobs.cohort import COLUMNS, rows_of
from berdiff.jobs.done_file import DoneFile, Measured, Sizes, are_whole, whole_result
from berdiff.jobs.findings import Finding
from berdiff.jobs.records import CROP
from berdiff.jobs.store import ResultFiles
from berdiff.output.nifti import nifti_bytes
from berdiff.output.overlay_files import by_target
from berdiff.output.result_file import label_meaning
from berdiff.targets.targets import Targets, label_map

FINDINGS, TABLE = "findings.json", "findings.csv"


@dataclass(frozen=True)
class FoundFinding(schema.Content):
    name: str
    center: list[int]
    center_mm: list[float] | None
    measurements: dict[str, Measured]
    warnings: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class CaseFile(schema.Content):
    """findings.json. `about`, what was asked of what, are its name, sources and `asked`."""

    berdiff: str
    name: str
    sources: list[dict[str, Any]]
    asked: Any
    frame: Literal["RAS", "LPS"] | None
    findings: list[FoundFinding]
    failed: dict[str, str]
    files: Sizes


def case_done(files: ResultFiles, about: dict[str, Any], failed: bool) -> list[DoneFile] | None:
    """The results of a case's findings, where all of them are done and `about` is the same; `failed`: but those that
    were tried and failed."""
    case = about["name"]
    path = f"{case}/{FINDINGS}"
    content = files.read([path]).get(path)
    if content is None:
        return [] if failed else None
    where = files.address(path)
    try:
        plain = schema.loads(content, where, "the findings of a case")
        there = schema.parse(CaseFile, plain, lambda place: f"{where}: {place}")
    except InputError:  # damaged: it is made again
        return None
    same = all(getattr(there, name) == value for name, value in schema.plain(about).items())
    if not same or (there.failed and not failed) or not are_whole(files, case, there.files):
        return None
    done = [whole_result(files, f"{case}/{found.name}") for found in there.findings]
    return None if None in done else [one for one in done if one is not None]


def write_case(
    files: ResultFiles,
    about: dict[str, Any],
    read: ReadInput,
    done: dict[Finding, DoneFile],
    failed: dict[str, str],
    model: Model,
) -> None:
    """The files of a case, of its findings that are done. Where there is none, nothing is written."""
    if not done:
        return
    case, written = about["name"], dict[str, int]()
    for name, content in _volume_files(files, case, read, list(done), model) if len(read.shape) == 3 else ():
        files.write(f"{case}/{name}", content)
        written[name] = len(content)
    grid = read.grid
    frame = None if grid.affine is None else "LPS" if grid.source.kind == "dicom" else "RAS"
    lines: list[list[Any]] = [[*COLUMNS, "z", "y", "x", "x_mm", "y_mm", "z_mm", "notes"]]
    listed: list[FoundFinding] = []
    for one, kept in done.items():
        mm = None if frame is None else grid.to_mm(one.center)
        place = [*("", *one.center)[-3:], *(mm or ["", "", ""])]
        lines += [[*row.values(), *place, "; ".join(row.notes)] for row in rows_of(kept, kept.name)]
        listed.append(FoundFinding(one.name, list(one.center), mm, kept.measurements, kept.warnings))
    table = csv_text(lines).encode()
    files.write(f"{case}/{TABLE}", table)
    written[TABLE] = len(table)
    facts = CaseFile(__version__, **about, frame=frame, findings=listed, failed=failed, files=written)
    files.write(f"{case}/{FINDINGS}", schema.dump(facts).encode())  # last: it says that the case is done


def _volume_files(
    files: ResultFiles, case: str, read: ReadInput, found: Sequence[Finding], model: Model
) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the files that have all findings of a volume on its grid, one array at a time."""
    spec = model.input_spec
    saliency = combined_saliency(files, case, found, len(spec.targets), read.shape)
    for name, array in zip(by_target(spec.targets, "saliency"), saliency, strict=True):
        yield f"{name}.nii.gz", nifti_bytes(array, read.grid)
    majority = combined_majority(files, case, found, saliency, spec.kind == "exclusive")
    if Targets(spec.targets, spec.kind).one_map:
        meaning = schema.dump(label_meaning(spec.targets, spec.kind))
        yield "mask.nii.gz", nifti_bytes(label_map(majority), read.grid, meaning)
        yield "labels.json", meaning.encode()
    else:
        for name, array in zip(by_target(spec.targets, "mask"), majority, strict=True):
            yield f"{name}.nii.gz", nifti_bytes(array, read.grid)


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

"""The folder of an evaluation: one part per batch while it runs, the results when it is done.

settings.json     what was asked; another evaluation is refused in the same folder
parts/NNNNN.json  the values of one batch, written whole: a killed evaluation resumes after the last of them
samples/NNNNN.npz with --save-samples, the masks of one batch, eight pixels per byte
per_case.csv, table.md, metrics.json   the results; metrics.json comes last, so where it is, all is

Several processes share a folder: each takes batches that no other has claimed, and one of them writes the results.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from berdiff import schema
from berdiff.data.describe import check, expect, refuse_older
from berdiff.errors import InputError
from berdiff.evaluation.per_case import Columns, join, to_csv, typed
from berdiff.evaluation.result_file import FORMAT, ResultFile
from berdiff.files import whole_file, write_text
from berdiff.jobs.store import Claim, ResultStore

RESULT, CASES, TABLE = "metrics.json", "per_case.csv", "table.md"
LAST = ".results.00000000.part"  # the lock of whoever writes the results is called like a leftover
References = dict[str, Columns]
Values = dict[str, list[str] | list[int] | list[float]]


@dataclass(frozen=True)
class PartFile:
    """parts/NNNNN.json; a value that a case does not have is NaN."""

    __pydantic_config__ = {"extra": "forbid", "strict": True}  # noqa: RUF012 (pydantic's own name)
    columns: Values
    references: dict[str, Values]


class EvaluationFolder(ResultStore):
    """The folder of an evaluation, filled batch by batch, so that an interrupted one resumes."""

    def __init__(self, folder: str | Path, settings: dict[str, Any], what: str = "evaluation") -> None:
        super().__init__(Path(folder), settings, what)
        self.folder: Path = Path(folder)

    def has(self, batch: int) -> bool:
        """Whether the batch is done; one that is damaged is not."""
        try:
            self._read(batch)
        except InputError:
            return False
        return True

    def claim(self, batch: int) -> Claim | None:
        """The right to work on a batch; None where another process has it."""
        self.begin()
        return self.take(f"batch {batch}")

    def add(self, batch: int, columns: Columns, references: References, samples: Tensor | None = None) -> None:
        """Keep one batch; the part is written last, so where it is, its samples are."""
        self.begin()
        if samples is not None:
            with whole_file(self._samples(batch)) as part, part.open("wb") as file:
                packed = np.packbits(samples.flatten(1).numpy(), axis=1)
                case = columns["case"].reshape(len(samples), -1)[:, 0].astype(str)
                np.savez(file, case=case, packed=packed, shape=np.array(samples.shape[1:]))
        kept = {"columns": columns, "references": references}
        write_text(self._part(batch), json.dumps(kept, default=np.ndarray.tolist))

    def gathered(self, batches: int) -> tuple[Columns, References]:
        """All parts, one after the other."""
        parts = [self._read(batch) for batch in range(batches)]
        alike = {(tuple(columns), tuple(references)) for columns, references in parts}
        check(len(alike) == 1, f"{self.folder}: parts have other metrics than each other; remove parts/", "changed")
        return join([c for c, _ in parts]), {name: join([r[name] for _, r in parts]) for name in parts[0][1]}

    def _read(self, batch: int) -> tuple[Columns, References]:
        file, what = self._part(batch), "the values of a batch"
        kept = schema.read(file, PartFile, what, nan=True)
        there = not self.settings.get("save_samples") or self._samples(batch).is_file()
        check(there, f"{file}: the samples of this batch are missing", "missing")
        try:
            groups = {"": kept.columns, **kept.references}
            found = {name: typed(values) for name, values in groups.items()}
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"{file}: expected {what}, found something else ({error})", "damaged") from error
        lengths = {len(column) for of in found.values() for column in of.values()}
        check(len(lengths) == 1, f"{file}: its columns differ in length", "damaged")
        return found.pop(""), found

    def _samples(self, batch: int) -> Path:
        return self.folder / "samples" / f"{batch:05d}.npz"

    def _part(self, batch: int) -> Path:
        return self.folder / "parts" / f"{batch:05d}.json"

    def result(self) -> ResultFile | None:
        """metrics.json, if the evaluation is finished; its parts are not needed any more."""
        if not all((self.folder / name).is_file() for name in (RESULT, CASES, TABLE)):
            return None
        shutil.rmtree(self.folder / "parts", ignore_errors=True)
        return read_result(self.folder)

    def finish(self, columns: Columns, table: str, result: ResultFile) -> None:
        """Write the results; the parts they were made of go."""
        write_text(self.folder / CASES, to_csv(columns))
        write_text(self.folder / TABLE, table)
        write_text(self.folder / RESULT, schema.dump(result))
        shutil.rmtree(self.folder / "parts", ignore_errors=True)


def read_result(folder: Path) -> ResultFile:
    """metrics.json of a finished evaluation."""
    file = folder / RESULT
    expect(file.is_file(), folder, f"a finished evaluation with {RESULT}", code="missing")
    result = schema.read_json(file, "the metrics of an evaluation")
    refuse_older(result, "format", FORMAT, file)
    schema.parse(ResultFile, result, lambda place: f"{file}: {place}" if place else str(file))
    return cast(ResultFile, result)  # with the settings that nobody looks at


def read_samples(folder: str | Path) -> dict[str, Tensor]:
    """The masks of `--save-samples`: case -> `(n, K, H, W)` uint8."""
    out: dict[str, Tensor] = {}
    files = sorted((Path(folder) / "samples").glob("*.npz"))
    check(files, f"{folder}: no samples/*.npz; evaluate with --save-samples", "missing")
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            shape = tuple(int(side) for side in stored["shape"])
            bits = np.unpackbits(stored["packed"], axis=1, count=int(np.prod(shape)))
            out |= {str(c): torch.as_tensor(m.reshape(shape)) for c, m in zip(stored["case"], bits, strict=True)}
    return out

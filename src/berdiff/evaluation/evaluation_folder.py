"""The folder of an evaluation: one part per batch while it runs, the results when it is done.

settings.json     what was asked; another evaluation is refused in the same folder
parts/NNNNN.json  the values of one batch, written whole: a killed evaluation resumes after the last of them
samples/NNNNN.npz with --save-samples, the masks of one batch, eight pixels per byte
per_case.csv, table.md, metrics.json   the results; metrics.json comes last, so where it is, all is
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.errors import InputError
from berdiff.evaluation.per_case import Columns, join, to_csv, typed
from berdiff.files import whole_file, write_text
from berdiff.workfolder import WorkFolder

FORMAT = 3  # of metrics.json
RESULT = "metrics.json"
References = dict[str, Columns]


class EvaluationFolder(WorkFolder):
    """The folder of an evaluation, filled batch by batch, so that an interrupted one resumes."""

    def has(self, batch: int) -> bool:
        """Whether this batch is done."""
        return self._part(batch).is_file()

    def add(self, batch: int, columns: Columns, references: References, samples: Tensor | None = None) -> None:
        """Keep one batch; the part is written last, so where it is, its samples are."""
        self.begin()
        if samples is not None:
            with whole_file(self.folder / "samples" / f"{batch:05d}.npz") as part, part.open("wb") as file:
                packed = np.packbits(samples.flatten(1).numpy(), axis=1)
                case = columns["case"].reshape(len(samples), -1)[:, 0].astype(str)
                np.savez(file, case=case, packed=packed, shape=np.array(samples.shape[1:]))
        kept = {"columns": columns, "references": references}
        write_text(self._part(batch), json.dumps(kept, default=np.ndarray.tolist))

    def gathered(self, batches: int) -> tuple[Columns, References]:
        """All parts, one after the other."""
        parts = [self._read(batch) for batch in range(batches)]
        return join([c for c, _ in parts]), {name: join([r[name] for _, r in parts]) for name in parts[0][1]}

    def _read(self, batch: int) -> tuple[Columns, References]:
        file = self._part(batch)
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            return typed(kept["columns"]), {name: typed(c) for name, c in kept["references"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file}: expected the values of a batch, found a damaged file; remove it") from error

    def _part(self, batch: int) -> Path:
        return self.folder / "parts" / f"{batch:05d}.json"

    def result(self) -> dict[str, Any] | None:
        """metrics.json, if the evaluation is finished; its parts are not needed any more."""
        if not (self.folder / RESULT).is_file():
            return None
        shutil.rmtree(self.folder / "parts", ignore_errors=True)
        return read_result(self.folder)

    def finish(self, columns: Columns, table: str, result: dict[str, Any]) -> None:
        """Write the results; the parts they were made of go."""
        write_text(self.folder / "per_case.csv", to_csv(columns))
        write_text(self.folder / "table.md", table)
        write_text(self.folder / RESULT, schema.dump(result))
        shutil.rmtree(self.folder / "parts", ignore_errors=True)


def read_result(folder: Path) -> dict[str, Any]:
    """metrics.json of a finished evaluation; of older formats what can be said in the words of this one."""
    file = folder / RESULT
    expect(file.is_file(), folder, f"a finished evaluation with {RESULT}")
    result = schema.read_json(file, "the metrics of an evaluation")
    try:
        found = result["format"]
        expect(found in range(1, FORMAT + 1), file, f"an evaluation of format 1 to {FORMAT}", repr(found))
        settings = result["settings"]
        if found == 1:
            sampler = settings["sampler"]
            sampler["noise"] = {"pixel": "independent", "shared": "shared"}[sampler.pop("latent", "pixel")]
            result["weights_sha256"] = None  # format 1 hashed something else
        if found < 3:  # figures were on the crop alone; of which size without one was not written down
            result["data"]["size"] = settings["crop"] and [settings["crop"]] * 2
            settings |= {"set": "independent", "pool": settings["samples"]}
        # what was not written down when all targets were independent
        result["data"] = {"kind": "independent", "marked": {}} | result["data"]
        return {"references_by_target": {target: {} for target in result.get("by_target", ())}} | result
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: expected the metrics of an evaluation, found something else") from error


def read_samples(folder: str | Path) -> dict[str, Tensor]:
    """The masks of `--save-samples`: case -> `(n, K, H, W)` uint8."""
    out: dict[str, Tensor] = {}
    files = sorted((Path(folder) / "samples").glob("*.npz"))
    expect(files, folder, "an evaluation with --save-samples", "no samples/*.npz in it")
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            shape = tuple(int(side) for side in stored["shape"])
            bits = np.unpackbits(stored["packed"], axis=1, count=int(np.prod(shape)))
            out |= {str(c): torch.from_numpy(m.reshape(shape)) for c, m in zip(stored["case"], bits, strict=True)}
    return out

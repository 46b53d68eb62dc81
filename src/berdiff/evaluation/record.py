"""The folder of an evaluation: its settings, a part for each batch while it runs, the results when it is done.

settings.json     what was asked; another evaluation may not go on in the same folder
parts/NNNNN.json  the values of one batch, written whole: a killed evaluation goes on after the last of them
samples/NNNNN.npz with --save-samples, the masks of one batch, eight pixels a byte
per_case.csv, table.md, metrics.json   the results; metrics.json comes last, so where it is, all is
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from berdiff.errors import InputError
from berdiff.evaluation.scores import Scores
from berdiff.evaluation.summary import Columns, join, to_csv
from berdiff.files import whole_file, write_text

FORMAT = 1
References = dict[str, Columns]


class Record:
    """Opens or begins the evaluation in `folder`; `settings` must be plain JSON types.

    It begins with the first batch: settings that turn out not to work leave nothing behind that refuses better ones.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = Path(folder), {"format": FORMAT, **settings}
        file = self.folder / "settings.json"
        begun = any((self.folder / "parts").glob("*.json")) or (self.folder / "metrics.json").is_file()
        old = _settings_in(file)
        if old is not None and begun:
            _refuse_other(folder, old, self.settings)
        elif old is not None:  # killed before its first batch was whole
            shutil.rmtree(self.folder / "samples", ignore_errors=True)
        elif self.folder.is_dir() and any(not f.match(".settings.json.*.part") for f in self.folder.iterdir()):
            raise InputError(f"{folder}: expected a new folder or one of this evaluation, found other files in it")
        for place in (self.folder, self.folder / "parts", self.folder / "samples"):
            for leftover in place.glob(".*.part"):  # half written when it was killed
                leftover.unlink(missing_ok=True)

    # --- while it runs -----------------------------------------------------------------------------------------------

    def has(self, batch: int) -> bool:
        return self._part(batch).is_file()

    def add(self, batch: int, columns: Columns, references: References, samples: Tensor | None = None) -> None:
        """Keep one batch; the part is written last, so where it is, its settings and samples are."""
        write_text(self.folder / "settings.json", _json(self.settings))
        if samples is not None:
            with whole_file(self._samples(batch)) as part, part.open("wb") as file:
                packed = np.packbits(samples.flatten(1).numpy(), axis=1)
                case = columns["case"].reshape(len(samples), -1)[:, 0].astype(str)
                np.savez(file, case=case, packed=packed, shape=np.array(samples.shape[1:]))
        plain = {"columns": _plain(columns), "references": {name: _plain(c) for name, c in references.items()}}
        write_text(self._part(batch), json.dumps(plain))

    def gathered(self, batches: int) -> tuple[Columns, References]:
        """All parts, one after the other."""
        parts = [self._read(batch) for batch in range(batches)]
        names = parts[0][1]
        return join(c for c, _ in parts), {name: join(r[name] for _, r in parts) for name in names}

    def _read(self, batch: int) -> tuple[Columns, References]:
        file = self._part(batch)
        try:
            plain = json.loads(file.read_text(encoding="utf-8"))
            return _columns(plain["columns"]), {name: _columns(c) for name, c in plain["references"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{file}: expected the values of a batch, found a damaged file; remove it") from error

    def _part(self, batch: int) -> Path:
        return self.folder / "parts" / f"{batch:05d}.json"

    def _samples(self, batch: int) -> Path:
        return self.folder / "samples" / f"{batch:05d}.npz"

    # --- when it is done ---------------------------------------------------------------------------------------------

    def result(self) -> dict[str, Any] | None:
        """metrics.json, if the evaluation was finished."""
        if not (self.folder / "metrics.json").is_file():
            return None
        self._remove_parts()
        return read_result(self.folder)

    def finish(self, columns: Columns, table: str, result: dict[str, Any]) -> None:
        write_text(self.folder / "per_case.csv", to_csv(columns))
        write_text(self.folder / "table.md", table)
        write_text(self.folder / "metrics.json", _json(result))
        self._remove_parts()

    def _remove_parts(self) -> None:
        shutil.rmtree(self.folder / "parts", ignore_errors=True)


def read_result(folder: Path) -> dict[str, Any]:
    """metrics.json of a finished evaluation."""
    file = folder / "metrics.json"
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        if result["format"] != FORMAT:
            raise InputError(f"{file}: expected an evaluation of format {FORMAT}, found {result['format']!r}")
        return result
    except OSError as error:
        raise InputError(f"{folder}: expected a finished evaluation with metrics.json, found none") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file}: expected the metrics of an evaluation, found something else") from error


def read_samples(folder: str | Path) -> dict[str, Tensor]:
    """The masks of `--save-samples`: case -> `(n, K, H, W)` uint8."""
    out: dict[str, Tensor] = {}
    files = sorted((Path(folder) / "samples").glob("*.npz"))
    if not files:
        raise InputError(f"{folder}: expected an evaluation with --save-samples, found no samples/*.npz in it")
    for file in files:
        with np.load(file, allow_pickle=False) as stored:
            shape = tuple(int(side) for side in stored["shape"])
            bits = np.unpackbits(stored["packed"], axis=1, count=int(np.prod(shape)))
            out |= {str(c): torch.from_numpy(m.reshape(shape)) for c, m in zip(stored["case"], bits, strict=True)}
    return out


def flat(scores: Scores) -> Columns:
    """(B, K) a metric -> one entry a case and target, case by case."""
    return {name: values.reshape(-1) for name, values in scores.items()}


def _settings_in(file: Path) -> dict[str, Any] | None:
    """The settings of an evaluation; None where there are none, or the file is somebody else's."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return settings if isinstance(settings, dict) and "weights_sha256" in settings else None


def _refuse_other(folder: str | Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        changed = "; ".join(f"{name}: there {old.get(name)!r}, now {new.get(name)!r}" for name in names)
        raise InputError(f"{folder}: expected the evaluation it was begun with, found other settings ({changed})")


def _plain(columns: Columns) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in columns.items()}


def _columns(plain: dict[str, list[Any]]) -> Columns:
    texts = {name for name, values in plain.items() if values and isinstance(values[0], str)}
    return {name: np.array(values, dtype=object if name in texts else None) for name, values in plain.items()}


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"

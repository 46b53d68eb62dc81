"""Several evaluations on the cases they share: differences with a paired bootstrap over patients."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.errors import InputError
from berdiff.evaluation.bootstrap import PatientBootstrap
from berdiff.evaluation.record import read_result
from berdiff.evaluation.summary import TEXT, TIME, Columns, from_csv, higher_is_better, label, take, units
from berdiff.evaluation.tables import interval, number


@dataclass(frozen=True, eq=False)
class Evaluation:
    name: str
    columns: Columns
    result: dict[str, Any]


def compare(folders: list[Path], seed: int = 0) -> dict[str, Any]:
    """The first evaluation against each of the others, in plain JSON types."""
    if len(folders) < 2:
        raise InputError(f"expected at least two evaluations to compare, found {len(folders)}")
    return compare_evaluations([load(folder, _name(folder, folders)) for folder in folders], seed)


def compare_evaluations(evaluations: list[Evaluation], seed: int = 0) -> dict[str, Any]:
    """The same for evaluations in memory."""
    evaluations = _shared(evaluations)
    first, *others = evaluations
    bootstrap = PatientBootstrap(first.columns["patient"], seed)
    base = units(first.columns)
    rows = []
    for other in others:
        found = units(other.columns)
        for metric in (m for m in base if m in found):
            (a, patients), (b, _) = base[metric], found[metric]
            difference = bootstrap.estimate(b - a, patients)
            rows.append(
                {
                    "metric": metric,
                    "first": first.name,
                    "other": other.name,
                    "first_value": float(a.mean()),
                    "other_value": float(b.mean()),
                    "difference": difference.plain(),
                    "better": _verdict(metric, difference.low, difference.high, first.name, other.name),
                }
            )
    return {
        "evaluations": [e.name for e in evaluations],
        "cases": len(set(first.columns["case"])),
        "patients": len(bootstrap.patients),
        "settings_that_differ": _differing(evaluations),
        "rows": rows,
    }


def comparison_rows(comparison: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """(header, rows) of the one table: a line for each evaluation under each metric."""
    first, *others = comparison["evaluations"]
    found = {(row["metric"], row["other"]): row for row in comparison["rows"]}
    body = []
    for metric in dict.fromkeys(row["metric"] for row in comparison["rows"]):
        against = [found[metric, other] for other in others if (metric, other) in found]
        body.append([label(metric), first, number(against[0]["first_value"]), "", "", ""])
        for row in against:
            difference = row["difference"]
            verdict = "" if metric == TIME else row["better"] or "undecided"
            values = [number(row["other_value"]), number(difference["value"]), interval(difference), verdict]
            body.append(["", row["other"], *values])
    return ["", "evaluation", "value", f"minus {first}", "95 % interval", "better"], body


def load(folder: Path, name: str) -> Evaluation:
    """A finished evaluation."""
    result = read_result(folder)
    return Evaluation(name, from_csv(folder / "per_case.csv"), result)


def average(evaluations: list[Evaluation], name: str) -> Evaluation:
    """One evaluation of several that differ in the training seed alone: each slice has the mean of its values.

    Counts of pixels are averaged too, so a Dice by volume is that of all seeds' pixels together.
    """
    alike = _shared(evaluations)
    first = alike[0]
    columns = {
        column: values if column in TEXT else np.mean([e.columns[column] for e in alike], axis=0)
        for column, values in first.columns.items()
    }
    return Evaluation(name, columns, first.result)


def _name(folder: Path, folders: list[Path]) -> str:
    """A folder's own name, unless two are alike."""
    alike = [f for f in folders if f.resolve().name == folder.resolve().name]
    return folder.resolve().name if len(alike) == 1 else str(folder)


def _shared(evaluations: list[Evaluation]) -> list[Evaluation]:
    """Only the cases (and targets) that all have, in one order; the readers' masks must be the same ones."""
    keys = [list(zip(e.columns["case"], e.columns["target"], strict=True)) for e in evaluations]
    common = sorted(set(keys[0]).intersection(*keys[1:]))
    if not common:
        raise InputError(f"{' and '.join(e.name for e in evaluations)}: expected cases in common, found none")
    out = []
    for evaluation, own in zip(evaluations, keys, strict=True):
        place = {key: i for i, key in enumerate(own)}
        rows = np.array([place[key] for key in common])
        out.append(Evaluation(evaluation.name, take(evaluation.columns, rows), evaluation.result))
    first = out[0].columns
    for other in out[1:]:
        same = np.ones(len(common), bool)
        for column in ("patient", "volume", "raters", "pixels_majority"):
            same &= first[column] == other.columns[column]
        same &= np.isclose(first["d_yy"], other.columns["d_yy"], rtol=0, atol=1e-9)  # a mean rounds as its batch has it
        if not same.all():
            case = first["case"][~same][0]
            raise InputError(
                f"{out[0].name} and {other.name}: expected the same readers' masks, found other ones for the case "
                f"{case}: another store or crop"
            )
    return out


def _verdict(metric: str, low: float | None, high: float | None, first: str, other: str) -> str | None:
    """Who is better where the interval leaves out 0; None where it does not, or for times (machines differ)."""
    if metric == TIME or low is None or high is None or low <= 0 <= high:
        return None
    return other if (low > 0) == higher_is_better(metric) else first


def _differing(evaluations: list[Evaluation]) -> dict[str, list[Any]]:
    """Settings that are not the same in all: a reader of the table should know them."""
    settings = [_flat(e.result["settings"]) for e in evaluations]
    return {
        name: [s.get(name) for s in settings] for name in settings[0] if len({str(s.get(name)) for s in settings}) > 1
    }


def _flat(settings: dict[str, Any]) -> dict[str, Any]:
    sampler = {f"sampler.{name}": value for name, value in settings["sampler"].items()}
    return {name: value for name, value in settings.items() if name != "sampler"} | sampler

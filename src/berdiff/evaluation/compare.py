"""Several evaluations on the cases they share: differences with a paired bootstrap over patients."""

from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from berdiff.data.describe import by, check, expect
from berdiff.errors import InputError
from berdiff.evaluation.bootstrap import Figure, PatientBootstrap
from berdiff.evaluation.evaluation_folder import read_result
from berdiff.evaluation.layout import interval, number
from berdiff.evaluation.per_case import TEXT, Columns, by_target, from_csv, take, units
from berdiff.evaluation.report import captions, tables_of
from berdiff.metrics import find_metric
from berdiff.text_tables import TextTable, as_html, as_text


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A finished evaluation: its name, its figures per case and its `metrics.json`."""

    name: str
    columns: Columns
    result: dict[str, Any]

    @property
    def metrics(self) -> dict[str, float | None]:
        """Every metric by its name in `metrics.json`; `result` has their intervals too."""
        return {name: figure["value"] for name, figure in self.result["metrics"].items()}

    def tables(self) -> list[TextTable]:
        """What `berdiff evaluate` prints."""
        return tables_of(self.result)

    def __repr__(self) -> str:
        return as_text(self.tables()[:1], captions(self.result)[:1])

    def _repr_html_(self) -> str:
        return as_html(self.tables()[:1], captions(self.result)[:1])


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare_evaluations` found."""

    result: dict[str, Any]

    def _shown(self) -> tuple[list[TextTable], list[str]]:
        return comparison_tables(self.result), [about(self.result)]

    def __repr__(self) -> str:
        return as_text(*self._shown())

    def _repr_html_(self) -> str:
        return as_html(*self._shown())


def load(folder: Path, name: str) -> Evaluation:
    """A finished evaluation."""
    return Evaluation(name, result={**read_result(folder)}, columns=from_csv(folder / "per_case.csv"))


def compare(folders: list[Path], seed: int = 0) -> dict[str, Any]:
    """The first evaluation against each of the others, in plain JSON types."""
    check(len(folders) >= 2, "a comparison needs at least two evaluations", "missing")
    expect(seed >= 0, "--seed", "at least 0", seed)
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = list(map(str, folders))
    return compare_evaluations([load(*pair) for pair in zip(folders, names, strict=True)], seed)


def compare_evaluations(evaluations: list[Evaluation], seed: int = 0) -> dict[str, Any]:
    """Of several targets that all have: `rows` are means over the targets, `by_target` has each by itself."""
    shared = _shared(evaluations)
    first = shared[0]
    bootstrap = PatientBootstrap(first.columns["patient"], seed)
    targets = [name for name in by_target(evaluations[0].columns) if name in first.columns["target"]]
    each = targets if len(targets) > 1 else []
    return {
        "evaluations": [evaluation.name for evaluation in evaluations],
        "cases": len(set(first.columns["case"])),
        "patients": len(bootstrap.patients),
        "targets": targets,
        "settings_that_differ": _differing(evaluations),
        "rows": _rows(shared, bootstrap),
        "by_target": {name: _rows([_of_target(e, name) for e in shared], bootstrap) for name in each},
    }


def _of_target(evaluation: Evaluation, target: str) -> Evaluation:
    return replace(evaluation, columns=take(evaluation.columns, evaluation.columns["target"] == target))


def _rows(evaluations: list[Evaluation], bootstrap: PatientBootstrap) -> list[dict[str, Any]]:
    """Every metric of the first against each of the others, patient by patient."""
    first, *others = evaluations
    base = units(first.columns)
    rows = []
    for other in others:
        found = units(other.columns)
        for metric in (m for m in base if m in found and find_metric(m).of != "raters"):
            (a, patients), (b, _) = base[metric], found[metric]
            difference = bootstrap.estimate(b - a, patients)
            row = {"metric": metric, "first": first.name, "other": other.name, "difference": difference}
            row |= {"first_value": float(a.mean()), "other_value": float(b.mean())}
            rows.append(row | {"better": _better(metric, difference, first.name, other.name)})
    return rows


def comparison_tables(comparison: dict[str, Any]) -> list[TextTable]:
    """One line for each evaluation under each metric. Of several targets: a table of their mean, then one of each with
    the main metrics, for a label of metric and target is too long for a terminal."""
    first, each = comparison["evaluations"][0], comparison["by_target"]
    heads = ["evaluation", "value", f"minus {first}", "95 % interval", "better"]
    tables = [(["mean over targets" if each else "", *heads], _lines(comparison["rows"], first))]
    for target, rows in each.items():
        main = [row for row in rows if find_metric(row["metric"]).main]
        tables.append(([f"target {target}", *heads], _lines(main, first)))
    return tables


def about(comparison: dict[str, Any]) -> str:
    """What one must know to read the tables."""
    return (
        f"{comparison['cases']} shared cases of {comparison['patients']} patients; intervals: 95 % bootstrap over "
        "patients, paired. One is called better where the interval leaves out 0."
    )


def with_letters(comparison: dict[str, Any]) -> tuple[list[TextTable], list[str]]:
    """The same tables with a letter for each evaluation, and what the letters mean: names can be long."""
    letters = {name: chr(ord("A") + i) for i, name in enumerate(comparison["evaluations"])}

    def replaced(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**row, "other": letters[row["other"]], "better": letters.get(row["better"])} for row in rows]

    by_target = {target: replaced(rows) for target, rows in comparison["by_target"].items()}
    short = {**comparison, "evaluations": list(letters.values()), "rows": replaced(comparison["rows"])}
    tables = comparison_tables({**short, "by_target": by_target})
    for header, _ in tables:
        header[1] = ""
    return tables, [f"{letter}: {name}" for name, letter in letters.items()]


def _lines(rows: list[dict[str, Any]], first: str) -> list[list[str]]:
    body: list[list[str]] = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        against = [row for row in rows if row["metric"] == metric]
        body.append([find_metric(metric).label, first, number(against[0]["first_value"]), "", "", ""])
        for row in against:
            difference = row["difference"]
            verdict = row["better"] or "undecided" if find_metric(metric).direction else ""
            values = [number(row["other_value"]), number(difference["value"]), interval(difference), verdict]
            body.append(["", row["other"], *values])
    return body


def average(evaluations: list[Evaluation], name: str) -> Evaluation:
    """One evaluation of several that differ in the training seed alone: each slice has the mean of its values.

    Counts of pixels are averaged too, so a Dice by volume is that of all seeds' pixels together.
    """
    first, *others = _shared(evaluations)
    columns = {
        column: values if column in TEXT else np.mean([values, *(e.columns[column] for e in others)], axis=0)
        for column, values in first.columns.items()
    }
    return Evaluation(name, columns, first.result)


def _shared(evaluations: list[Evaluation]) -> list[Evaluation]:
    """Only the cases (and targets) that all have, in one order; the raters' masks must be the same ones, and whole."""
    for first, other in pairwise(evaluations):
        sizes = [e.result["data"]["size"] for e in (first, other)]
        names = f"{first.name} and {other.name}"
        expect(sizes[0] == sizes[1], names, "figures on images of one size", " and ".join(map(by, sizes)), "shape")
    keys = [list(zip(e.columns["case"], e.columns["target"], strict=True)) for e in evaluations]
    common = sorted(set(keys[0]).intersection(*keys[1:]))
    expect(common, " and ".join(e.name for e in evaluations), "cases in common", code="missing")
    out = []
    for evaluation, own in zip(evaluations, keys, strict=True):
        place = {key: i for i, key in enumerate(own)}
        rows = np.array([place[key] for key in common])
        out.append(replace(evaluation, columns=take(evaluation.columns, rows)))
    first = out[0].columns
    for other in out[1:]:
        # a mean rounds differently in another batch
        same = np.isclose(first["d_yy"], other.columns["d_yy"], rtol=0, atol=1e-9)
        for column in ("patient", "volume", "raters", "pixels_majority"):
            same &= first[column] == other.columns[column]
        for case in first["case"][~same]:
            names = f"{out[0].name} and {other.name}"
            raise InputError(f"{names}: the raters' masks of the case {case} differ: another store", "changed")
    return out


def _better(metric: str, difference: Figure, first: str, other: str) -> str | None:
    """Which is better where the interval leaves out 0; None where it does not, or no direction is the better one."""
    low, high = difference["low"], difference["high"]
    best = find_metric(metric).direction
    if not best or low is None or high is None or low <= 0 <= high:
        return None
    return other if (low > 0) == (best == "higher") else first


def _differing(evaluations: list[Evaluation]) -> dict[str, list[Any]]:
    """Settings that are not the same in all: whoever reads the table should know them."""
    settings: list[dict[str, Any]] = []
    for evaluation in evaluations:
        own = dict(evaluation.result["settings"])
        sampler = own.pop("sampler") or {}
        settings.append(own | {f"sampler.{name}": value for name, value in sampler.items()})
    values = {name: [each.get(name) for each in settings] for name in dict.fromkeys(chain(*settings))}
    return {name: found for name, found in values.items() if any(value != found[0] for value in found)}

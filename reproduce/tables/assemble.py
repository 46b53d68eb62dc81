"""From the rows' evaluations to the content of table.json, in plain JSON types."""

from dataclasses import asdict, dataclass
from typing import Any

from berdiff.evaluation.bootstrap import PatientBootstrap
from berdiff.evaluation.compare import Evaluation, average, compare_evaluations
from berdiff.evaluation.per_case import summarise
from berdiff.evaluation.report import extent
from reproduce.tables.spec import Claim, PaperTable, TableRow
from reproduce.tables.table_job import TableJob

SEED = 0  # of the bootstrap


@dataclass(frozen=True, eq=False)
class FinishedRow:
    """A row that is trained and evaluated."""

    row: TableRow
    parts: list[Evaluation]  # one per seed
    steps: list[int | None]  # it was trained for, one per seed; None where the model was given


def assemble(job: TableJob, finished: list[FinishedRow]) -> dict[str, Any]:
    """What table.json holds. Nothing in it depends on the clock: a table made twice is the same."""
    table = job.table
    averaged = {each.row.name: average(each.parts, each.row.name) for each in finished}
    rows = [_row(table, each, averaged[each.row.name]) for each in finished]
    return {
        "table": table.name,
        "title": table.title,
        "heads": list(table.heads),
        "metrics": list(table.metrics),
        "rows": rows,
        "references": _references(table, finished),
        "others": {name: dict(values) for name, values in table.others.items()},
        "claims": [_decided(table, claim, averaged) for claim in table.claims],
        "caption": _caption(job, finished, rows),
    }


def _row(table: PaperTable, finished: FinishedRow, evaluation: Evaluation) -> dict[str, Any]:
    row, columns = finished.row, evaluation.columns
    bootstrap = PatientBootstrap(columns["patient"], SEED)
    figures = summarise(columns, bootstrap)
    shown = [metric for metric in table.metrics if metric in figures]
    by_seed = [part.result["metrics"] for part in finished.parts]
    return {
        "name": row.name,
        "label": list(row.label),
        "steps": finished.steps,
        "slices": len(set(columns["case"])),
        "patients": len(bootstrap.patients),
        "metrics": {metric: figures[metric] for metric in shown},
        "by_seed": {metric: [each[metric]["value"] for each in by_seed] for metric in shown},
        "paper": None if row.paper is None else dict(row.paper),
        "sampler": evaluation.result["settings"]["sampler"],
    }


def _references(table: PaperTable, finished: list[FinishedRow]) -> dict[str, dict[str, float]]:
    """What needs no model, on the slices of the row that has the most."""
    largest = max(finished, key=lambda each: each.parts[0].result["data"]["cases"])
    return {
        kind: {metric: values[metric]["value"] for metric in table.metrics if metric in values}
        for kind, values in largest.parts[0].result["references"].items()
        if any(metric in values for metric in table.metrics)
    }


def _decided(table: PaperTable, claim: Claim, averaged: dict[str, Evaluation]) -> dict[str, Any]:
    """Which row is better where both were evaluated, by each of the metrics that decide."""
    compared = compare_evaluations([averaged[claim.better], averaged[claim.worse]], SEED)
    verdicts = {claim.better: "yes", claim.worse: "no", None: "undecided"}
    metrics = {
        row["metric"]: {
            "better": row["first_value"],
            "worse": row["other_value"],
            "difference": row["difference"],
            "verdict": verdicts[row["better"]],
        }
        for row in compared["rows"]
        if row["metric"] in table.deciding
    }
    return {**asdict(claim), "slices": compared["cases"], "patients": compared["patients"], "metrics": metrics}


def _caption(job: TableJob, finished: list[FinishedRow], rows: list[dict[str, Any]]) -> list[str]:
    """What one must know to read the table."""
    scale, first = job.scale, finished[0].parts[0].result
    seeds = job.seeds
    slices, patients = ([row[key] for row in rows] for key in ("slices", "patients"))
    mean = f" of the mean of {seeds} seeds; each seed's own figure in table.csv." if seeds > 1 else ", one seed."
    trained = (
        f"{scale.training(job.table.rows)}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}; `training steps` is how many that were."
    )
    lines = [
        f"Scale {scale.name}: {trained if job.model is None else f'one given model, {job.model}.'}",
        f"Data: {first['data']['source']}, split {scale.split}, {_span(slices)} slices of {_span(patients)} patients; "
        f"{scale.samples} samples per slice; {extent(first)}. Rows with fewer slices have the first of the same order.",
        f"Intervals: 95 % bootstrap over patients{mean}",
        "The paper's rows are of its own preparation and split of the data: another set of slices, so not comparable.",
    ]
    if scale.split == "all":
        lines.append(
            f"A SMOKE FIGURE: the store has no train and test split, so its patients ({max(patients)}) were trained on "
            "and evaluated; it shows that the command runs, and nothing about the methods."
        )
    return lines + [f"{note}." for note in job.store.notes]


def _span(values: list[int]) -> str:
    return f"{min(values)}" if min(values) == max(values) else f"{min(values)} to {max(values)}"

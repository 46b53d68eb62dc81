"""From the rows' evaluations to the figures of a table, in plain JSON types."""

from dataclasses import asdict, dataclass
from typing import Any

from berdiff.data.store import Store
from berdiff.evaluation.bootstrap import PatientBootstrap
from berdiff.evaluation.compare import Evaluation, average, compare_evaluations
from berdiff.evaluation.summary import summarise
from berdiff.experiments.tables.row import Claim, Row, Table
from berdiff.experiments.tables.scale import Scale
from berdiff.training.config import LoopConfig

SEED = 0  # of the bootstrap


@dataclass(frozen=True, eq=False)
class Done:
    """A row that is trained and judged."""

    row: Row
    parts: list[Evaluation]  # one a seed
    steps: list[int | None]  # it was trained for, one a seed; None where the model was given


def figures(
    table: Table, scale: Scale, store: Store, done: list[Done], seeds: int, model: str | None
) -> dict[str, Any]:
    """What table.json holds. Nothing in it depends on the clock: a table made twice is the same."""
    averaged = {each.row.name: average(each.parts, each.row.name) for each in done}
    rows = [_row(table, each, averaged[each.row.name]) for each in done]
    return {
        "table": table.name,
        "title": table.title,
        "heads": list(table.heads),
        "metrics": list(table.metrics),
        "rows": rows,
        "references": _references(table, done),
        "others": {name: dict(values) for name, values in (table.others or {}).items()},
        "claims": [_claim(table, claim, averaged) for claim in table.claims],
        "caption": caption(scale, store, done, rows, seeds, model),
    }


def _row(table: Table, done: Done, evaluation: Evaluation) -> dict[str, Any]:
    columns = evaluation.columns
    bootstrap = PatientBootstrap(columns["patient"], SEED)
    estimates = summarise(columns, bootstrap)
    by_seed = [part.result["metrics"] for part in done.parts]
    shown = [metric for metric in table.metrics if metric in estimates]
    row = done.row
    return {
        "name": row.name,
        "label": list(row.label),
        "steps": done.steps,
        "slices": len(set(columns["case"])),
        "patients": len(bootstrap.patients),
        "metrics": {metric: estimates[metric].plain() for metric in shown},
        "by_seed": {metric: [each[metric]["value"] for each in by_seed] for metric in shown},
        "paper": None if row.paper is None else dict(row.paper),
        "sampler": asdict(row.settings.sampler),
    }


def _references(table: Table, done: list[Done]) -> dict[str, dict[str, float]]:
    """What needs no model, on the slices of the row that has the most."""
    most = max(done, key=lambda each: each.parts[0].result["data"]["cases"])
    references = most.parts[0].result["references"]
    return {
        kind: {metric: values[metric]["value"] for metric in table.metrics if metric in values}
        for kind, values in references.items()
        if any(metric in values for metric in table.metrics)
    }


def _claim(table: Table, claim: Claim, averaged: dict[str, Evaluation]) -> dict[str, Any]:
    """Who is better where both were judged, by each of the metrics that decide."""
    compared = compare_evaluations([averaged[claim.better], averaged[claim.worse]], SEED)
    by_metric = {row["metric"]: row for row in compared["rows"]}
    verdicts = {}
    for metric in (m for m in table.judged if m in by_metric):
        row = by_metric[metric]
        said = {claim.better: "yes", claim.worse: "no", None: "undecided"}[row["better"]]
        figures = {"better": row["first_value"], "worse": row["other_value"], "difference": row["difference"]}
        verdicts[metric] = figures | {"verdict": said}
    return {**asdict(claim), "slices": compared["cases"], "patients": compared["patients"], "metrics": verdicts}


def budget(loop: LoopConfig) -> str:
    return f"{loop.max_steps:,} steps" if loop.max_minutes is None else f"{loop.max_minutes:g} minutes"


def caption(
    scale: Scale, store: Store, done: list[Done], rows: list[dict[str, Any]], seeds: int, model: str | None
) -> list[str]:
    """What one must know to read the table."""
    first = done[0].parts[0].result
    crop = first["settings"]["crop"]
    size = f", centre {crop}x{crop}" if crop else ""
    lines = [_training(scale, done, seeds) if model is None else f"Scale {scale.name}: one given model, {model}."]
    slices, patients = ([row[key] for row in rows] for key in ("slices", "patients"))
    lines.append(
        f"Data: {first['data']['source']}, split {scale.split}, {_span(slices)} slices of {_span(patients)} patients"
        f"{size}; {scale.samples} samples a slice. Rows with fewer slices have the first of the same order."
    )
    lines.append(
        "Intervals: 95 % bootstrap over patients"
        + (f" of the mean of {seeds} seeds; each seed's own figure in table.csv." if seeds > 1 else ", one seed.")
    )
    lines.append(
        "The paper's rows are of its own preparation and split of the data: another set of slices, so not comparable."
    )
    if scale.split == "all":
        lines.append(
            f"A SMOKE FIGURE: the store has no train and test split, so its patients ({max(patients)}) were trained on "
            "and judged; it shows that the command runs, and nothing about the methods."
        )
    return lines + [f"{note}." for note in store.notes]


def _training(scale: Scale, done: list[Done], seeds: int) -> str:
    budgets = dict.fromkeys(budget(each.row.config.loop) for each in done)
    config = done[0].row.config
    return (
        f"Scale {scale.name}: network {config.model.preset}, batches of {config.loop.batch_size}, "
        f"{' and '.join(budgets)} of training, {seeds} seed{'s' if seeds > 1 else ''}; "
        "`training steps` is how many that were."
    )


def _span(values: list[int]) -> str:
    return f"{min(values)}" if min(values) == max(values) else f"{min(values)} to {max(values)}"

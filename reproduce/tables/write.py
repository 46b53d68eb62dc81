"""From the rows' evaluations to what table.json holds, and that as JSON, Markdown, CSV and a picture, each whole."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from berdiff import schema
from berdiff.evaluation.bootstrap import Figure, PatientBootstrap
from berdiff.evaluation.compare import Evaluation, average, compare_evaluations
from berdiff.evaluation.layout import interval, number, pipes
from berdiff.evaluation.per_case import csv_text, summarise
from berdiff.evaluation.report import extent
from berdiff.files import whole_file, write_text
from berdiff.metrics import find_metric
from berdiff.text_tables import TextTable
from reproduce.tables.spec import Claim, PaperTable, TableRow

if TYPE_CHECKING:
    from reproduce.tables.run import TableJob

SEED = 0  # of the bootstrap


@dataclass(frozen=True, eq=False)
class FinishedRow:
    """A row that is trained and evaluated."""

    row: TableRow
    parts: list[Evaluation]  # one per seed
    steps: list[int | None]  # it was trained for, one per seed; None where the model was given


def assemble(job: "TableJob", finished: list[FinishedRow]) -> dict[str, Any]:
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


def _caption(job: "TableJob", finished: list[FinishedRow], rows: list[dict[str, Any]]) -> list[str]:
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


# --- files ------------------------------------------------------------------------------------------------------------

OURS, PAPER, REFERENCE = "ours", "the paper's", "reference"
SIZES = ("training steps", "slices", "patients")  # `steps` alone is the sampler's, a head of table A1


@dataclass(frozen=True)
class TableLine:
    cells: list[str]  # under the table's heads
    whose: str
    figures: dict[str, Figure]
    seed: str = ""  # "mean" of all seeds, or the number of one
    sizes: tuple[Any, ...] = ("", "", "")


def write(result: dict[str, Any], out: Path) -> None:
    lines = list(_lines(result))
    write_text(out / "table.md", _markdown(result, lines))
    header = [*result["heads"], "whose", "seed", "metric", "value", "low", "high", *SIZES]
    values = (  # one line per row, seed and metric; the mean over seeds has the interval
        [*line.cells, line.whose, line.seed, metric, *figure.values(), *line.sizes]
        for line in lines
        for metric, figure in line.figures.items()
    )
    write_text(out / "table.csv", csv_text([header, *values]))
    _picture(result, out / "table.png")
    write_text(out / "table.json", schema.dump(result))


def _lines(result: dict[str, Any]) -> Iterator[TableLine]:
    """Each of our rows, its seeds and the paper's row, then the paper's others and the reference points."""
    for row in result["rows"]:
        cells, counts, steps = row["label"], (row["slices"], row["patients"]), row["steps"]
        yield TableLine(cells, OURS, row["metrics"], "mean", (", ".join(str(s) for s in steps if s), *counts))
        for seed, trained in enumerate(steps):
            of_seed = _figures({metric: values[seed] for metric, values in row["by_seed"].items()})
            yield TableLine(cells, OURS, of_seed, str(seed), (trained, *counts))
        if row["paper"]:
            yield TableLine(cells, PAPER, _figures(row["paper"]))
    blank = [""] * (len(result["heads"]) - 1)
    for whose, group in ((PAPER, result["others"]), (REFERENCE, result["references"])):
        for name, values in group.items():
            yield TableLine([name, *blank], whose, _figures(values))


def _figures(values: dict[str, float]) -> dict[str, Figure]:
    return {metric: {"value": value, "low": None, "high": None} for metric, value in values.items()}


def _markdown(result: dict[str, Any], lines: list[TableLine]) -> str:
    metrics = result["metrics"]
    header = [*result["heads"], "whose", *(f"{find_metric(m).label} {_arrow(m)}" for m in metrics), *SIZES]
    body = [
        [*line.cells, line.whose, *(_with_interval(line.figures.get(m)) for m in metrics), *map(str, line.sizes)]
        for line in lines
        if line.seed in ("", "mean")
    ]
    text = [f"# {result['title']}", "", *pipes(header, body), *(f"- {line}" for line in result["caption"]), ""]
    if result["claims"]:
        text += ["## Claims, on the slices that both rows have (paired)", "", *pipes(*_claims(result))]
    return "\n".join(text)


def _claims(result: dict[str, Any]) -> TextTable:
    """Each claim by each deciding metric."""
    header = ["claim", "whose", "metric", "better row", "other row", "other - better", "95 % interval", "in our runs"]
    body = []
    for claim in result["claims"]:
        for metric, found in claim["metrics"].items():
            values = [number(value) for value in (found["better"], found["worse"], found["difference"]["value"])]
            values += [interval(found["difference"]), f"{found['verdict']} ({claim['slices']} slices)"]
            body.append([claim["text"], claim["whose"], find_metric(metric).label, *values])
    return header, body


def _picture(result: dict[str, Any], path: Path) -> None:
    """A dot and its interval for each of our rows, and the paper's hollow one beside it."""
    from matplotlib.figure import Figure  # no window, no global state

    rows = result["rows"]
    shown = [m for m in (result["metrics"][0], result["metrics"][-1]) if m in rows[0]["metrics"]]
    figure = Figure(figsize=(4 + 4 * len(shown), 0.42 * len(rows) + 2.6), layout="constrained")
    for ax, metric in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        for place, row in enumerate(rows):
            found, seeds = row["metrics"][metric], row["by_seed"][metric]
            ours, each_seed = (OURS, "each seed") if place == 0 else (None, None)
            ax.plot(found["value"], place, "o", color="tab:blue", label=ours)
            if found["low"] is not None:
                ax.plot([found["low"], found["high"]], [place, place], color="tab:blue")
            if len(seeds) > 1:
                ax.plot(seeds, [place] * len(seeds), "|", color="tab:blue", markersize=10, label=each_seed)
        marked = [(row["paper"][metric], i) for i, row in enumerate(rows) if row["paper"] and metric in row["paper"]]
        if marked:
            values, places = zip(*marked, strict=True)
            ax.plot(values, places, "D", markerfacecolor="none", color="tab:orange", label=f"{PAPER}, on its own data")
        ax.set(title=f"{find_metric(metric).label} {_arrow(metric)}", yticks=range(len(rows)))
        ax.set_yticklabels(row_names(rows))
        ax.grid(axis="x", alpha=0.3)
    figure.axes[0].invert_yaxis()
    what = figure.axes[0].get_legend_handles_labels()  # the paper may have no figure in the other
    figure.axes[-1].legend(*what, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))  # beside the plot: rows fill it
    figure.suptitle(result["title"], fontsize=11)
    figure.supxlabel(fill(" ".join(result["caption"]), 130), fontsize=7, parse_math=False)
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=120)


def row_names(rows: list[dict[str, Any]]) -> list[str]:
    """With their slices where these differ, for then two dots are not to be compared by eye."""
    same = len({row["slices"] for row in rows}) == 1
    return [", ".join(row["label"]) + ("" if same else f" ({row['slices']} slices)") for row in rows]


def _with_interval(figure: Figure | None) -> str:
    if figure is None:
        return ""
    return number(figure["value"]) + (f" ({interval(figure)})" if figure["low"] is not None else "")


def _arrow(metric: str) -> str:
    return f"({find_metric(metric).direction} is better)"

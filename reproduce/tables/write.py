"""A table as Markdown, CSV, a picture and JSON, each file whole; text formats share the same lines."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from berdiff import schema
from berdiff.evaluation.bootstrap import Figure
from berdiff.evaluation.layout import interval, number, pipes
from berdiff.evaluation.per_case import csv_text
from berdiff.files import whole_file, write_text
from berdiff.metrics import find_metric
from berdiff.text_tables import TextTable

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

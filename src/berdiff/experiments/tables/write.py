"""A table as Markdown, CSV, a picture and JSON, each file whole."""

import csv
import io
import json
from pathlib import Path
from textwrap import fill
from typing import Any

from berdiff.evaluation.summary import higher_is_better, label
from berdiff.evaluation.tables import interval, number, pipes
from berdiff.files import whole_file, write_text

OURS, PAPER, REFERENCE = "ours", "the paper's", "reference"
SIZES = ("training steps", "slices", "patients")  # `steps` alone is the sampler's, a head of table A1


def write(result: dict[str, Any], out: Path) -> None:
    write_text(out / "table.md", markdown(result))
    write_text(out / "table.csv", to_csv(result))
    _picture(result, out / "table.png")
    write_text(out / "table.json", json.dumps(result, indent=2) + "\n")


def cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): each of our rows with the paper's below it, then the paper's others and the reference points."""
    metrics = result["metrics"]
    header = [*result["heads"], "whose", *(f"{label(m)} {_arrow(m)}" for m in metrics), *SIZES]
    body = []
    for row in result["rows"]:
        shown = [_with_interval(row["metrics"].get(m)) for m in metrics]
        steps = ", ".join("" if step is None else str(step) for step in row["steps"])
        body.append([*row["label"], OURS, *shown, steps, str(row["slices"]), str(row["patients"])])
        if row["paper"]:
            body.append([*row["label"], PAPER, *(number(row["paper"].get(m)) for m in metrics), "", "", ""])
    blank = [""] * (len(result["heads"]) - 1)
    for whose, group in ((PAPER, result["others"]), (REFERENCE, result["references"])):
        for name, values in group.items():
            body.append([name, *blank, whose, *(number(values.get(m)) for m in metrics), "", "", ""])
    return header, body


def claim_cells(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): each claim by each deciding metric, on the slices that both rows have."""
    header = ["claim", "whose", "metric", "better row", "other row", "other - better", "95 % interval", "ours says"]
    body = [
        [
            claim["text"],
            claim["whose"],
            label(metric),
            number(found["better"]),
            number(found["worse"]),
            number(found["difference"]["value"]),
            interval(found["difference"]),
            f"{found['verdict']} ({claim['slices']} slices)",
        ]
        for claim in result["claims"]
        for metric, found in claim["metrics"].items()
    ]
    return header, body


def markdown(result: dict[str, Any]) -> str:
    lines = [f"# {result['title']}", "", *pipes(*cells(result)), "", *(f"- {line}" for line in result["caption"]), ""]
    if result["claims"]:
        lines += ["## Claims, on the slices that both rows have (paired)", "", *pipes(*claim_cells(result)), ""]
    return "\n".join(lines)


def to_csv(result: dict[str, Any]) -> str:
    """One line a row, seed and metric; the mean over seeds has the interval."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*result["heads"], "whose", "seed", "metric", "value", "low", "high", *SIZES])
    for row in result["rows"]:
        of = row["slices"], row["patients"]
        for metric, found in row["metrics"].items():
            writer.writerow([*row["label"], OURS, "mean", metric, found["value"], found["low"], found["high"], "", *of])
            for seed, (value, steps) in enumerate(zip(row["by_seed"][metric], row["steps"], strict=True)):
                writer.writerow([*row["label"], OURS, seed, metric, value, "", "", steps, *of])
        for metric, value in (row["paper"] or {}).items():
            writer.writerow([*row["label"], PAPER, "", metric, value, *[""] * 5])
    blank = [""] * (len(result["heads"]) - 1)
    for whose, group in ((PAPER, result["others"]), (REFERENCE, result["references"])):
        for name, values in group.items():
            for metric, value in values.items():
                writer.writerow([name, *blank, whose, "", metric, value, *[""] * 5])
    return text.getvalue()


def _picture(result: dict[str, Any], path: Path) -> None:
    """A dot and its interval for each of our rows, and the paper's hollow one beside it."""
    from matplotlib.figure import Figure  # no window, no global state

    shown = [m for m in (result["metrics"][0], result["metrics"][-1]) if m in result["rows"][0]["metrics"]]
    rows = result["rows"]
    figure = Figure(figsize=(4 + 4 * len(shown), 0.42 * len(rows) + 2.6), layout="constrained")
    for ax, metric in zip(figure.subplots(1, len(shown), sharey=True, squeeze=False)[0], shown, strict=True):
        for place, row in enumerate(rows):
            found = row["metrics"][metric]
            low, high = found["low"], found["high"]
            ax.plot(found["value"], place, "o", color="tab:blue", label=OURS if place == 0 else None)
            if low is not None:
                ax.plot([low, high], [place, place], color="tab:blue")
            seeds = row["by_seed"][metric]
            if len(seeds) > 1:
                name = "each seed" if place == 0 else None
                ax.plot(seeds, [place] * len(seeds), "|", color="tab:blue", markersize=10, label=name)
        marked = [(row["paper"][metric], i) for i, row in enumerate(rows) if row["paper"] and metric in row["paper"]]
        if marked:
            values, places = zip(*marked, strict=True)
            ax.plot(values, places, "D", markerfacecolor="none", color="tab:orange", label=f"{PAPER}, on its own data")
        ax.set(title=f"{label(metric)} {_arrow(metric)}", yticks=range(len(rows)))
        ax.set_yticklabels(row_names(rows))
        ax.grid(axis="x", alpha=0.3)
    figure.axes[0].invert_yaxis()
    figure.axes[-1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))  # beside the plot: rows fill it
    figure.suptitle(result["title"], fontsize=11)
    figure.supxlabel(fill(" ".join(result["caption"]), 130), fontsize=7, parse_math=False)
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=120)


def row_names(rows: list[dict[str, Any]]) -> list[str]:
    """Of the rows; with their slices where these differ, for then two dots are not to be compared by eye."""
    names = [", ".join(row["label"]) for row in rows]
    if len({row["slices"] for row in rows}) == 1:
        return names
    return [f"{name} ({row['slices']} slices)" for name, row in zip(names, rows, strict=True)]


def _with_interval(found: dict[str, float | None] | None) -> str:
    if found is None:
        return ""
    text = number(found["value"])
    return f"{text} ({interval(found)})" if found["low"] is not None else text


def _arrow(metric: str) -> str:
    return "(higher is better)" if higher_is_better(metric) else "(lower is better)"

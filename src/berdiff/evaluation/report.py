"""The tables of an evaluation, and what one must know to read them."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from berdiff import schema
from berdiff.data.describe import by
from berdiff.diffusion.sampler import Sampler
from berdiff.evaluation.bootstrap import Figure
from berdiff.evaluation.layout import interval, number, pipes
from berdiff.evaluation.per_case import TIME
from berdiff.evaluation.result_file import Asked, OfData, OfFinding
from berdiff.inference.settings import NEIGHBOURS
from berdiff.methods.sampling import describe
from berdiff.metrics import find_metric
from berdiff.targets.kinds import RULES
from berdiff.text_tables import TextTable

# in tables of their own
DISTANCES = {
    "d_sy": "a sample and a rater, d_SY",
    "d_ss": "two different samples, d_SS",
    "d_yy": "two raters, also one with itself, d_YY",
    "d_raters": "two different raters, D",
}
PARITY = {"samples": "a sample", "raters": "another rater", "difference": "difference"}
SIZES = {"samples": "two samples, voxels", "raters": "two raters, voxels", "ratio": "ratio"}
FINDING = {"ece": "ECE", "ece_if_calibrated": "ECE if calibrated", "r2": "R^2", "ged": "GED, 2 (p - q)^2"}


def tables_of(result: Mapping[str, Any]) -> list[TextTable]:
    """Metrics down: the model beside the paper, the reference points, distances, P(finding), and the targets beside
    each other."""
    metrics, paper, references = result["metrics"], result["paper"], result["references"]
    header = [result["model"], "better", "ours", "95 % interval", *(["the paper's, on its data"] if paper else [])]
    body = []
    for metric in (name for name in metrics if name not in (*DISTANCES, "finding_ged")):
        published = [number(paper["metrics"].get(metric))] if paper else []
        body.append([find_metric(metric).label, find_metric(metric).direction, *_cells(metrics[metric]), *published])
    points = [
        [find_metric(metric).label, *(_value(figures, metric) for figures in references.values())]
        for metric in metrics
        if any(metric in figures for figures in references.values())
    ]
    return [
        (header, body),
        *_targets(result),
        (["reference points", *references], points),
        *_intervals("distance, 1 - IoU, of", DISTANCES, metrics),
        *_intervals("agreement with a rater of", PARITY, result["rater_parity"]),
        *_intervals("difference in volume of", SIZES, result.get("size_spread")),
        *chain(*(_intervals(f"P(finding), {name}", FINDING, of) for name, of in result["finding"].items())),
    ]


def _value(figures: Mapping[str, Figure], metric: str) -> str:
    return number(figures[metric]["value"]) if metric in figures else ""


def _cells(figure: Figure) -> list[str]:
    return [number(figure["value"]), interval(figure)]


def _intervals(title: str, words: dict[str, str], figures: Mapping[str, Any] | None) -> Iterator[TextTable]:
    """Figures with their intervals; no table where there are none."""
    if figures:
        body = [[line, *_cells(figures[name])] for name, line in words.items() if figures.get(name)]
        yield [title, "value", "95 % interval"], body


def _targets(result: Mapping[str, Any]) -> Iterator[TextTable]:
    """Each target beside the mean over targets; none where there is one target."""
    metrics, each = result["metrics"], result["by_target"]
    if each:
        body = [
            [find_metric(metric).label, *(_value(of, metric) for of in (*each.values(), metrics))]
            for metric in dict.fromkeys(chain(*each.values()))
            if metric != TIME
        ]
        yield ["by target", *each, "mean over targets"], body


def _target(target: str, result: Mapping[str, Any]) -> TextTable:
    """One target with its intervals, beside its own reference points."""
    figures, references = result["by_target"][target], result["references_by_target"].get(target, {})
    body = [
        [
            find_metric(metric).label,
            *_cells(figure),
            *(_value(of, metric) for of in references.values()),
        ]
        for metric, figure in figures.items()
        if metric != TIME
    ]
    return [f"target {target}", "value", "95 % interval", *references], body


def _reliability(target: str, figures: OfFinding) -> TextTable:
    return (
        [f"P(finding), {target}", "cases", "mean of samples, p", "mean of raters, q"],
        [
            [f"{row['low']:g} to {row['high']:g}", str(row["cases"]), number(row["p"]), number(row["q"])]
            for row in figures["reliability"]
        ],
    )


def extent(result: Mapping[str, Any]) -> str:
    """Which part of the images the figures are on, and which part the model sees."""
    size, crop = result["data"]["size"], result["settings"]["crop"]
    sides = [crop] * len(size) if isinstance(crop, int) else crop
    seen = "all of it" if sides in (None, size) else f"the centre {by(sides)}"
    return f"figures on the whole {by(size)}; the model sees {seen}"


def captions(result: Mapping[str, Any]) -> list[str]:
    """What one must know to read the tables."""
    data, settings, paper = result["data"], result["settings"], result["paper"]
    n, pool, chosen = settings["samples"], settings["pool"], settings["set"] != "independent"
    sampler = None if settings["sampler"] is None else schema.parse(Sampler, settings["sampler"], str)
    masks = f"{settings['set']} sets of {n} out of {pool} samples" if chosen else f"{n} samples"
    volumes = settings.get("by") == "volume"
    lines = [
        f"{data['cases']} {'volumes' if volumes else 'cases'} of {data['patients']} patients, split "
        f"{settings['split']} of {data['source']}; "
        f"{masks}, {describe(sampler)}, seed {settings['seed']}; {extent(result)}.",
        "Intervals: 95 % bootstrap over patients. Dice: saliency above 0.5 against the raters' majority; by volume and "
        "by patient, of all its evaluated slices together. Two empty masks have Dice and IoU 1.",
        *_marked(data, "volumes" if volumes else "slices"),
        *(_of_volumes(settings) if volumes else ()),
        "exact model: knows p(y|x), of which the R raters are taken to be independent draws, and not the raters; "
        f"its GED is {'D / R, the limit of any set' if chosen else 'D (1/R + 1/n), unbiased D / R'}.",
        "perfect sampler: draws from the case's own raters; its GED is exact, d_YY / n.",
        "P(finding): share of simulated readers who would mark something here, given that someone pointed at it.",
        "ECE if calibrated: what chance gives a model whose P(finding) is right on average, on as many patients; the "
        "mean, and the middle 95 %.",
    ]
    if chosen:
        lines.append(
            f"GED, HM-IoU and D_max are of the sets, all else of the {pool} samples: published figures are of "
            "independent samples, so compare them with --set independent."
        )
    several = data["cases_of_several_raters"]
    if several < data["cases"]:
        lines.append(f"D, agreement and the exact model: of the {several} cases with two raters or more.")
    if paper:
        lines.append(f"The paper's figures are of {paper['data']}: another set of slices, so not comparable.")
    return lines + [f"Data: {note}." for note in data["notes"]]


def _of_volumes(settings: Asked) -> Iterator[str]:
    """What a case is, and how its slices hang together."""
    length = settings.get("coherence") or 0.0
    noise = f"random numbers in neighbouring slices correlate by exp(-{NEIGHBOURS:g} mm / {length:g} mm)"
    yield (
        f"A case is a volume of {settings.get('least_slices') or 1} slices or more, and IoU is over all its voxels; "
        f"of a sample, {noise if length else 'every slice has random numbers of its own'}."
    )
    yield "Difference in volume: of two different samples, and of two different raters, mean over volumes."


def _marked(data: OfData, units: str) -> Iterator[str]:
    """How often most raters mark each target: where they do not, an empty mask is right, and scores 1."""
    cases, patients = data["cases"], data["patients"]
    parts = [f"{name} in {of['cases']} {units}, {of['patients']} patients" for name, of in data["marked"].items()]
    if parts:
        yield f"Marked by most raters, of {cases} {units} and {patients} patients: {'; '.join(parts)}."
    if len(parts) > 1:
        yield f"Targets are {data['kind']}: {RULES[data['kind']]}. Figures without a target are means over the targets."
    if len(parts) > 1 and data["kind"] == "exclusive":
        yield "Likeliest class: of the background and the targets, the one that most samples have in a pixel."


def markdown(result: Mapping[str, Any]) -> str:
    tables = [*tables_of(result), *(_target(target, result) for target in result["by_target"])]
    tables += [_reliability(*each) for each in result["finding"].items()]
    notes = [f"- {line}" for line in captions(result)]
    body = [line for table in tables for line in pipes(*table)]
    return "\n".join([f"# Evaluation of {result['model']}", "", *body, *notes, ""])

"""A result's figures as people read them."""

from typing import Any

from berdiff import schema
from berdiff.diffusion.sampler import Sampler
from berdiff.inference.measurements import measure
from berdiff.inference.result import Result
from berdiff.methods.card import NOT_CLINICAL
from berdiff.methods.sampling import describe

UNITS = {"mm^2": "mm²", "mm^3": "mm³", "px^2": "pixels", "px": "pixels", "voxel": "voxels", "mm": "mm"}
# what the share of samples that mark anything is called, and what it means: once per page or table
MARKED_BY = "marked by"
MARKED_MEANS = "share of simulated readers who would mark something here, given that someone pointed at it"
MARKED_MEANS += "; in a volume, anywhere in the slices that were segmented"
SIZES = {"area": "area", "volume": "volume", "longest_diameter": "longest diameter"}


def notes(result: Result) -> list[str]:
    """What is shown wherever the result is: the notes of data and model, and what it is not for."""
    return [*dict.fromkeys(note for note in result.notes if note.lower() != NOT_CLINICAL), NOT_CLINICAL]


def notes_line(result: Result) -> str:
    """Warnings come first."""
    return "; ".join([*(f"WARNING: {words}" for words in result.warnings), *notes(result)])


def set_words(result: Result) -> str:
    """What the masks are that are shown and written."""
    n, P = len(result.samples), len(result.pool)
    match result.settings.get("set", "independent"):
        case "systematic":
            return f"{n} masks spread evenly by area over {P} samples"
        case "representative":
            return f"{n} masks chosen to represent {P} samples"
        case _:
            return f"{n} samples"


def settings_line(result: Result) -> str:
    """How the masks were sampled."""
    settings = result.settings
    parts = [set_words(result)]
    if "model" in settings:
        parts.append(f"model {settings['model']}")
    if "sampler" in settings:
        plain = settings["sampler"]
        parts.append(describe(plain and schema.parse(Sampler, plain, str)))
    if "seed" in settings:
        parts.append(f"seed {settings['seed']}")
    return ", ".join(parts)


def sizes(measured: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """(what, unit, 5 %, median, 95 %) among the samples that mark the target, in words and rounded figures."""
    return [
        (words, UNITS[of["unit"]], rounded(of["q05"]), rounded(of["q50"]), rounded(of["q95"]))
        for name, words in SIZES.items()
        if (of := measured.get(name))
    ]


def measured_line(measured: dict[str, Any]) -> str:
    parts = [f"{MARKED_BY} {marked_words(measured)}, nothing by {percent(measured['empty_share'])}"]
    if measured["finding_probability"]:
        among = [
            f"{what} {median} {unit} (5 to 95 %: {low} to {high})" for what, unit, low, median, high in sizes(measured)
        ]
        parts.append(f"among samples that mark it {', '.join(among)}")
    return "; ".join(parts)


def measured_words(result: Result, k: int) -> dict[str, Any]:
    """One target's figures: how many samples and raters mark it, and sizes among the samples, with each rater's own."""
    over_samples = result.measurements()[result.targets[k]]
    own = [measure(masks[k][None], result.grid.spacing) for masks in (() if result.raters is None else result.raters)]
    medians = [[median for _, _, _, median, _ in sizes(of)] for of in own]
    rows = [
        {"what": what, "unit": unit, "low": low, "median": median, "high": high, "raters": [of[i] for of in medians]}
        for i, (what, unit, low, median, high) in enumerate(sizes(over_samples))
    ]
    marked = f"{sum(of['finding_probability'] > 0 for of in own)} of {len(own)}" if own else None
    shares = {"marked_by": marked_words(over_samples), "empty": percent(over_samples["empty_share"])}
    return {**shares, "raters_finding": marked, "rows": rows}


def marked_words(measured: dict[str, Any]) -> str:
    """The share of samples that mark anything; of a volume, over how much along z."""
    return f"{percent(measured['finding_probability'])}{over(measured)}"


def over(measured: dict[str, Any]) -> str:
    if "slices" not in measured:
        return ""
    mm = measured["extent_mm"]
    return f" over {measured['slices']} slices" if mm is None else f" over {rounded(mm)} mm"


def rounded(value: float | None) -> str:
    """Three figures are more than such a measure is worth; whole numbers stay whole. None: nothing to measure."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share of the samples: of 16 or of 100 it is exact."""
    return f"{100 * share:.3g} %"

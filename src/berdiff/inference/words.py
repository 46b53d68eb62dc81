"""A result's figures as people read them."""

from typing import Any, NamedTuple

from berdiff.inference.result import Result
from berdiff.inference.summary import Representative

NOT_CLINICAL = "not for clinical use"
UNITS = {"mm^2": "mm²", "mm^3": "mm³", "px^2": "pixels", "px": "pixels", "voxel": "voxels", "mm": "mm"}
SIZES = {"area": "area", "volume": "volume", "longest_diameter": "longest diameter"}


class Digest(NamedTuple):
    """What takes a while to find out and is needed in several files."""

    representatives: list[Representative]
    measurements: dict[str, dict[str, Any]]


def digest(result: Result, representatives: int = 3) -> Digest:
    return Digest(result.representatives(representatives), result.measurements())


def notes(result: Result) -> list[str]:
    """What is shown wherever the result is: the notes of data and model, and what it is not."""
    return [*dict.fromkeys(note for note in result.notes if note.lower() != NOT_CLINICAL), NOT_CLINICAL]


def caption(result: Result) -> str:
    """The notes on one line."""
    return "; ".join(notes(result))


def settings_line(result: Result) -> str:
    """How the samples were drawn."""
    settings = result.settings
    said = [f"{len(result.samples)} samples"]
    if "model" in settings:
        said.append(f"model {settings['model']}")
    if "sampler" in settings:
        said.append(f"{settings['sampler']['rule']} in {settings['sampler']['steps']} steps")
    if "seed" in settings:
        said.append(f"seed {settings['seed']}")
    return ", ".join(said)


def sizes(measured: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """(what, unit, 5 %, median, 95 %) of one target's measurements, in words and rounded figures."""
    rows = []
    for name, words in SIZES.items():
        if name in measured:
            of = measured[name]
            rows.append((words, UNITS[of["unit"]], *(rounded(of[q]) for q in ("q05", "q50", "q95"))))
    return rows


def measured_lines(measured: dict[str, Any]) -> list[str]:
    lines = [f"a finding in {percent(measured['finding_probability'])} of the samples"]
    for what, unit, low, median, high in sizes(measured):
        lines.append(f"{what} {median} {unit} (5 to 95 %: {low} to {high})")
    return lines


def rounded(value: float) -> str:
    """Three figures are more than such a measure is worth; whole numbers stay whole."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """A share of the samples: of 16 or of 100 it is exact."""
    return f"{100 * share:.3g} %"

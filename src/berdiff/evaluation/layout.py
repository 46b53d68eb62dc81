"""Figures and tables as text, for files."""

from berdiff.evaluation.bootstrap import Figure


def number(value: float | None) -> str:
    """Three decimals, or three digits where that would leave nothing; empty where there is none."""
    if value is None:
        return ""
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.3g}"


def interval(figure: Figure) -> str:
    return "" if figure["low"] is None else f"{number(figure['low'])} to {number(figure['high'])}"


def pipes(header: list[str], body: list[list[str]]) -> list[str]:
    """The lines of a Markdown table, and an empty one."""
    return [*(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *body)), ""]

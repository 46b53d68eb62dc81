"""The documents name things that exist."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
EQUATIONS, DEVIATIONS = ((ROOT / "docs" / name).read_text() for name in ("equations.md", "deviations.md"))
ROWS = re.findall(r"`((?:berdiff|reproduce)\.[\w.]+)` \| `(tests/[\w/]+\.py)::(\w+)`", EQUATIONS)


@cache
def functions_in(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


def look_up(name: str) -> object:
    """The object of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[cut:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(name)


def test_every_equation_of_the_paper_is_there():
    first_cells = re.findall(r"^\| ([^|]+?) \|", EQUATIONS, re.MULTILINE)
    numbers = {
        int(n) for cell in first_cells for n in re.findall(r"\b\d+\b", cell.split("table")[0].split("figure")[0])
    }
    assert set(range(1, 11)) <= numbers
    assert len(ROWS) == len(first_cells) - 2  # less the header and the rule: no row without a function and a test


def test_functions_and_functions_in_the_equations_exist():
    for function, file, test in ROWS:
        assert look_up(function) is not None
        assert test in functions_in(ROOT / file), f"{file}::{test}"


def test_the_evidence_of_the_deviations_exists():
    every = set().union(*(functions_in(file) for file in (ROOT / "tests").rglob("test_*.py")))
    named = set(re.findall(r"`(test_\w+)`", DEVIATIONS))
    assert len(named) > 10
    assert named <= every
    assert all((ROOT / file).exists() for file in re.findall(r"`((?:tests|docs|src)/[\w/.]+)`", DEVIATIONS))


def test_relative_links_lead_somewhere():
    missing = [
        f"{document.relative_to(ROOT)} -> {target}"
        for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not missing

"""The documents name things that exist."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = re.findall(r"`(berdiff\.[\w.]+)` \| `(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/equations.md").read_text())


def test_every_equation_of_the_paper_is_there():
    first_cells = re.findall(r"^\| ([^|]+?) \|", (ROOT / "docs/equations.md").read_text(), re.MULTILINE)
    numbers = {
        int(n) for cell in first_cells for n in re.findall(r"\b\d+\b", cell.split("table")[0].split("figure")[0])
    }
    assert set(range(1, 11)) <= numbers
    assert len(ROWS) == len(first_cells) - 2  # less the header and the rule: no row without a function and a test


@pytest.mark.parametrize(("function", "file", "test"), ROWS, ids=[f"{f}-{t}" for f, _, t in ROWS])
def test_function_and_test_exist(function: str, file: str, test: str):
    parts = function.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        break
    for name in parts[cut:]:
        found = getattr(found, name)
    assert callable(found)
    tree = ast.parse((ROOT / file).read_text())
    assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


LINKS = [
    (document, target)
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", document.read_text())
]


@pytest.mark.parametrize(("document", "target"), LINKS, ids=[f"{d.name}-{t}" for d, t in LINKS])
def test_relative_links_lead_somewhere(document: Path, target: str):
    assert (document.parent / target).exists()

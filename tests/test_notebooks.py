"""The notebooks run from top to bottom, and what is committed is what such a run left."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[1] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def code_cells(file: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(file.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def test_there_are_two():
    assert [file.stem for file in NOTEBOOKS] == ["own-data", "quick-start"]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_outputs_are_committed_in_order_and_without_errors(file: Path):
    cells = code_cells(file)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1)), "run `make notebooks`"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert file.stat().st_size < 500_000


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_the_first_cell_installs_it_where_it_is_missing(file: Path):
    first = "".join(code_cells(file)[0]["source"])
    assert first.startswith("# Colab: installs berdiff where it is missing.")
    assert "%pip install --quiet berdiff" in first


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_from_top_to_bottom(file: Path):
    pytest.importorskip("nbclient", reason="no packages of [docs]")
    made = runpy.run_path(str(DOCS / "make_notebooks.py"))["execute"](file)
    before, after = code_cells(file), [cell for cell in made.cells if cell.cell_type == "code"]
    assert [len(cell["outputs"]) > 0 for cell in before] == [len(cell.outputs) > 0 for cell in after]

"""The notebooks run from top to bottom, and what is committed is what such a run left."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

CELLS = (
    """
import numpy as np
from pathlib import Path
from PIL import Image

rng = np.random.default_rng(0)
for number in range(12):
    mask = np.zeros((16, 16), np.uint8)
    mask[4:10, number % 4 : number % 4 + 6] = 255
    for folder, array in (("images", mask // 2 + rng.integers(0, 40, (16, 16))), ("masks", mask)):
        Path("mine", folder).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array.astype(np.uint8)).save(f"mine/{folder}/p{number:02d}.png")
""",
    """
import berdiff

store = berdiff.prepare("folder", "mine", "mine.zarr", patient=r"^(p\\d+)")
run = berdiff.train("demo", store, out="runs/mine", max_steps=20, overrides={
    "loop.batch_size": 2, "model.masks_per_image": 1, "data.crop": None, "validation.every": 0})
run
""",
    "result = berdiff.segment(run.model(), 'mine/images/p00.png', n=4)\nresult",
    "berdiff.evaluate(run.folder, samples=2, limit=2)",
)
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


def test_a_notebook_trains_twenty_steps_in_its_own_process(tmp_path: Path):
    nbclient = pytest.importorskip("nbclient", reason="no packages of [docs]")
    pytest.importorskip("ipykernel", reason="no packages of [docs]")
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    (run,), (result,), (evaluation,) = (
        [output.data for output in cell.outputs if output.output_type == "execute_result"]
        for cell in notebook.cells[1:]
    )
    assert "20 steps" in run["text/plain"]
    assert len((tmp_path / "runs/mine/environment.json").read_text().split('"command"')) == 2, "one session"
    assert "image/png" in result
    assert "marked by" in result["text/plain"]
    assert "<table>" in evaluation["text/html"]
    assert "GED 2" in evaluation["text/plain"]

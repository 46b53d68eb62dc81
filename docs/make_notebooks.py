"""Run the notebooks of docs/notebooks from top to bottom and keep what they print and draw.

python docs/make_notebooks.py [--check]    --check: run them and write nothing
"""

import argparse
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent / "notebooks").glob("*.ipynb"))


def execute(file: Path) -> nbformat.NotebookNode:
    """The notebook with new outputs; CellExecutionError where a cell fails."""
    notebook = nbformat.read(file, as_version=4)
    bin_folder = str(Path(sys.executable).parent)
    os.environ["PATH"] = bin_folder + os.pathsep + os.environ["PATH"]  # for the commands of the cells
    os.environ |= {"COLUMNS": "100"}
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    notebook.metadata.language_info = {"name": "python"}  # without the version
    for cell in notebook.cells:
        cell.metadata = {}  # without the time
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
    return notebook


def merged(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Pieces of one stream, which arrive as they please, as one."""
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        if kept and output.output_type == kept[-1].output_type == "stream" and output.name == kept[-1].name:
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    for file in NOTEBOOKS:
        notebook = execute(file)
        if not check:
            nbformat.write(notebook, file)
        print(file)


if __name__ == "__main__":
    main()

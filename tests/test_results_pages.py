"""The pages of results follow from their data files, their links lead to files, and they hold the headline figures."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
ROOT = DOCS.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}  # reproduce/ is in no wheel
PAGES = [DOCS / "results.md", *sorted((DOCS / "results").glob("*.md"))]
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
CLAIMS = [line for line in PAGES[0].read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "](" in line]


def test_generated_pages_are_the_committed_ones(tmp_path: Path):
    subprocess.run([sys.executable, DOCS / "make_results.py", "--out", tmp_path], check=True, env=ENVIRONMENT)
    committed = {file.name: file.read_bytes() for file in PAGES[1:]}
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == committed, "run `make results`"


def test_tables_of_kept_rows_are_the_committed_ones(tmp_path: Path):
    subprocess.run([sys.executable, DOCS / "make_kept_tables.py", "--out", tmp_path], check=True, env=ENVIRONMENT)
    made = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    assert {"table-3-lidc.csv", "table-4-brats.csv", "table-4-brats-claims.csv"} <= made.keys()
    assert made == {name: (DOCS / "results/data" / name).read_text(encoding="utf-8") for name in made}


def test_every_table_is_on_a_page():
    topics = [tomllib.loads(file.read_text(encoding="utf-8")) for file in DOCS.glob("results/data/*.toml")]
    named = [table["file"] for topic in topics for table in topic["table"]]
    assert sorted(named) == sorted(file.name for file in DOCS.glob("results/data/*.csv"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_lead_to_files(page: Path):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (page.parent / target).exists()]


@pytest.mark.parametrize("claim", CLAIMS, ids=[claim.split(" | ")[0][2:50] for claim in CLAIMS])
def test_figures_of_a_claim_are_on_its_page(claim: str):
    """Columns 2 and 3, figure and spread, against the page that the last column links to."""
    cells = claim.split(" | ")
    page = (DOCS / LINK.findall(cells[-1])[0]).read_text(encoding="utf-8")
    figures = re.findall(r"\d*\.\d+", cells[1] + " " + cells[2])
    assert not [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", page)]

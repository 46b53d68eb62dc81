"""The documentation site: complete, strict, and without a request to another host."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mkdocs", reason="no packages of [docs]")
import griffe
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from berdiff.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EQUATION = re.compile(r"(?<![\\$`])(\$\$?)(?!\s*\$)(.+?)\1", re.DOTALL)


def hook(name: str) -> dict[str, Any]:
    return runpy.run_path(str(DOCS / f"hooks/{name}.py"))


# --- settings --------------------------------------------------------------------------------------------------------


def site(tmp_path: Path, page: str) -> None:
    """Build one page with the site's settings."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(page, encoding="utf-8")
    changes = {"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site"), "nav": [{"Home": "index.md"}]}
    config = load_config(str(ROOT / "mkdocs.yml"), **changes, plugins=[], hooks=[], extra_css=[], strict=True)
    build(config)


def test_a_good_page_builds(tmp_path: Path):
    site(tmp_path, "# A page\n\n[Here](#a-page)\n")
    assert (tmp_path / "site/index.html").is_file()


@pytest.mark.parametrize("link", ["nowhere.md", "#nowhere", "nowhere/", "/absolute.md"])
def test_a_broken_link_fails(tmp_path: Path, link: str):
    with pytest.raises(Abort):
        site(tmp_path, f"# A page\n\n[There]({link})\n")


def test_every_page_is_in_the_menu():
    """But for those that hooks add; the build fails otherwise, but takes longer to say so."""
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    listed = set(re.findall(r"[\w/-]+\.md", menu))
    made = {"contributing.md", "changelog.md", "notebooks/quick-start.md", "notebooks/own-data.md"}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert listed - made <= pages
    assert {page for page in pages - listed if not page.startswith("results/")} == set()


def test_options_and_intervals_are_not_cut_and_long_names_break_at_dots():
    made = hook("wrapping")["on_page_content"]
    assert made("<td><code>berdiff evaluate --split test</code></td>") == (
        '<td><code>berdiff evaluate <span class="whole">--split</span> test</code></td>'
    )
    assert made("<td>.207 (.181 to .239)</td>") == '<td>.207 <span class="whole">(.181 to .239)</span></td>'
    name = "berdiff.diffusion.bernoulli.q_marginal"
    assert made(f"<code>{name}</code>").replace("<wbr>", "") == f"<code>{name}</code>"
    assert "berdiff.<wbr>diffusion." in made(f"<code>{name}</code>")
    block = "<pre><code>berdiff segment lidc scan.png --out results\n</code></pre>"
    assert made(block) == block


def test_new_pages_of_results_come_into_the_menu(tmp_path: Path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/old.md").write_text("# Old\n")
    (tmp_path / "results/new.md").write_text("<!-- made -->\n\n# New: and more\n")
    nav: list[Any] = [{"Home": "index.md"}, {"Results": ["results.md", {"Old": "results/old.md"}]}]
    config = SimpleNamespace(nav=nav, docs_dir=str(tmp_path))
    hook("menu")["on_config"](config)
    assert nav[1]["Results"][2:] == [{"New": "results/new.md"}]


# --- hooks -----------------------------------------------------------------------------------------------------------


def test_every_public_name_is_documented():
    assert hook("public_names")["problems"]() == []


def test_an_undocumented_name_is_found():
    lines = ['"""A module."""', "def said():", '    """Said."""', "def unsaid(): ...", "class Some:", '    """Some."""']
    code = "\n".join([*lines, "    def f(self): ..."])
    module = griffe.visit("made", Path("made.py"), code)
    assert list(hook("public_names")["undocumented"](module)) == ["made.unsaid", "made.Some.f"]


def test_equations_become_mathml():
    content = r'<p><span class="arithmatex">\(a_t &lt; 1\)</span></p><div class="arithmatex">\[\bar\alpha\]</div>'
    made = hook("maths")["on_page_content"](content)
    assert made.count("<math") == 2
    assert "arithmatex" not in made
    assert "&#x0003C;" in made  # less than, as a reference


def test_every_equation_of_the_pages_can_be_rendered():
    mathml, count = hook("maths")["mathml"], 0
    for page in ("maths.md", "ged-limit.md", "representative-sets.md"):
        for dollars, latex in EQUATION.findall((DOCS / page).read_text(encoding="utf-8")):
            made = mathml(latex, "block" if dollars == "$$" else "inline")
            assert "<math" in made
            assert not re.search(r"<m[io]>\\", made), latex  # a command it does not know stays as it was
            count += 1
    assert count > 40


def test_a_notebook_becomes_a_page(tmp_path: Path):
    file = tmp_path / "made.ipynb"
    png = {"output_type": "display_data", "data": {"image/png": "aGVsbG8=", "text/plain": "<Figure>"}}
    printed = {"output_type": "stream", "name": "stdout", "text": ["\x1b[31mred\x1b[0m ```\n"]}
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": [printed, png]},
        {"cell_type": "code", "source": ["%%bash\nls"], "outputs": []},
    ]
    file.write_text(json.dumps({"cells": cells}))
    text, pictures = hook("notebooks")["page"](file)
    assert text.startswith('# Title\n\n<a href="made.ipynb" download>')
    assert "````python\n1 + 1\n````" in text
    assert "````text\nred ```\n````" in text
    assert "````bash\n%%bash\nls\n````" in text
    assert pictures == {"notebooks/made-1.png": b"hello"}


def test_a_command_has_all_its_options_on_its_page():
    made = hook("command_line")
    text, page = made["help_of"](["segment"]), made["page"]("segment")
    options = set(re.findall(r"│ (--[a-z-]+)", text))
    assert len(options) > 25
    assert {option for option in options if f"<code>{option}" not in page} == set()
    assert "<code>MODEL</code></td>" in page
    assert "{losses,kernel,sampling,lidc,brats}</code>" in made["page"]("table")
    assert all(f"({name}.md)" in made["index"]() for name in COMMANDS)


def test_every_option_of_every_command_says_what_it_is():
    """A help text that a formatter has moved out of its place is lost without a word."""
    made, without, known = hook("command_line"), [], set()
    for call in (call for command in COMMANDS for call in made["calls"](command)):
        for title, lines in made["boxes"](made["help_of"](call)):
            for name, text in made["entries"](lines) if title != "subcommands" else ():
                known.add(name.split()[0] if name else "")
                if name.startswith("-") and not made["DEFAULT"].sub("", text).strip():
                    without.append((" ".join(call), name))
    assert {"--seed", "--data", "--out"} <= known
    assert not without


def test_a_leaderboard_is_sorted_and_takes_figures_from_the_files(tmp_path: Path):
    sys.path.insert(0, str(DOCS))
    try:
        import make_leaderboard as made
    finally:
        sys.path.remove(str(DOCS))
    (tmp_path / "topic.toml").write_text('[[table]]\nfile = "t.csv"\n')
    (tmp_path / "t.csv").write_text("method,source,GED 16,HM-IoU 16\nb,berdiff,.4 (.3 to .5),.5\na,berdiff,.2,.6\n")
    text = made.board("Title", "About.", (made.Lines("t.csv", "berdiff"),), tmp_path)
    rows = text.splitlines()[-2:]
    assert rows == ["| a | .2 | .6 | [page](topic.md) |", "| b | .4 (.3 to .5) | .5 | [page](topic.md) |"]
    (tmp_path / "t.csv").write_text("method,target,Dice by slice\nb,WT,.4 (.3 to .5)\na,WT,.6\nc,TC,.9\n")
    text = made.board("Title", "About.", (made.Lines("t.csv", "WT", "target", made.DICE),), tmp_path)
    rows = text.splitlines()[-2:]
    assert rows == ["| a | .6 | [page](topic.md) |", "| b | .4 (.3 to .5) | [page](topic.md) |"], "high Dice first"


# --- the whole -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": "src"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_the_site_is_whole_and_asks_no_other_host(built: Path):
    pages = list(built.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe|source)[^>]* src="?([^" >]+)', text)
        loaded += re.findall(r'<link[^>]* href="?([^" >]+)', text)
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page
    assert "<math" in (built / "maths.html").read_text(encoding="utf-8")
    assert 'id="berdiff.metrics.pairs.ged"' in (built / "reference/api/metrics.html").read_text(encoding="utf-8")
    assert all((built / f"reference/cli/{name}.html").is_file() for name in COMMANDS)


@pytest.mark.slow
def test_the_search_works_from_the_disk_without_a_network(built: Path):
    api = pytest.importorskip("playwright.sync_api", reason="no playwright for browser tests")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium for browser tests")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_context(offline=True).new_page()
        asked: list[str] = []
        errors: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.set_default_timeout(60_000)
        tab.goto((built / "index.html").as_uri())
        tab.wait_for_selector("html.js")  # the script runs
        tab.fill("input.md-search__input", "hurdle")
        tab.press("input.md-search__input", "End")  # it listens to keys
        tab.wait_for_selector(".md-search-result__item", state="attached")
        found = tab.locator(".md-search-result__item").all_inner_texts()
        browser.close()
    assert found
    assert not errors
    assert all(url.startswith("file:") for url in asked)

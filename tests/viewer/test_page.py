"""The page is one file that can run nothing but its own scripts, and lets no name do harm."""

import base64
import fnmatch
import json
import re
import tomllib
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

from made_results import result_2d, several_2d

import berdiff_viewer
from berdiff.output import exports
from berdiff_viewer.document import live_document, result_document
from berdiff_viewer.page import SCRIPTS, STATIC, page

FOLDER = Path(berdiff_viewer.__file__).parent
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Seen(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag == "script" and data.strip():
            self.scripts.append((attributes, data))


def policy(seen: Seen) -> dict[str, list[str]]:
    text = next(a["content"] for _, a in seen.elements if a.get("http-equiv") == "Content-Security-Policy")
    return {name: values for name, *values in (part.split() for part in str(text).split(";"))}


def test_only_its_own_scripts_may_run_and_nothing_is_asked_for():
    seen = Seen(page(result_document(result_2d(raters=2))))
    rules = policy(seen)
    assert rules["default-src"] == ["'none'"]
    assert "connect-src" not in rules
    assert not any("unsafe" in value for values in rules.values() for value in values)
    hashed = [f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'" for _, text in seen.scripts[1:]]
    assert hashed == rules["script-src"]
    assert len(hashed) == len(SCRIPTS)
    assert not [
        a for _, a in seen.elements if a.keys() & {"src", "href", "style"} or any(k.startswith("on") for k in a)
    ]
    assert policy(Seen(page(live_document("secret"))))["connect-src"] == ["'self'"]


def test_names_are_text_alone():
    result = several_2d("nested", name=EVIL, targets=(EVIL, "b", "c"), notes=(EVIL,), channels=(EVIL,))
    text = page(result_document(result))
    seen = Seen(text)
    assert EVIL not in text
    assert [a for tag, a in seen.elements if tag == "script"] == [
        {"type": "application/json", "id": "document"},
        *({} for _ in SCRIPTS),
    ]
    assert not [tag for tag, _ in seen.elements if tag == "img"]
    assert json.loads(seen.scripts[0][1])["name"] == EVIL


def test_the_scripts_can_stand_in_a_page():
    for name in SCRIPTS:
        text = STATIC.joinpath(name).read_text(encoding="utf-8")
        assert "</script" not in text.lower()
        assert "<!--" not in text
        assert name.startswith("niivue") or not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(", text)


def test_niivue_is_the_file_that_was_published():
    told, name = (FOLDER / "static/niivue/SHA256SUMS").read_text().split()
    assert sha256((FOLDER / "static/niivue" / name).read_bytes()).hexdigest() == told
    assert "BSD 2-Clause" in (FOLDER / "static/niivue/LICENSE").read_text()


def test_the_wheel_carries_every_file():
    patterns = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = patterns["package-data"]["berdiff_viewer"]
    files = [path for part in ("static", "templates") for path in (FOLDER / part).rglob("*") if path.is_file()]
    assert len(files) > len(SCRIPTS)
    for path in files:
        name = path.relative_to(FOLDER).as_posix()
        assert any(fnmatch.fnmatch(name, p) and name.count("/") == p.count("/") for p in patterns), name


def test_written_beside_the_other_files(tmp_path):
    result = result_2d()
    (path,) = exports.write(result, tmp_path / "a", ["viewer"])
    assert path.name == "viewer.html"
    (again,) = exports.write(result, tmp_path / "b", ["viewer"])
    assert path.read_bytes() == again.read_bytes()
    assert path.stat().st_size < 3 * 2**20

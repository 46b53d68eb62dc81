"""The report: one file that asks for nothing, shows the very arrays, and lets no file name do harm."""

import base64
import io
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
from made_results import REGIONS, chosen_2d, result_2d, several_2d, volume_result
from PIL import Image

from berdiff.inference.result import Result
from berdiff.output import exports
from berdiff.output.captions import MARKED_MEANS, percent, rounded
from berdiff.output.html_report import ReportEntry, ScoreTable, page
from berdiff.output.panels import result_panel


class Seen(HTMLParser):
    """Everything on the page: elements with their attributes, and the words of each captioned figure."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def shown(result: Result, **more: object) -> tuple[str, Seen]:
    text = page("a title", [ReportEntry(result, result.representatives())], **more)  # type: ignore[arg-type]
    return text, Seen(text)


def test_it_asks_for_nothing():
    text, seen = shown(result_2d(raters=4))
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    addresses = [a[name] for _, a in seen.elements for name in ("href", "src") if name in a]
    assert addresses
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert not seen.all("script")
    assert not seen.all("link")
    policy = next(a["content"] for a in seen.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_words_figures_and_the_panel():
    result = result_2d(raters=4)
    _, seen = shown(result, intro=["what it is"], table=ScoreTable(("case", "GED"), [("a", "0.123")], "scores"))
    measured = result.measurements()["nodule"]
    for quantile in ("q05", "q50", "q95"):
        assert rounded(measured["area"][quantile]) in seen.words
    own = [int(mask.sum()) * 0.5 * 0.8 for mask in result.raters[:, 0]]  # type: ignore[index]
    assert ", ".join(rounded(area) for area in own) in seen.words
    assert all(figure in seen.words for figure in (": 93.8 %;", ": 6.25 %;", ": 4 of 4."))
    for words in (MARKED_MEANS, "what it is", "0.123", "real readers, simulated CT", "Not for clinical use."):
        assert words in seen.words
    (picture,) = seen.all("img")
    png = base64.b64decode(str(picture["src"]).partition(",")[2])
    with Image.open(io.BytesIO(png)) as panel:
        np.testing.assert_array_equal(panel, result_panel(result, words=False))


def test_several_targets_have_their_rule_and_figures_each():
    result = several_2d("exclusive")
    text, seen = shown(result)
    assert "exclusive: " in seen.words
    assert text.count("<table>") == 3
    for target in REGIONS:
        assert seen.words.count(target) == 1
        assert rounded(result.measurements()[target]["area"]["q50"]) in seen.words


def test_a_set_is_told_from_the_pool_it_stands_for():
    _, seen = shown(chosen_2d())
    assert "4 masks chosen to represent 16 samples, model tiny, ddim" in seen.words
    _, seen = shown(chosen_2d("systematic", tuple(range(20)), n=40))
    assert "20 masks spread evenly by area over 40 samples" in seen.words


def test_no_name_gets_out_of_its_place():
    bad = '"><script>alert(1)</script><img src=http://x>'
    _, seen = shown(result_2d(name=bad, targets=(bad, "b"), notes=(bad,)), intro=[bad])
    assert not seen.all("script")
    assert all(str(image["src"]).startswith("data:") for image in seen.all("img"))
    assert bad in seen.words


def test_a_volume_shows_its_fullest_slice_and_says_so(tmp_path: Path):
    image = np.zeros((5, 30, 40))
    image[3, 4:9, 6:20] = 99
    result = volume_result(image, (2.0, 1.0, 1.0))
    (path,) = exports.write(result, tmp_path, ["report"])
    seen = Seen(path.read_text(encoding="utf-8"))
    assert "volume, slice 3" in seen.words
    assert "mm³" in seen.words


def test_shares_of_sixteen_are_exact():
    assert [percent(share) for share in (0, 1, 0.0625, 1 / 3)] == ["0 %", "100 %", "6.25 %", "33.3 %"]

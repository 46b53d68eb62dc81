"""The report: one file that asks for nothing, shows the very arrays, and lets no file name do harm."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from made_results import REGIONS, chosen_2d, result_2d, several_2d, volume_result
from PIL import Image

from berdiff.inference.result import Result
from berdiff.output import exports
from berdiff.output.captions import MARKED_MEANS, percent, rounded
from berdiff.output.colours import target_colours
from berdiff.output.html_report import ReportEntry, ScoreTable, page


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


def filled(path: str, size: tuple[int, int]) -> np.ndarray:
    """The inside of an SVG outline of unit steps: a pixel is inside if an odd number of sides lie to its left."""
    sides = np.zeros((size[0], size[1] + 1), int)
    for x, y, step, far in re.findall(r"M([\d.]+) ([\d.]+)([hv])([\d.]+)", path):
        if step == "v":  # where the side is whose outline this is: an inset one begins or ends in a neighbour at most
            sides[int(float(y) + float(far) / 2), round(float(x))] += 1
    return sides.cumsum(1)[:, :-1] % 2


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


def test_the_pictures_are_the_arrays():
    result = result_2d(raters=2)
    _, seen = shown(result)
    planes = {}
    for image in seen.all("image"):
        data = base64.b64decode(str(image["href"]).removeprefix("data:image/png;base64,"))
        planes[f"#{image['id']}"] = np.array(Image.open(io.BytesIO(data)))
        assert (image["width"], image["height"]) == ("24", "20")
    assert len(planes) == 3  # the image once, though two dozen tiles show it; saliency; variance
    first = planes[str(seen.all("use")[0]["href"])]
    np.testing.assert_allclose(first, 255 * result.image[0], atol=0.51)
    _, seen = shown(result_2d(spacing=(1.6, 0.8)))  # pixels as high over wide as the spacing says
    assert seen.all("svg")[1]["viewbox"] == "0 0 24 40"
    assert seen.all("g")[0]["transform"] == "scale(1 2)"


def test_the_outlines_are_the_masks():
    result = result_2d(raters=2)
    _, seen = shown(result)
    found = [filled(str(a["d"]), (20, 24)) for a in seen.all("path")]
    chosen = [of.mask[0] for of in result.representatives()]
    expected = [*result.raters[:, 0], *result.contours()[:, 0], *chosen, *result.samples[:, 0]]  # type: ignore[index]
    expected = [mask for mask in expected if mask.any()]  # what is empty has no outline, and says "nothing"
    assert len(found) == len(expected)
    for drawn, mask in zip(found, expected, strict=True):
        np.testing.assert_array_equal(drawn, mask)


def test_figures_and_words():
    result = result_2d(raters=4)
    _, seen = shown(result, intro=["what it is"], table=ScoreTable(("case", "GED"), [("a", "0.123")], "scores"))
    assert sum(a["aria-label"].startswith("sample ") for a in seen.all("svg") if a.get("aria-label")) == 16
    measured = result.measurements()["nodule"]
    for quantile in ("q05", "q50", "q95"):
        assert rounded(measured["area"][quantile]) in seen.words
    own = [int(mask.sum()) * 0.5 * 0.8 for mask in result.raters[:, 0]]  # type: ignore[index]
    assert ", ".join(rounded(area) for area in own) in seen.words
    assert all(figure in seen.words for figure in (": 93.8 %;", ": 6.25 %;", ": 4 of 4."))
    assert MARKED_MEANS in seen.words
    for found in result.representatives():
        assert f"{percent(found.frequency)} of samples" in seen.words
    for words in ("what it is", "0.123", "real readers, simulated CT", "Not for clinical use.", "sample 1: nothing"):
        assert words in seen.words


@pytest.mark.parametrize("kind", ["nested", "exclusive", "independent"])
def test_several_targets_are_shown_together_and_each_by_itself(kind: str):
    result = several_2d(kind)
    text, seen = shown(result)
    found = [(a["stroke"], filled(str(a["d"]), (20, 24))) for a in seen.all("path")]
    colours = target_colours(3)
    together = [*result.raters, result.majority(), *(of.mask for of in result.representatives()), *result.samples]  # type: ignore[misc]
    expected = [(colour, mask) for masks in together for colour, mask in zip(colours, masks, strict=True) if mask.any()]
    own = [result.contours()[:, k] for k in range(3)]
    count = len(expected) + sum(bool(mask.any()) for masks in own for mask in masks)
    assert len(found) == count
    for (stroke, drawn), (colour, mask) in zip(found, expected, strict=False):
        assert stroke == colour
        np.testing.assert_array_equal(drawn, mask)
    drawn_later = [drawn for _, drawn in found[len(expected) :]]
    for drawn, mask in zip(drawn_later, (m for masks in own for m in masks if m.any()), strict=True):
        np.testing.assert_array_equal(drawn, mask)
    assert len(seen.all("image")) == 1 + 2 * 3  # the image, and saliency and variance of each target
    # a legend with every target's colour, and the figures of each
    swatches = [str(a.get("style")) for a in seen.all("i")]
    assert swatches == [f"background:{colour}" for colour in (*colours, *colours)]
    assert f"{kind}: " in seen.words
    assert text.count("<table>") == 3
    for target in REGIONS:
        assert seen.words.count(target) == 2
        assert rounded(result.measurements()[target]["area"]["q50"]) in seen.words
    assert seen.words.count("representative masks") == 1
    assert seen.words.count("8 samples, model tiny") == 1


def test_a_set_is_told_from_the_pool_it_stands_for():
    result, whole = chosen_2d(), result_2d()
    _, seen = shown(result)
    assert "4 masks chosen to represent 16 samples, model tiny, ddim" in seen.words  # and again above the masks
    assert seen.words.count("4 masks chosen to represent 16 samples") == 2
    assert "summary of 16 samples" in seen.words
    assert all(figure in seen.words for figure in (": 93.8 %;", ": 6.25 %."))
    found = [filled(str(a["d"]), (20, 24)) for a in seen.all("path")]
    medoids = [of.mask[0] for of in whole.representatives()]
    expected = [*whole.contours()[:, 0], *medoids, *whole.samples[[5, 2, 7], 0]]  # the last of the set is empty
    expected = [mask for mask in expected if mask.any()]
    assert len(found) == len(expected)
    for outline, mask in zip(found, expected, strict=True):
        np.testing.assert_array_equal(outline, mask)
    _, seen = shown(chosen_2d("systematic", tuple(range(20)), n=40))
    assert "the first 16 of 20 masks spread evenly by area over 40 samples" in seen.words


def test_no_name_gets_out_of_its_place():
    bad = '"><script>alert(1)</script><img src=http://x>'
    _, seen = shown(result_2d(name=bad, targets=(bad, "b"), notes=(bad,)), intro=[bad])
    assert not seen.all("script")
    assert not seen.all("img")
    assert bad in seen.words


def test_a_volume_shows_its_fullest_slice_and_says_so(tmp_path: Path):
    image = np.zeros((5, 30, 40))
    image[3, 4:9, 6:20] = 99
    result = volume_result(image, (2.0, 1.0, 1.0))
    (path,) = exports.write(result, tmp_path, ["report"])
    seen = Seen(path.read_text(encoding="utf-8"))
    assert "volume, slice 3" in seen.words
    assert "mm³" in seen.words
    np.testing.assert_array_equal(filled(str(seen.all("path")[0]["d"]), (30, 40)), image[3] > 0)


def test_shares_of_sixteen_are_exact():
    assert [percent(share) for share in (0, 1, 0.0625, 1 / 3)] == ["0 %", "100 %", "6.25 %", "33.3 %"]

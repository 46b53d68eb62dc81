"""The one renderer: every part in its place, contours around their pixels, words that stay on the picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_results import REGIONS, result_2d, several_2d
from PIL import Image

from berdiff.output import exports
from berdiff.output.captions import MARKED_MEANS, percent, settings_line
from berdiff.output.colours import LEVEL_COLOURS, legend, rgb_of, target_colours
from berdiff.output.contact_sheet import contact_sheet
from berdiff.output.panels import pack, panel_rows, targets_row
from berdiff.output.pictures import MARGIN, overlay, render
from berdiff.output.sample_sheet import sample_sheet
from berdiff.output.tiles import Tile, contours_tile, masks_tile
from berdiff.output.views import close_up
from fakes import MemoryStore

GREY = np.full((48, 64), 0.5, np.float32)
SCALE = 768 // 64


def shown(tile: Tile, note: str = "") -> np.ndarray:
    """The image in the overlay of a tile of 48x64 pixels, without words above it."""
    picture = np.array(overlay(replace(tile, title="", key=()), 1.0, note))
    top = int(np.flatnonzero((picture != 255).any(axis=(1, 2)))[0])
    return picture[top : top + 48 * SCALE, MARGIN : MARGIN + 768]


def ends(shown: np.ndarray, colour: str) -> np.ndarray:
    """The first and the last row and column with a colour, in pixels of the image."""
    rows, columns = np.nonzero((shown == rgb_of(colour)).all(-1))
    return np.array([rows.min(), columns.min(), rows.max(), columns.max()]) / SCALE


def test_each_contour_lies_around_its_pixels():
    saliency = np.zeros((48, 64), np.float32)
    saliency[10:20, 30:50] = 0.3  # reaches 25 % only
    saliency[12:18, 35:45] = 0.8  # reaches all
    picture = shown(contours_tile("title", GREY, saliency, 0, 1))
    np.testing.assert_allclose(ends(picture, LEVEL_COLOURS[0]), (10, 30, 20, 50), atol=0.3)
    np.testing.assert_allclose(ends(picture, LEVEL_COLOURS[2]), (12, 35, 18, 45), atol=0.2)
    np.testing.assert_array_equal(picture[15 * SCALE + 5, 40 * SCALE + 5], [128, 128, 128])  # the image inside


def test_targets_that_touch_and_targets_that_share_a_border_are_both_seen():
    masks = np.zeros((2, 48, 64), np.uint8)
    masks[0, 10:20, 10:20] = masks[1, 10:20, 20:30] = 1  # side by side
    seen = shown(masks_tile("", GREY, masks))
    first, second = target_colours(2)
    np.testing.assert_allclose(ends(seen, first), (10, 10, 20, 20), atol=0.2)
    np.testing.assert_allclose(ends(seen, second), (10, 20, 20, 30), atol=0.2)
    masks[0, 10:20, 20:30] = 1  # the second inside the first, with three sides in common
    seen = shown(masks_tile("", GREY, masks))
    np.testing.assert_allclose(ends(seen, first), (10, 10, 20, 30), atol=0.3)
    line = seen[15 * SCALE, 29 * SCALE : 31 * SCALE]  # across the side in common: both are seen
    found = [first if (p == rgb_of(first)).all() else second if (p == rgb_of(second)).all() else "" for p in line]
    assert [c for c, before in zip(found, ["", *found[:-1]], strict=True) if c and c != before] == [first, second]


def test_words_and_a_long_key_stay_on_the_picture():
    names = [f"target with a rather long name {k}" for k in range(12)] + ["x" * 300]
    tile = Tile("1.2.840." * 60, GREY, key=legend(names))
    with_words, alone = np.array(overlay(tile, 1.0, "note")), np.array(overlay(Tile("", GREY), 1.0, ""))
    assert with_words.shape[1] == alone.shape[1] == 768 + 2 * MARGIN
    assert with_words.shape[0] > alone.shape[0] + 100
    assert (with_words[:, -MARGIN:] == 255).all()
    for colour in target_colours(13):
        assert (with_words == rgb_of(colour)).all(-1).any(), colour


def test_circles_stay_round():
    tall = overlay(Tile("", np.zeros((50, 100), np.float32)), 2.0, "")
    square = overlay(Tile("", np.zeros((100, 100), np.float32)), 1.0, "")
    assert tall.size == square.size


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list:
    """(rows of tiles, title, other words, settings) of what is rendered."""
    kept: list = []

    def keep(rows: Sequence, title: str, *words: str, **settings: object) -> Image.Image:
        kept.append((rows, title, words, settings))
        return render(rows, title, *words, **settings)  # type: ignore[arg-type]

    for module in ("panels", "contact_sheet", "sample_sheet"):
        monkeypatch.setattr(f"berdiff.output.{module}.render", keep)
    return kept


def titles(row: Sequence[Tile | None]) -> list[str]:
    return [tile.title for tile in row if tile is not None]


def test_the_panel_shows_every_part_and_the_notes(drawn: list):
    result = result_2d(raters=4)
    result.plot()
    ((rows, title, (caption,), settings),) = drawn
    found = [tile for row in rows for tile in titles(row)]
    assert found[:5] == ["image", "rater 1", "rater 2", "rater 3", "rater 4"]
    assert found[5:8] == ["contours", "saliency, 0 to 1", "variance, 0 to 0.25"]
    shares = [(percent(one.frequency), one.mask.any()) for one in result.representatives()]
    assert found[8:-16] == [f"{share} of samples{'' if any_ else ': nothing'}" for share, any_ in shares]
    assert found[-16:] == ["sample 1: nothing", *(f"sample {i}" for i in range(2, 17))]
    assert "nodule: marked by 93.8 %, nothing by 6.25 %; among samples that mark it area" in caption
    assert MARKED_MEANS in caption
    assert caption.endswith("real readers, simulated CT; not for clinical use")
    assert "16 samples, model tiny, ddim in 2 steps (9, 4), seed 3" in title
    assert settings["aspect"] == pytest.approx(0.5 / 0.8)
    assert not settings["key"]
    np.testing.assert_array_equal(rows[0][0].plane, result.image[0])


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
def test_a_panel_of_several_targets_has_them_together_then_each_and_a_key(kind: str, drawn: list):
    result = several_2d(kind)
    result.plot()
    ((rows, _, (caption,), settings),) = drawn
    tiles = {tile.title: tile for row in rows for tile in row}
    assert list(tiles)[:4] == ["image", "rater 1", "rater 2", "majority"]
    of_each = ("contours", "saliency, 0 to 1", "variance, 0 to 0.25")
    assert list(tiles)[-9:] == [f"{name}\n{what}" for name in REGIONS for what in of_each]
    np.testing.assert_array_equal(tiles["tumour core\nsaliency, 0 to 1"].plane, result.saliency[1])
    assert list(settings["key"]) == list(zip(REGIONS, target_colours(3), strict=True))
    for target, measured in result.measurements().items():
        assert f"{target}: marked by {percent(measured['finding_probability'])}, nothing by " in caption


def test_a_method_without_steps_has_no_sampler_in_its_caption():
    assert settings_line(result_2d(settings={"model": "unet", "sampler": None})) == "16 samples, model unet, one pass"


@pytest.mark.parametrize(
    "counts", [(1, 4, 3, 3, 16), (2, 4, 3, 3, 16), (1, 0, 3, 1, 1), (5, 1, 3, 3, 16), (1, 0, 3, 3, 4)]
)
def test_no_row_is_nearly_empty(counts: tuple[int, ...]):
    sections = [[f"{i}.{j}" for j in range(count)] for i, count in enumerate(counts)]
    rows = pack(sections)  # type: ignore[arg-type]
    assert [tile for row in rows for tile in row] == [tile for section in sections for tile in section]
    assert min(map(len, rows)) > max(map(len, rows)) / 2
    assert max(map(len, rows)) <= 10


@pytest.mark.parametrize("raters", [0, 3, 4])
def test_a_panel_has_no_blank_places(raters: int):
    """All rows reach from left to right, and no tile is more than half as large again as another."""
    white = np.full((20, 24), 0.5, np.float32)
    result = result_2d(raters=raters)
    rows = [[Tile("x", white) for _ in row] for row in panel_rows(close_up(result), result.representatives())]
    picture = np.array(render(rows, "", justified=True))
    grey = (picture == 128).all(-1)
    lengths = [int(line.sum()) for line in grey if line.any()]
    assert min(lengths) > 0.9 * (picture.shape[1] - 2 * MARGIN)
    columns = np.flatnonzero(grey.any(0))
    assert (columns[0], columns[-1]) == (MARGIN, pytest.approx(picture.shape[1] - MARGIN, abs=12))
    assert max(map(len, rows)) < 1.6 * min(map(len, rows))


def test_no_name_is_too_long(tmp_path: Path):
    name = "$x_{" + "1.3.6.1.4.1" * 30
    result = result_2d(n=2, name=name, targets=("$\\frac{$" + "y" * 300,), notes=("$_^$",))
    for path in exports.write(result, tmp_path, ["panel", "overlay"]):
        with Image.open(path) as picture:
            assert 700 < picture.width < 1600
            assert (np.array(picture)[:, -MARGIN:] == 255).all()


def test_sheets_have_one_row_per_case(tmp_path: Path, drawn: list):
    store = MemoryStore()
    contact_sheet(store, [0, 3, 5], tmp_path / "a.png")  # type: ignore[arg-type]
    rows, _, _, settings = drawn[0]
    most = store.cases.raters[[0, 3, 5]].max()
    every = ["ct", *(f"rater {i + 1}" for i in range(most)), "agreement"]
    for row, i in zip(rows, (0, 3, 5), strict=True):
        own = store.cases.raters[i]
        assert (len(row), titles(row)) == (len(every), [*every[: 1 + own], "agreement"])
        assert row[1 + own : -1] == [None] * (most - own)  # no such rater
    assert settings["labels"][0] == "case 0\ntest"
    assert not settings["key"]
    masks, samples = torch.randint(2, (3, 4, 1, 8, 8)), torch.randint(2, (2, 6, 1, 8, 8), dtype=torch.uint8)
    sample_sheet(tmp_path / "b.png", torch.rand(3, 1, 8, 8), masks, torch.tensor([2, 3, 4]), samples, "step 8; a note")
    rows, title, _, _ = drawn[1]
    every = ["image", *(f"rater {i}" for i in (1, 2, 3)), *(f"sample {i}" for i in (1, 2, 3, 4)), "saliency"]
    assert (titles(rows[1]), title) == (every, "step 8; a note")
    np.testing.assert_allclose(rows[1][8].plane, samples[1, :, 0].float().mean(0))
    for name in ("a", "b"):
        assert Image.open(tmp_path / f"{name}.png").width > 700


def test_sheets_of_several_targets_show_them_together_and_each_share(tmp_path: Path, drawn: list):
    store = MemoryStore(targets=("a", "b"))
    contact_sheet(store, [0, 3, 5], tmp_path / "a.png")  # type: ignore[arg-type]
    rows, title, _, settings = drawn[0]
    assert titles(rows[-1])[-2:] == ["a\nagreement", "b\nagreement"]
    assert [words for words, _ in settings["key"]] == ["a", "b"]
    assert "independent targets" in title
    for row, i in zip(rows, (0, 3, 5), strict=True):
        own = store.cases.raters[i]
        np.testing.assert_allclose(row[6].plane, store.masks[i, :own, 1].mean(0))
        for tile, masks in zip(row[1:5], store.masks[i, :own], strict=False):
            np.testing.assert_array_equal(np.stack([mask for mask, _ in tile.outlines]), masks)
    samples = np.random.default_rng(0).integers(0, 2, (2, 6, 2, 16, 16), dtype=np.uint8)
    cases = store.images[:2], store.masks[:2], store.cases.raters[:2]
    sample_sheet(tmp_path / "b.png", *cases, samples, "step 8")
    rows, _, _, _ = drawn[1]
    assert titles(rows[0])[-3:] == ["sample 4", "target 1\nsaliency", "target 2\nsaliency"]
    np.testing.assert_allclose(rows[1][-1].plane, samples[1, :, 1].mean(0), rtol=1e-6)


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
def test_on_a_sheet_masks_are_painted_in_their_colours(kind: str):
    result = several_2d(kind)
    row = targets_row(result.image, result.raters, 2, targets=REGIONS, kind=kind)  # type: ignore[arg-type]
    for tile, masks in zip(row[1:3], result.raters, strict=True):  # type: ignore[arg-type]
        for y, x in np.ndindex(20, 24):
            marked = np.flatnonzero(masks[:, y, x])
            grey = np.full(3, result.image[0, y, x])
            colour = np.array(rgb_of(target_colours(3)[marked[-1]])) / 255 if len(marked) else grey
            np.testing.assert_allclose(tile.plane[y, x], 0.6 * colour + 0.4 * grey, atol=1e-6)  # type: ignore[union-attr]


def test_a_row_of_a_case_can_show_the_variance_of_each_target():
    result = several_2d("nested")
    row = targets_row(result.image, result.raters, 2, result.samples, targets=REGIONS, kind="nested", variance=True)  # type: ignore[arg-type]
    last = [tile for tile in row if tile is not None][-6:]
    assert [tile.title for tile in last] == [f"{name}\n{what}" for name in REGIONS for what in ("saliency", "variance")]
    np.testing.assert_allclose(last[3].plane, result.samples[:, 1].var(0), atol=1e-6)

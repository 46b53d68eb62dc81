"""The one renderer: every part in its place, no row nearly empty, the notes on each."""

from pathlib import Path

import numpy as np
import pytest
import torch
from made_results import REGIONS, result_2d, several_2d
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from PIL import Image

from berdiff.output import exports
from berdiff.output.captions import MARKED_MEANS, percent, settings_line
from berdiff.output.colours import legend, rgb_of, target_colours
from berdiff.output.contact_sheet import contact_sheet
from berdiff.output.panels import pack, render, result_panel, targets_row
from berdiff.output.sample_sheet import sample_sheet
from berdiff.output.tiles import Tile, edges
from fakes import MemoryStore


def test_the_panel_shows_every_part_and_the_notes():
    result = result_2d(raters=4)
    figure = result.plot()
    titles = [ax.get_title() for ax in figure.axes if ax.images]
    assert titles[:5] == ["image", "rater 1", "rater 2", "rater 3", "rater 4"]
    assert titles[5:8] == ["contours", "saliency, 0 to 1", "variance, 0 to 0.25"]
    shown = [(percent(found.frequency), found.mask.any()) for found in result.representatives()]
    assert titles[8:-16] == [f"{share} of samples{'' if any_ else ': nothing'}" for share, any_ in shown]
    assert titles[-16:] == ["sample 1: nothing", *(f"sample {i}" for i in range(2, 17))]
    caption = figure.get_supxlabel().replace("\n", " ")
    assert "nodule: marked by 93.8 %, nothing by 6.25 %; among samples that mark it area" in caption
    assert MARKED_MEANS in caption
    assert "mm²" in caption
    assert caption.endswith("real readers, simulated CT; not for clinical use")
    assert "16 samples, model tiny, ddim in 2 steps (9, 4), seed 3" in figure.get_suptitle()
    assert not figure.legends


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
def test_a_panel_of_several_targets_has_them_together_then_each_and_a_legend(kind: str):
    result = several_2d(kind)
    figure = result.plot()
    axes = {ax.get_title(): ax for ax in figure.axes if ax.images}
    together = ["image", "rater 1", "rater 2", "majority"]
    assert list(axes)[:4] == together
    of_each = ("contours", "saliency, 0 to 1", "variance, 0 to 0.25")
    assert list(axes)[-9:] == [f"{name}\n{what}" for name in REGIONS for what in of_each]
    np.testing.assert_array_equal(axes["tumour core\nsaliency, 0 to 1"].images[0].get_array(), result.saliency[1])
    (key,) = figure.legends
    assert [text.get_text() for text in key.get_texts()] == list(REGIONS)
    assert [to_hex(patch.get_facecolor()) for patch in key.get_patches()] == list(target_colours(3))
    lines = axes["majority"].collections
    assert [to_hex(line.get_color()[0]) for line in lines] == list(target_colours(3))
    inset = 0.3 if kind == "exclusive" else 0
    for line, mask in zip(lines, result.majority(), strict=True):
        np.testing.assert_array_equal(np.array(line.get_segments()), edges(mask, inset))
    caption = figure.get_supxlabel().replace("\n", " ")
    for target, measured in result.measurements().items():
        assert f"{target}: marked by {percent(measured['finding_probability'])}, nothing by " in caption
    FigureCanvasAgg(figure).draw()  # the legend has a place of its own, between the title and the tiles
    box, words = key.get_window_extent(), figure._suptitle.get_window_extent()  # type: ignore[attr-defined]
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert box.y1 <= words.y1 - words.height * 2 / 3 + 2  # two lines of three are the title
    assert max(ax.title.get_window_extent().y1 for ax in axes.values()) <= box.y0 + 1


def test_a_key_of_many_names_is_broken_into_lines():
    names = [f"a target with a long name {k}" for k in range(15)]
    figure = render([[Tile("image", np.zeros((8, 8)))]], "title", key=legend(names))
    FigureCanvasAgg(figure).draw()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert figure.axes[0].title.get_window_extent().y1 <= box.y0 + 1


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
    figure = result_2d(raters=raters).plot()
    assert all(ax.images for ax in figure.axes)
    FigureCanvasAgg(figure).draw()
    boxes = [ax.get_position() for ax in figure.axes]
    rows = {round(box.y0 + box.y1, 2) for box in boxes}
    for middle in rows:
        row = [box for box in boxes if round(box.y0 + box.y1, 2) == middle]
        assert min(box.x0 for box in row) < 0.03
        assert max(box.x1 for box in row) > 0.97
    assert max(box.width for box in boxes) < 1.6 * min(box.width for box in boxes)


def test_the_panel_shows_arrays_as_they_are():
    """Row 0 on top, column 0 left, and a pixel as high over wide as the spacing says."""
    result = result_2d()
    axes = [ax for ax in result_panel(result).axes if ax.images]
    np.testing.assert_array_equal(axes[0].images[0].get_array(), result.image[0])
    assert axes[0].images[0].get_extent() == [0, 24, 20, 0]
    assert axes[0].get_aspect() == pytest.approx(0.5 / 0.8)
    second = next(ax for ax in axes if ax.get_title() == "sample 2")
    np.testing.assert_array_equal(np.array(second.collections[0].get_segments()), edges(result.samples[1, 0]))


def test_no_name_is_too_long_or_taken_for_a_formula(tmp_path: Path):
    name = "$x_{" + "1.3.6.1.4.1" * 30
    result = result_2d(n=2, name=name, targets=("$\\frac{$",), notes=("$_^$",))
    for path in exports.write(result, tmp_path, ["panel", "overlay"]):
        with Image.open(path) as picture:
            assert 700 < picture.width < 1500
    figure = result_panel(result)
    FigureCanvasAgg(figure).draw()
    for text in (figure._suptitle, figure._supxlabel):  # type: ignore[attr-defined]
        box = text.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list:
    """What the sheets would have written."""
    kept: list = []
    for module in ("contact_sheet", "sample_sheet"):
        monkeypatch.setattr(f"berdiff.output.{module}.save_png", lambda figure, path: kept.append(figure))
    return kept


def test_sheets_have_one_row_per_case(tmp_path: Path, figures: list):
    store = MemoryStore()
    contact_sheet(store, [0, 3, 5], tmp_path / "a.png")  # type: ignore[arg-type]
    sheet, most = figures[0], store.cases.raters[[0, 3, 5]].max()
    titles = ["ct", *(f"rater {i + 1}" for i in range(most)), "agreement"]
    assert [ax.get_title() for ax in sheet.axes if ax.get_title()] == titles
    assert len(sheet.axes) == 3 * len(titles)
    assert sum(bool(ax.images) for ax in sheet.axes) == sum(2 + store.cases.raters[i] for i in (0, 3, 5))
    assert next(ax.get_ylabel() for ax in sheet.axes if ax.get_ylabel()) == "case 0\ntest"
    assert not sheet.legends
    masks, samples = torch.randint(2, (3, 4, 1, 8, 8)), torch.randint(2, (2, 6, 1, 8, 8), dtype=torch.uint8)
    sample_sheet(tmp_path / "b.png", torch.rand(3, 1, 8, 8), masks, torch.tensor([2, 3, 4]), samples, "step 8; a note")
    sheet = figures[1]
    titles = ["image", *(f"rater {i}" for i in (1, 2, 3)), *(f"sample {i}" for i in (1, 2, 3, 4)), "saliency"]
    assert [ax.get_title() for ax in sheet.axes if ax.get_title()] == titles
    np.testing.assert_allclose(sheet.axes[17].images[0].get_array(), samples[1, :, 0].float().mean(0))
    assert sheet.get_suptitle() == "step 8; a note"


def test_sheets_of_several_targets_show_them_together_and_each_share(tmp_path: Path, figures: list):
    store = MemoryStore(targets=("a", "b"))
    contact_sheet(store, [0, 3, 5], tmp_path / "a.png")  # type: ignore[arg-type]
    sheet = figures[0]
    titles = ["ct", *(f"rater {i}" for i in range(1, 5)), "a\nagreement", "b\nagreement"]
    assert [ax.get_title() for ax in sheet.axes if ax.get_title()] == titles
    rows = np.reshape(sheet.axes, (3, 7))
    assert [text.get_text() for text in sheet.legends[0].get_texts()] == ["a", "b"]
    assert "independent targets" in sheet.get_suptitle()
    for row, i in zip(rows, (0, 3, 5), strict=True):
        own = store.cases.raters[i]
        np.testing.assert_allclose(row[6].images[0].get_array(), store.masks[i, :own, 1].mean(0))
        for ax, masks in zip(row[1:5], store.masks[i, :own], strict=False):
            drawn = [np.array(line.get_segments()) for line in ax.collections]
            for lines, mask in zip(drawn, [mask for mask in masks if mask.any()], strict=True):
                np.testing.assert_array_equal(lines, edges(mask))
        assert not any(ax.images for ax in row[1 + own : 5])  # no such rater
    samples = np.random.default_rng(0).integers(0, 2, (2, 6, 2, 16, 16), dtype=np.uint8)
    cases = store.images[:2], store.masks[:2], store.cases.raters[:2]
    sample_sheet(tmp_path / "b.png", *cases, samples, "step 8")
    sheet = figures[1]
    titles = [ax.get_title() for ax in sheet.axes if ax.get_title()]
    assert titles[-3:] == ["sample 4", "target 1\nsaliency", "target 2\nsaliency"]
    np.testing.assert_allclose(sheet.axes[-1].images[0].get_array(), samples[1, :, 1].mean(0), rtol=1e-6)
    sample_sheet(tmp_path / "c.png", *cases, samples, "step 8", targets=("a", "b"), kind="nested")
    assert [text.get_text() for text in figures[2].legends[0].get_texts()] == ["a", "b"]


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
    figure = render([row], "", key=legend(REGIONS))
    FigureCanvasAgg(figure).draw()


def test_a_row_of_a_case_can_show_the_variance_of_each_target():
    result = several_2d("nested")
    row = targets_row(result.image, result.raters, 2, result.samples, targets=REGIONS, kind="nested", variance=True)  # type: ignore[arg-type]
    last = [tile for tile in row if tile is not None][-6:]
    assert [tile.title for tile in last] == [f"{name}\n{what}" for name in REGIONS for what in ("saliency", "variance")]
    np.testing.assert_allclose(last[3].plane, result.samples[:, 1].var(0), atol=1e-6)

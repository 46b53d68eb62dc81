"""The one renderer: every part in its place, no row nearly empty, the notes on each."""

from pathlib import Path

import numpy as np
import pytest
import torch
from made_results import result_2d
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

from berdiff.output import exports
from berdiff.output.captions import percent, settings_line
from berdiff.output.contact_sheet import contact_sheet
from berdiff.output.panels import pack, result_panel
from berdiff.output.sample_sheet import sample_sheet
from berdiff.output.tiles import edges
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
    assert "nodule: a finding in 93.8 % of the samples; area" in caption
    assert "mm²" in caption
    assert caption.endswith("real readers, simulated CT; not for clinical use")
    assert "16 samples, model tiny, ddim in 2 steps (9, 4), seed 3" in figure.get_suptitle()
    labels = [ax.get_ylabel() for ax in result_panel(result_2d(n=3, targets=("core", "whole"))).axes]
    assert [label for label in labels if label] == ["core", "whole"]


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


def test_sheets_have_one_row_per_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    figures = []
    for module in ("contact_sheet", "sample_sheet"):
        monkeypatch.setattr(f"berdiff.output.{module}.save_png", lambda figure, path: figures.append(figure))
    store = MemoryStore(targets=("a", "b"))
    contact_sheet(store, [0, 3, 5], tmp_path / "a.png")  # type: ignore[arg-type]
    sheet = figures[0]
    assert [ax.get_title() for ax in sheet.axes if ax.get_title()] == [
        "ct",
        *(f"rater {i}" for i in range(1, 5)),
        "agreement",
    ]
    assert len(sheet.axes) == 6 * 6  # three cases of two targets
    assert sum(bool(ax.images) for ax in sheet.axes) == 2 * sum(2 + store.cases.raters[i] for i in (0, 3, 5))
    assert next(ax.get_ylabel() for ax in sheet.axes if ax.get_ylabel()) == "case 0\ntest\na"
    masks, samples = torch.randint(2, (3, 4, 1, 8, 8)), torch.randint(2, (2, 6, 1, 8, 8), dtype=torch.uint8)
    sample_sheet(tmp_path / "b.png", torch.rand(3, 1, 8, 8), masks, torch.tensor([2, 3, 4]), samples, "step 8; a note")
    sheet = figures[1]
    titles = ["image", *(f"rater {i}" for i in (1, 2, 3)), *(f"sample {i}" for i in (1, 2, 3, 4)), "saliency"]
    assert [ax.get_title() for ax in sheet.axes if ax.get_title()] == titles
    np.testing.assert_allclose(sheet.axes[17].images[0].get_array(), samples[1, :, 0].float().mean(0))
    assert sheet.get_suptitle() == "step 8; a note"

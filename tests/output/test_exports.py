"""What is written: the very masks, on the image's own grid, whole files with the right names and figures."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from made_results import REGIONS, SETTINGS, chosen_2d, part_of, result_2d, several_2d, volume_result
from PIL import Image

from berdiff.data.images import read_labels, read_mask
from berdiff.output import exports
from berdiff.output.colours import rgb_of, target_colours
from berdiff.output.formats import FORMATS
from refusals import refused


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.array(picture)


def test_masks_come_back_as_they_were_and_maps_as_grey_levels(tmp_path: Path):
    result = result_2d()
    written = exports.write(result, tmp_path, ["samples", "mask", "contours", "saliency", "variance"])
    for i, sample in enumerate(result.samples):
        np.testing.assert_array_equal(read_mask(tmp_path / f"samples/sample-{i + 1:02d}.png"), sample[0])
        assert set(np.unique(pixels(tmp_path / f"samples/sample-{i + 1:02d}.png"))) <= {0, 255}
    marked = result.samples[:, 0].sum(0)  # in how many of the 16
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), marked > 8)
    for percent, count in ((25, 4), (50, 8), (75, 12)):
        np.testing.assert_array_equal(read_mask(tmp_path / f"contour-{percent}pct.png"), marked > count)
    share = result.samples[:, 0].astype(float).mean(0)
    np.testing.assert_allclose(pixels(tmp_path / "saliency.png"), 255 * share, atol=0.5 + 1e-4)
    np.testing.assert_allclose(pixels(tmp_path / "variance.png"), 255 * share * (1 - share) / 0.25, atol=0.5 + 1e-4)
    assert sorted(written) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_representatives_carry_their_frequency(tmp_path: Path):
    result = result_2d()
    written = exports.write(result, tmp_path, ["representatives", "json"], representatives=2)
    facts = json.loads((tmp_path / "result.json").read_text())
    assert [path.name for path in written[:-1]] == [f"{found['name']}.png" for found in facts["representatives"]]
    assert sum(found["frequency"] for found in facts["representatives"]) == pytest.approx(1)
    for path, found in zip(written, facts["representatives"], strict=False):
        assert f"{100 * found['frequency']:.3g}pct" in path.name
        np.testing.assert_array_equal(read_mask(path), result.samples[found["sample"] - 1, 0])


def test_json_holds_what_was_measured_and_how(tmp_path: Path):
    result = part_of(result_2d(raters=4), (1, 18), (0, 24))
    exports.write(result, tmp_path, ["json"])
    facts = json.loads((tmp_path / "result.json").read_text())
    areas = result.samples[:, 0].sum((1, 2)) * 0.5 * 0.8
    measured = facts["measurements"]["nodule"]
    assert (measured["finding_probability"], measured["empty_share"]) == (15 / 16, 1 / 16)
    assert measured["area"]["unit"] == "mm^2"
    found = [measured["area"][q] for q in ("q05", "q50", "q95")]
    np.testing.assert_allclose(found, np.quantile(areas[areas > 0], [0.05, 0.5, 0.95]))
    assert facts["settings"] == SETTINGS
    assert (facts["shape"], facts["region"]) == ([20, 24], [[1, 18], [0, 24]])
    assert facts["source"] == {"kind": "png", "files": ["a.png"]}
    assert facts["notes"] == ["real readers, simulated CT", "not for clinical use"]
    exports.write(result_2d(spacing=(float("nan"), float("nan"))), tmp_path, ["json"])  # an unknown spacing is null
    facts = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
    assert facts["spacing_mm"] == [None, None]
    assert facts["measurements"]["nodule"]["area"]["unit"] == "px^2"


def test_of_a_pool_the_set_is_written_and_all_else_is_of_the_pool(tmp_path: Path):
    result, whole = chosen_2d(), result_2d()
    kinds = ["samples", "saliency", "variance", "mask", "contours", "representatives", "overlay", "json"]
    written = exports.write(result, tmp_path / "set", kinds)
    exports.write(whole, tmp_path / "pool", kinds)
    assert len(list((tmp_path / "set/samples").iterdir())) == 4
    for number, place in enumerate((5, 2, 7, 0), 1):
        np.testing.assert_array_equal(read_mask(tmp_path / f"set/samples/sample-{number}.png"), whole.samples[place, 0])
    facts, of_pool = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("set", "pool"))
    assert [facts[name] for name in ("set", "samples", "pool", "chosen")] == ["representative", 4, 16, [6, 3, 8, 1]]
    assert [of_pool[name] for name in ("set", "samples", "pool", "chosen")] == ["independent", 16, 16, None]
    for name in ("measurements", "representatives", "contours", "shape"):
        assert facts[name] == of_pool[name]
    others = [
        path.relative_to(tmp_path / "set") for path in written if path.suffix == ".png" and "sample-" not in path.name
    ]
    assert len(others) == 3 + 3 + 3 + 1
    for path in others:
        assert (tmp_path / "set" / path).read_bytes() == (tmp_path / "pool" / path).read_bytes(), path


def test_several_targets_are_told_apart_by_name(tmp_path: Path):
    result = result_2d(targets=("whole tumour", "../core"))
    exports.write(result, tmp_path / "out", ["mask", "samples", "overlay"])
    np.testing.assert_array_equal(read_mask(tmp_path / "out/mask-whole-tumour.png"), result.mask()[0])
    np.testing.assert_array_equal(read_mask(tmp_path / "out/mask-core.png"), result.mask()[1])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    alike = result_2d(targets=("core", "../core"))  # whose names are the same without what a file system may refuse
    exports.write(alike, tmp_path / "alike", ["mask"])
    for k, name in enumerate(("mask-1-core.png", "mask-2-core.png")):
        np.testing.assert_array_equal(read_mask(tmp_path / "alike" / name), alike.mask()[k])


@pytest.mark.parametrize("kind", ["nested", "exclusive"])
def test_targets_that_fit_into_one_map_are_one_picture(tmp_path: Path, kind: str):
    """Every mask of every target comes back from it, as the folder source would read it."""
    result = several_2d(kind)
    written = exports.write(result, tmp_path, ["mask", "samples", "representatives", "saliency", "contours", "json"])
    chosen = result.representatives()
    expected = {"mask": result.majority()} | {f"samples/sample-{i}": of for i, of in enumerate(result.samples, 1)}
    facts = json.loads((tmp_path / "result.json").read_text())
    expected |= {of["name"]: found.mask for of, found in zip(facts["representatives"], chosen, strict=True)}
    for name, masks in expected.items():
        labels = read_labels(tmp_path / f"{name}.png")
        for k, mask in enumerate(masks):
            np.testing.assert_array_equal(labels > k if kind == "nested" else labels == k + 1, mask)
    meaning = json.loads((tmp_path / "labels.json").read_text())
    assert meaning["labels"] == facts["labels"] == dict(zip("0123", ("background", *REGIONS), strict=True))
    assert (meaning["kind"], facts["kind"]) == (kind, kind)
    assert meaning["colours"] == dict(zip(REGIONS, target_colours(3), strict=True))
    with Image.open(tmp_path / "mask.png") as picture:
        assert [list(of) for of in np.reshape(picture.getpalette()[:12], (4, 3))] == [  # type: ignore[index]
            [0, 0, 0],
            *map(rgb_of, target_colours(3)),
        ]
    # shares and contours, which may overlap, are of each target
    assert len(written) == 1 + 8 + len(chosen) + 3 + 3 * 3 + 2
    for k, name in enumerate(("whole-tumour", "tumour-core", "enhancing-tumour")):
        marked = result.pool[:, k].sum(0)
        np.testing.assert_array_equal(read_mask(tmp_path / f"contour-25pct-{name}.png"), marked > 2)  # of eight


def test_independent_targets_have_no_label_map(tmp_path: Path):
    result = several_2d("independent")
    names = {path.name for path in exports.write(result, tmp_path, ["mask", "json"])}
    assert names == {"mask-whole-tumour.png", "mask-tumour-core.png", "mask-enhancing-tumour.png", "result.json"}
    assert json.loads((tmp_path / "result.json").read_text())["labels"] is None
    with pytest.raises(ValueError, match="label_map: expected several nested or exclusive targets, found independent"):
        result.label_map()


def test_overlays_show_targets_together_and_each_alone(tmp_path: Path):
    written = exports.write(several_2d("nested"), tmp_path, ["overlay"])
    alone = ["overlay-whole-tumour.png", "overlay-tumour-core.png", "overlay-enhancing-tumour.png"]
    assert [path.name for path in written] == ["overlay.png", *alone]
    together = pixels(tmp_path / "overlay.png")
    for colour in target_colours(3):
        assert (together == rgb_of(colour)).all(-1).sum() > 400  # outlines, beside a swatch in the key
    image = np.zeros((4, 12, 16))
    image[1, 2:9, 4:6], image[2, 2:9, 4:6] = 99, 47  # in the second slice the outermost target alone, in three of four
    written = exports.write(volume_result(image, (2.0, 1.0, 1.0), kind="nested"), tmp_path / "v", ["overlay"])
    names = [str(path.relative_to(tmp_path / "v")) for path in written]
    inner = [f"{name.removesuffix('.png')}/slice-0001.png" for name in alone[1:]]
    outer = [f"overlay-whole-tumour/slice-000{z}.png" for z in (1, 2)]
    assert names == ["overlay/slice-0001.png", "overlay/slice-0002.png", *outer, *inner]


def test_measurements_are_a_line_per_target(tmp_path: Path):
    result = several_2d("nested", name='a "b", c')
    (path,) = exports.write(result, tmp_path, ["csv"])
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["input"], row["target"]) for row in rows] == [('a "b", c', name) for name in REGIONS]
    for row, k in zip(rows, range(3), strict=True):
        areas = result.pool[:, k].sum((1, 2)) * 0.5 * 0.8
        assert (float(row["finding_probability"]), float(row["empty_share"])) == (7 / 8, 1 / 8)
        assert row["area_unit"] == "mm^2"
        found = [float(row[f"area_{q}"]) for q in ("q05", "q50", "q95")]
        np.testing.assert_allclose(found, np.quantile(areas[areas > 0], [0.05, 0.5, 0.95]))
        assert float(row["longest_diameter_q50"]) == result.measurements()[REGIONS[k]]["longest_diameter"]["q50"]
    (path,) = exports.write(volume_result(np.full((2, 9, 9), 99), (2.0, 1.0, 1.0)), tmp_path, ["csv"])
    assert "volume_q50,longest_diameter_unit" in path.read_text().replace("volume_q95,", "")
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["extent_mm"] == "4.0"


def test_one_slice_of_a_volume_has_an_area_and_no_volume(tmp_path: Path):
    image = np.zeros((5, 9, 16))
    image[2, 2:6, 3:9] = 99
    result = part_of(volume_result(image, (2.5, 0.5, 1.0)), (2, 3), (0, 9), (0, 16))
    (measured,) = result.measurements().values()
    assert (measured["area"]["unit"], "volume" in measured, "extent_mm" in measured) == ("mm^2", False, False)
    written = exports.write(result, tmp_path, ["json", "csv", "report", "panel", "viewer"])
    for path in written:
        text = path.read_text(encoding="utf-8") if path.suffix != ".png" else ""
        assert "mm^3" not in text
        assert "mm\u00b3" not in text.replace("\\u00b3", "\u00b3")


def test_volumes_become_nifti_and_overlays_of_the_slices_with_a_contour(tmp_path: Path):
    image = np.zeros((5, 12, 16))
    image[3, 2:9, 4:6] = 99
    written = exports.write(volume_result(image, (2.0, 1.0, 1.0)), tmp_path, ["mask", "overlay", "samples", "nifti"])
    assert {path.name for path in written} >= {"mask.nii.gz", "samples.nii.gz", "saliency.nii.gz", "slice-0003.png"}
    assert [path.name for path in (tmp_path / "overlay").iterdir()] == ["slice-0003.png"]
    assert len(written) == len(set(written))


def test_what_cannot_be_written_is_reported_before_anything_is(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs/outputs.md").read_text()
    table = page[page.index("| format |") :].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` ", table, re.MULTILINE) == list(FORMATS)
    with refused("--write", "'masks'", code="name"):
        exports.write(result_2d(), tmp_path, ["mask", "masks"])
    with refused("a: ", "dicom-seg", code="unsupported"):
        exports.write(result_2d(), tmp_path, ["mask", "dicom-seg"])
    assert list(tmp_path.iterdir()) == []

"""What is written: the very masks, on the image's own grid, whole files with the right names and figures."""

import json
from pathlib import Path

import numpy as np
import pytest
from made import SETTINGS, result_2d, volume_result
from PIL import Image

from berdiff.data.images import read_mask
from berdiff.errors import InputError
from berdiff.inference import exports
from berdiff.inference.result import Source

PLAIN = ("samples", "saliency", "variance", "mask", "contours", "representatives", "json", "overlay", "panel", "report")


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.array(picture)


def test_every_kind_has_a_writer():
    assert set(exports.KINDS) == set(exports.WRITERS)


def test_masks_come_back_as_they_were(tmp_path: Path):
    result = result_2d()
    written = exports.write(result, tmp_path, ["samples", "mask", "contours", "representatives"])
    for i, sample in enumerate(result.samples):
        np.testing.assert_array_equal(read_mask(tmp_path / f"samples/sample-{i + 1:02d}.png"), sample[0])
        assert set(np.unique(pixels(tmp_path / f"samples/sample-{i + 1:02d}.png"))) <= {0, 255}
    marked = result.samples[:, 0].sum(0)  # in how many of the 16
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), marked >= 8)
    for percent, count in ((25, 4), (50, 8), (75, 12)):
        np.testing.assert_array_equal(read_mask(tmp_path / f"contour-{percent}pct.png"), marked >= count)
    assert sorted(written) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_maps_are_grey_levels_of_their_range(tmp_path: Path):
    result = result_2d()
    exports.write(result, tmp_path, ["saliency", "variance"])
    share = result.samples[:, 0].astype(float).mean(0)
    np.testing.assert_allclose(pixels(tmp_path / "saliency.png"), 255 * share, atol=0.5 + 1e-4)
    np.testing.assert_allclose(pixels(tmp_path / "variance.png"), 255 * share * (1 - share) / 0.25, atol=0.5 + 1e-4)


def test_representatives_carry_their_frequency(tmp_path: Path):
    result = result_2d()
    written = exports.write(result, tmp_path, ["representatives", "json"], representatives=2)
    facts = json.loads((tmp_path / "result.json").read_text())
    assert [path.name for path in written[:-1]] == [f"{found['name']}.png" for found in facts["representatives"]]
    assert sum(found["frequency"] for found in facts["representatives"]) == pytest.approx(1)
    for path, found in zip(written, facts["representatives"], strict=False):
        assert f"{100 * found['frequency']:.3g}pct" in path.name
        np.testing.assert_array_equal(read_mask(path), result.samples[found["sample"] - 1, 0])


def test_json_says_what_was_measured_and_how(tmp_path: Path):
    result = result_2d(readers=4)
    exports.write(result, tmp_path, ["json"])
    facts = json.loads((tmp_path / "result.json").read_text())
    areas = result.samples[:, 0].sum((1, 2)) * 0.5 * 0.8
    measured = facts["measurements"]["nodule"]
    assert measured["finding_probability"] == 15 / 16
    assert measured["area"]["unit"] == "mm^2"
    found = [measured["area"][q] for q in ("q05", "q50", "q95")]
    np.testing.assert_allclose(found, np.quantile(areas, [0.05, 0.5, 0.95]))
    assert facts["settings"] == SETTINGS
    assert facts["source"] == {"kind": "png", "files": ["a.png"]}
    assert facts["notes"] == ["real readers, simulated CT", "not for clinical use"]


def test_unknown_spacing_is_null_and_in_pixels(tmp_path: Path):
    exports.write(result_2d(spacing=(float("nan"), float("nan"))), tmp_path, ["json"])
    facts = json.loads((tmp_path / "result.json").read_text(), parse_constant=pytest.fail)
    assert facts["spacing_mm"] == [None, None]
    assert facts["measurements"]["nodule"]["area"]["unit"] == "px^2"


def test_several_targets_are_told_apart_by_name(tmp_path: Path):
    result = result_2d(targets=("whole tumour", "../core"))
    exports.write(result, tmp_path / "out", ["mask", "samples"])
    np.testing.assert_array_equal(read_mask(tmp_path / "out/mask-whole-tumour.png"), result.mask()[0])
    np.testing.assert_array_equal(read_mask(tmp_path / "out/mask-core.png"), result.mask()[1])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_volumes_become_nifti_and_overlays_of_the_slices_with_a_contour(tmp_path: Path):
    image = np.zeros((5, 12, 16))
    image[3, 2:9, 4:6] = 99
    source = Source("array", shape=image.shape)
    result = volume_result(image, (2.0, 1.0, 1.0), source)
    written = exports.write(result, tmp_path, ["mask", "overlay", "samples", "nifti"])
    assert {path.name for path in written} >= {"mask.nii.gz", "samples.nii.gz", "saliency.nii.gz", "slice-0003.png"}
    assert [path.name for path in (tmp_path / "overlay").iterdir()] == ["slice-0003.png"]
    assert len(written) == len(set(written))


def test_the_same_result_gives_the_same_bytes(tmp_path: Path):
    for name in ("one", "two"):
        exports.write(result_2d(n=4, readers=2), tmp_path / name, [*PLAIN, "nifti"])
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) > 15
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(self: Image.Image, part: Path, **_: object) -> None:
        Path(part).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(Image.Image, "save", fails)
    with pytest.raises(OSError, match="disk full"):
        exports.write(result_2d(), tmp_path, ["mask"])
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_said_before_anything_is(tmp_path: Path):
    with pytest.raises(InputError, match=r"^--write: expected some of samples, .*, found 'masks'$"):
        exports.write(result_2d(), tmp_path, ["mask", "masks"])
    with pytest.raises(InputError, match=r"^a: expected a DICOM input for dicom-seg, which refers to it, found png$"):
        exports.write(result_2d(), tmp_path, ["mask", "dicom-seg"])
    assert list(tmp_path.iterdir()) == []

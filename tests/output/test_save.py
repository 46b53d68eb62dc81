"""`result.save`, and what a result shows of itself."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest
from made_results import REGIONS, chosen_2d, part_of, result_2d, several_2d, volume_result
from PIL import Image

from berdiff.output import exports
from berdiff.output.formats import FORMATS, Format
from refusals import refused


def names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def test_a_folder_has_the_files_of_the_command(tmp_path: Path):
    result = result_2d()
    written = result.save(tmp_path / "own")
    exports.write(result, tmp_path / "command")
    assert sorted(written) == sorted(tmp_path / "own" / name for name in names(tmp_path / "command"))
    for name in names(tmp_path / "command"):
        assert (tmp_path / "own" / name).read_bytes() == (tmp_path / "command" / name).read_bytes()
    result.save(tmp_path / "few", write=("csv", "saliency"))
    assert names(tmp_path / "few") == ["measurements.csv", "saliency.png"]


def test_an_ending_takes_one_thing(tmp_path: Path):
    result = chosen_2d()
    endings = (".nii.gz", ".png", ".html", ".json", ".npz")
    for ending in endings:
        assert result.save(tmp_path / f"one{ending}") == [tmp_path / f"one{ending}"]
    assert names(tmp_path) == sorted(f"one{ending}" for ending in endings)
    stored = np.asarray(nibabel.load(tmp_path / "one.nii.gz").dataobj)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.squeeze(stored).T, result.majority()[0])
    assert json.loads((tmp_path / "one.json").read_text())["chosen"] == [6, 3, 8, 1]
    assert Image.open(tmp_path / "one.png").width > 500
    assert (tmp_path / "one.html").read_text().lower().startswith("<!doctype html>")
    arrays = np.load(tmp_path / "one.npz")
    np.testing.assert_array_equal(arrays["samples"], result.samples)
    np.testing.assert_array_equal(arrays["saliency"], result.saliency)
    assert arrays["targets"].tolist() == ["nodule"]


def test_of_several_targets_a_label_map_or_a_folder(tmp_path: Path):
    nested = several_2d("nested")
    nested.save(tmp_path / "map.nii.gz")
    stored = np.asarray(nibabel.load(tmp_path / "map.nii.gz").dataobj)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(np.squeeze(stored).T, nested.label_map())
    with refused("path: ", code="unsupported"):
        several_2d("independent").save(tmp_path / "two.nii.gz")
    assert names(tmp_path) == ["map.nii.gz"]


def test_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*of):
        raise OSError(28, "No space left on device")

    result = result_2d()
    (tmp_path / "panel.png").write_bytes(b"older")
    monkeypatch.setitem(FORMATS, "json", Format("", fail))
    monkeypatch.setitem(FORMATS, "panel", Format("", fail, ending=".png"))
    for path in ("folder", "panel.png"):
        with pytest.raises(OSError, match="No space"):
            result.save(tmp_path / path)
    assert names(tmp_path) == ["panel.png"]
    assert not (tmp_path / "folder").exists()
    assert (tmp_path / "panel.png").read_bytes() == b"older"


def test_what_it_cannot_write_is_refused_by_the_keyword(tmp_path: Path):
    result = result_2d()
    (tmp_path / "there").mkdir()
    for path, write, named, code in (
        ("there", (), "path: ", "conflict"),
        ("mask.tif", (), "path: ", "name"),
        ("new", ("nift",), "write: ", "name"),
        ("a.png", ("json",), "write: ", "conflict"),
    ):
        with refused(named, code=code):
            result.save(tmp_path / path, write=write)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_the_repr_has_grid_share_and_size_of_samples_that_mark():
    result = result_2d(n=4, spacing=(0.5, 2.0))  # the first of the four marks nothing
    first, second, third = repr(result).splitlines()
    assert (first, second) == ("Result a: 20x24 pixels, 0.5x2 mm", "  4 samples by the model tiny")
    sizes = result.samples[1:].sum((1, 2, 3)) * 1.0
    assert "nodule: marked by 75% of the samples" in third
    assert f"area there {np.median(sizes):.4g} mm^2" in third
    assert result._repr_png_().startswith(b"\x89PNG")
    empty = result_2d(pool=np.zeros((2, 1, 20, 24), np.uint8), spacing=(np.nan, np.nan))
    assert repr(empty).splitlines()[2] == "  nodule: marked by 0% of the samples"


def test_a_volume_has_a_volume_and_one_slice_of_it_an_area():
    image = np.full((4, 5, 6), 99.0)
    whole = volume_result(image, (2.0, 1.0, 1.0))
    assert "4x5x6 voxels, 2x1x1 mm" in repr(whole)
    assert "volume there 240 mm^3" in repr(whole)
    one = part_of(whole, (1, 2), (0, 5), (0, 6))
    assert "1x5x6 of 4x5x6 voxels" in repr(one)
    assert "area there 30 mm^2" in repr(one)
    several = repr(volume_result(image, (2.0, 1.0, 1.0), kind="nested")).splitlines()
    assert [line.strip().split(":")[0] for line in several[2:]] == list(REGIONS)

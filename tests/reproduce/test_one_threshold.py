"""The threshold that networks must beat: its mask by hand, and the figures of a real split."""

import csv
import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from berdiff.cli.main import main
from berdiff.errors import InputError
from fakes import generator, make_spec, make_store
from reproduce.one_threshold import Threshold

ROOT = Path(__file__).parents[2]  # `python -m reproduce.NAME` is run from there
SPEC = make_spec((12, 12), ("t1", "flair"), ("whole_tumour",))


def test_the_largest_part_of_the_channel_above_the_level():
    image = torch.zeros(2, 2, 12, 12)
    image[0, 0] = 1.0  # t1 is not looked at
    image[0, 1, 2:5, 2:5] = 0.7  # nine pixels
    image[0, 1, 8:10, 8:10] = 0.9  # four
    samples = Threshold(level=0.6, blur=0.0).build(SPEC).sample(image, 3, generator())
    expected = torch.zeros(12, 12, dtype=torch.uint8)
    expected[2:5, 2:5] = 1
    assert samples.shape == (2, 3, 1, 12, 12)
    assert all(torch.equal(one, expected) for one in samples[0, :, 0])
    assert not samples[1].any()


def test_the_blur_comes_first():
    image = torch.zeros(1, 2, 12, 12)
    image[0, 1, 6, 6] = 1.0
    assert Threshold(blur=0.0).build(SPEC).sample(image, 1, generator()).sum() == 1
    assert Threshold(blur=1.0).build(SPEC).sample(image, 1, generator()).sum() == 0


def test_what_it_cannot_is_refused():
    with pytest.raises(InputError, match=r"--channel: expected one of t1, flair, found t2"):
        Threshold(channel="t2").build(SPEC)
    with pytest.raises(InputError, match=r"--data: expected a store of one target, found 2 \(wt, tc\)"):
        Threshold().build(make_spec((12, 12), ("flair",), ("wt", "tc")))


def test_the_command_writes_an_evaluation_and_speaks_in_sentences(tmp_path, monkeypatch, capsys):
    store = make_store(tmp_path)

    def run(channel: str) -> int:
        options = ["--data", str(store), "--split", "val", "--out", str(tmp_path / channel), "--channel", channel]
        monkeypatch.setattr(sys, "argv", ["one_threshold", *options])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("reproduce.one_threshold", run_name="__main__")
        return ended.value.code

    assert run("ct") == 0
    assert (tmp_path / "ct" / "metrics.json").is_file()
    capsys.readouterr()
    assert run("flair") == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith("--channel: expected one of ct, found flair")
    assert not (tmp_path / "flair").exists()


@pytest.mark.slow
def test_figures_of_the_real_test_split(shared_data, tmp_path):
    """Against scipy on the files themselves, not on a prepared store."""
    nibabel, ndimage = pytest.importorskip("nibabel"), pytest.importorskip("scipy.ndimage")
    folder = shared_data / "brats3d"
    with (folder / "split.csv").open(newline="") as file:
        split = {row["case"]: row["split"] for row in csv.DictReader(file)}
    table = "".join(f"{case},{case},{part}\n" for case, part in split.items())
    (tmp_path / "table.csv").write_text(f"case,patient,split\n{table}")
    prepared = [
        "data",
        "prepare",
        "folder",
        str(folder),
        str(tmp_path / "whole.zarr"),
        "--labels",
        "whole_tumour=1,2,4",
    ]
    prepared += ["--images", "imagesTr", "--masks", "labelsTr", "--image-name", "{case}_{channel}"]
    prepared += ["--mask-name", "{case}", "--table", str(tmp_path / "table.csv"), "--scale", "dtype", "--quiet"]
    assert main(prepared) == 0
    command = [
        sys.executable,
        "-m",
        "reproduce.one_threshold",
        "--channel",
        "0003",
        "--level",
        str(24.5 / 255),
    ]
    subprocess.run(
        [*command, "--data", str(tmp_path / "whole.zarr"), "--out", str(tmp_path / "eval")], check=True, cwd=ROOT
    )
    dices = []
    for case in (case for case, part in split.items() if part == "test"):
        flair = np.asarray(nibabel.load(folder / "imagesTr" / f"{case}_0003.nii.gz").dataobj)
        labels = np.asarray(nibabel.load(folder / "labelsTr" / f"{case}.nii.gz").dataobj) > 0
        for z in np.flatnonzero(labels.any((0, 1))):
            parts, count = ndimage.label(ndimage.gaussian_filter(flair[..., z].astype(float), 1) > 24.5)
            sizes = ndimage.sum_labels(np.ones_like(parts), parts, range(1, count + 1))
            mask, label = parts == 1 + np.argmax(sizes) if count else parts > 0, labels[..., z]
            dices.append(2 * (mask & label).sum() / (mask.sum() + label.sum()))
    found = json.loads((tmp_path / "eval" / "metrics.json").read_text())["metrics"]["dice_slice_marked"]["value"]
    assert found == pytest.approx(np.mean(dices), abs=1e-3)

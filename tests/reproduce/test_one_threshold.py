"""The threshold that networks must beat: its mask by hand, and the figures of a real split."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

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

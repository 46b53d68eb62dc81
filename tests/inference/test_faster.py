"""bf16 and torch.compile: off unless asked for, part of what a folder was begun with, refused where they cannot be."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import berdiff
from berdiff.cli.main import main
from berdiff.device import choose_precision
from berdiff.inference import compiling
from berdiff.inference.compiling import compiled
from fakes import StandIn, bright_model, make_spec
from refusals import refused


@pytest.fixture(scope="module")
def lidc():
    return {precision: berdiff.load("lidc", "cpu", precision=precision) for precision in ("fp32", "bf16")}


def blob(side: int) -> np.ndarray:
    """A bright spot in the middle, which `lidc` takes for a nodule."""
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    return (0.15 + 0.6 * np.exp(-(x**2 + y**2) / 72)).astype(np.float32)


def test_bf16_rounds_the_network_and_nothing_else(lidc):
    """The masks are nearly those of fp32, by tiles too: the draws are the same, only the logits are rounded.

    Outside of sampling nothing is cast.
    """
    for side, n in ((64, 8), (72, 1)):  # few by tiles: without instructions for it, bf16 is slow
        plain, half = (lidc[precision].segment(blob(side), n=n) for precision in ("fp32", "bf16"))
        assert plain.pool.any()
        assert np.mean(plain.pool != half.pool) < 0.01
        assert n < 8 or not np.array_equal(plain.pool, half.pool), "nothing was rounded"
    assert "precision" not in plain.settings
    assert half.settings["precision"] == "bf16"
    assert not torch.is_autocast_enabled("cpu")
    assert {value.dtype for value in lidc["bf16"].segmenter.parameters()} == {torch.float32}


def test_another_precision_in_the_same_folder_is_refused(tmp_path, capsys):
    Image.fromarray(np.zeros((64, 64), np.uint8)).save(tmp_path / "a.png")
    command = ["segment", "lidc", str(tmp_path / "a.png"), "--out", str(tmp_path / "out"), "--samples", "1"]
    command += ["--write", "mask", "--device", "cpu"]
    assert main(command) == 0
    assert main([*command, "--precision", "bf16"]) == 2
    assert "(precision: there None, now 'bf16')" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main([*command, "--precision", "fp8"])
    assert left.value.code == 2


def test_what_the_machine_cannot_is_refused_in_one_sentence(monkeypatch):
    assert choose_precision("cpu", "bf16") == "bf16"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with refused("--precision", "cuda:1"):
        choose_precision("cuda:1", "bf16")
    segmenter = StandIn().build(make_spec())
    with refused("--compile", code="unsupported"):
        compiled(segmenter, "cpu")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with refused("--compile", code="missing"):
        compiled(bright_model().segmenter, "cpu")
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    with refused("--compile", code="missing"):
        compiled(bright_model().segmenter, "cuda")


def test_compile_runs_the_network_by_torch(monkeypatch):
    """Which function is compiled; what the compiler makes of it is the slow test's."""
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++")
    asked = []
    monkeypatch.setattr(torch, "compile", lambda function: (asked.append(function.__name__), function)[1])
    model = bright_model()
    plain = model.segmenter.network
    model = replace(model, segmenter=compiled(model.segmenter, "cpu"))
    assert asked == ["encode", "denoise"]
    assert model.rounding() == {"compile": True}
    assert model.segment(np.ones((24, 16), np.float32), n=1).pool.any(), "tiles run it too"
    assert "encode" not in vars(plain), "the network itself is as it was"


@pytest.mark.slow
def test_compiled_masks_are_nearly_the_same(lidc):
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("no C++ compiler")
    image = blob(64)
    plain, compiled = lidc["fp32"].segment(image, n=4), berdiff.load("lidc", "cpu", compile=True).segment(image, n=4)
    assert np.mean(plain.pool != compiled.pool) < 0.001

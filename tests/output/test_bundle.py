"""A MONAI bundle that MONAI itself reads and runs, with the masks of `berdiff segment`."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import berdiff
from berdiff.cli.main import main
from berdiff.methods import folder
from berdiff.methods.berdiff import BerDiff
from fakes import make_spec

bundle = pytest.importorskip("monai.bundle")


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "scans").mkdir()
    for name in ("a", "b"):
        Image.fromarray(rng.integers(0, 255, (24, 32), dtype=np.uint8)).save(tmp_path / "scans" / f"{name}.png")
    return tmp_path / "scans"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    folder.save(BerDiff(preset="fast-tiny", T=50).build(make_spec((16, 24))), tmp_path / "model")
    return tmp_path / "model"


def run(root: Path, scans: Path, out: Path, **options) -> None:
    """What `python -m monai.bundle run` calls."""
    where = {"bundle_root": str(root), "dataset_dir": str(scans), "output_dir": str(out), "device": "cpu"}
    meta, config = (str(root / "configs" / f"{name}.json") for name in ("metadata", "inference"))
    bundle.run(config_file=config, meta_file=meta, **where, **options)


def pictures(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.png"))}


def test_monai_runs_it_and_gives_the_same_masks(model: Path, scans: Path, tmp_path: Path, capsys):
    root = tmp_path / "bundle"
    assert main(["export", str(model), "--format", "bundle", "--out", str(root), "--device", "cpu", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["files"]
    expected = ["LICENSE", "configs/inference.json", "configs/metadata.json", "docs/README.md"]
    assert listed == [*expected, "models/config.json", "models/model.safetensors"]
    run(root, scans, tmp_path / "theirs", samples=3, seed=5, pad=True)
    argv = [str(model), str(scans), "--samples", "3", "--seed", "5", "--pad", "--device", "cpu"]
    assert main(["segment", *argv, "--out", str(tmp_path / "ours")]) == 0
    ours = pictures(tmp_path / "ours")
    assert "a/samples/sample-3.png" in ours
    assert ours == pictures(tmp_path / "theirs")  # every mask, map and overlay, to the bit


def test_what_monai_asks_of_a_bundle_is_there(model: Path, scans: Path, tmp_path: Path):
    root = tmp_path / "bundle"
    assert main(["export", str(model), "--format", "bundle", "--out", str(root)]) == 0
    workflow = bundle.ConfigWorkflow(
        config_file=str(root / "configs/inference.json"),
        meta_file=str(root / "configs/metadata.json"),
        workflow_type="infer",
        bundle_root=str(root),
        dataset_dir=str(scans),
        device="cpu",
        samples=2,
    )
    workflow.initialize()
    assert not workflow.check_properties()  # none is missing
    network, inferer, dataset = workflow.network_def, workflow.inferer, workflow.dataset
    meta = json.loads((root / "configs/metadata.json").read_text())
    form = meta["network_data_format"]
    strings = ("version", "monai_version", "pytorch_version", "numpy_version", "task", "description", "authors")
    assert all(isinstance(meta[name], str) and meta[name] for name in strings)  # as MONAI's schema of 2024 has it
    for of in (form["inputs"]["image"], form["outputs"]["pred"]):
        assert {"type", "format", "num_channels", "spatial_shape", "dtype", "value_range", "is_patch_data"} <= of.keys()
        assert len(of["channel_def"]) == of["num_channels"]
    image = torch.rand(2, form["inputs"]["image"]["num_channels"], *form["inputs"]["image"]["spatial_shape"])
    found = network(image)
    assert found.shape[1] == form["outputs"]["pred"]["num_channels"]
    assert 0 <= found.min() <= found.max() <= 1
    torch.testing.assert_close(network(image), found, rtol=0, atol=0)
    assert [dataset[i]["name"] for i in range(len(dataset))] == ["a", "b"]
    path = scans / "a.png"
    np.testing.assert_array_equal(inferer(path).numpy(), berdiff.load(model, "cpu").segment(path, n=2).samples)


def test_bad_input_is_one_sentence(model: Path, scans: Path, tmp_path: Path, capsys):
    argv = ["export", str(model), "--format", "bundle"]
    new = ["--out", str(tmp_path / "n")]
    for wrong, named in ((["--out", str(scans)], "--out"), ([*new, "--size", "16", "24"], "--size")):
        assert main([*argv, *wrong]) == 2
        assert f"{named}: " in capsys.readouterr().err
    assert not (tmp_path / "n").exists()

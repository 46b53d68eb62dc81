"""The exported graphs give PyTorch's numbers and the sampler's own masks; nothing is left where they cannot be made."""

import json
from importlib.util import find_spec

import pytest
import torch

from berdiff.cli.main import main
from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.diffusion.schedule import cosine
from berdiff.errors import InputError
from berdiff.methods import export
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import load, save
from berdiff.networks.build import make_network

needs_onnx = pytest.mark.skipif(
    any(find_spec(name) is None for name in export._NEEDED), reason="the extra berdiff[onnx] is not installed"
)

SAMPLER = Sampler(steps=4, last_step="sample")  # drawn to the end, so that every probability shows


def saved(preset: str, folder) -> str:
    torch.manual_seed(0)
    network = make_network(preset, image_channels=2)
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.1)  # no layer that begins as zero hides another
    save(
        BerDiff(network, cosine(50), target="mask", sampler=SAMPLER), folder, {"size": [16, 24], "channels": ["a", "b"]}
    )
    return str(folder)


class FromOnnx:
    """A Denoiser that asks the exported graphs."""

    targets = 1

    def __init__(self, folder) -> None:
        import onnxruntime

        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])
            for name in ("encode.onnx", "denoise.onnx")
        )
        self.files = json.loads((folder / "export.json").read_text())["files"]

    def encode(self, image):
        return self.encoder.run(None, {"image": image.numpy()})

    def denoise(self, y_t, t, features):
        names = self.files["denoise.onnx"]["inputs"]
        return torch.from_numpy(
            self.step.run(None, dict(zip(names, (y_t.numpy(), t.numpy(), *features), strict=True)))[0]
        )


@needs_onnx
@pytest.mark.slow  # the exporter takes its time
@pytest.mark.parametrize("preset", ["fast-tiny", "tiny"])
def test_the_graphs_sample_the_same_masks(preset, tmp_path, capsys):
    folder, out = saved(preset, tmp_path / "model"), tmp_path / "onnx"
    assert main(["export", folder, "--out", str(out)]) == 0
    assert "from PyTorch's numbers" in capsys.readouterr().out
    assert sorted(p.name for p in out.iterdir()) == ["denoise.onnx", "encode.onnx", "export.json"]
    said = json.loads((out / "export.json").read_text())
    assert said["size"] == [16, 24]
    assert said["largest_difference_to_pytorch"] < 1e-4
    assert len(said["alpha_bar"]) == 51

    model = load(folder)
    image = torch.rand(1, 2, 16, 24)  # one image and five masks: neither is a number the exporter saw
    ours = model.sample(image, 5, sample_generators(0, ["a"], 5))
    theirs = BerDiff(FromOnnx(out), model.schedule, target="mask", sampler=SAMPLER).sample(
        image, 5, sample_generators(0, ["a"], 5)
    )
    assert 0 < ours.float().mean() < 1
    # a logit within rounding of a drawn number may fall on its other side
    assert (ours != theirs).float().mean() < 1e-3


@needs_onnx
@pytest.mark.slow
def test_graphs_with_other_numbers_do_not_appear(tmp_path, monkeypatch):
    model = load(saved("fast-tiny", tmp_path / "model"))
    right = export._write

    def wrong(module, *args, **options):
        state = {name: value.clone() for name, value in module.state_dict().items()}
        with torch.no_grad():
            next(module.parameters()).add_(0.01)
        right(module, *args, **options)
        module.load_state_dict(state)

    monkeypatch.setattr(export, "_write", wrong)
    with pytest.raises(InputError, match=r"encode\.onnx: expected PyTorch's numbers within 0\.0001, found"):
        export.export_onnx(model, (16, 24), tmp_path / "onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_bad_input_is_one_sentence(tmp_path, capsys, monkeypatch):
    folder = saved("fast-tiny", tmp_path / "model")
    monkeypatch.setattr(export, "_NEEDED", ())
    assert main(["export", folder, "--out", str(tmp_path)]) == 2
    assert f"--out: expected a folder that does not exist yet, found {tmp_path}" in capsys.readouterr().err
    assert main(["export", folder, "--out", str(tmp_path / "onnx"), "--size", "16", "20"]) == 2
    assert "--size: expected height and width in multiples of 8, found 16 20" in capsys.readouterr().err
    monkeypatch.setattr(export, "_NEEDED", ("a_package_of_nobody",))
    assert main(["export", folder, "--out", str(tmp_path / "onnx")]) == 2
    error = capsys.readouterr().err
    assert "a_package_of_nobody: expected the packages of `pip install berdiff[onnx]`, found it missing" in error
    assert len(error.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["model"]

"""The exported graphs give PyTorch's numbers and the sampler's own masks; nothing is left where they cannot be made."""

import json
from importlib.util import find_spec

import pytest
import torch

from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.methods import export
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.berdiff.hurdle import Encoded, HurdleSegmenter
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.networks.denoiser import Denoiser
from fakes import diffusion, make_spec
from refusals import refused

pytestmark = [
    pytest.mark.skipif(any(find_spec(name) is None for name in export._NEEDED), reason="no extra berdiff[onnx]"),
    pytest.mark.slow,  # the exporter takes its time
]
SPEC = make_spec((16, 24), ("a", "b"))
SAMPLER = Sampler(steps=4, last_step="sample")  # drawn to the end, so that every probability shows
SHARED = Sampler(steps=4, last_step="sample", noise="shared")  # the same with a hurdle


def segmenter(preset: str, hurdle: float = 0.0) -> DiffusionSegmenter:
    torch.manual_seed(0)
    sampler = SHARED if hurdle else SAMPLER
    config = BerDiff(preset=preset, schedule="cosine", T=50, prediction="mask", hurdle=hurdle, sampler=sampler)
    made = config.build(SPEC)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # no layer that begins as zero hides another
    return made.eval()  # type: ignore[return-value]


class FromOnnx(Denoiser):
    """A Denoiser that asks the exported graphs."""

    stride = 1

    def __init__(self, folder) -> None:
        super().__init__("onnx", 2, 1)
        import onnxruntime

        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])
            for name in ("encode.onnx", "denoise.onnx")
        )
        self.names = json.loads((folder / "export.json").read_text())["files"]["denoise.onnx"]["inputs"]

    def encode(self, image):
        return self.encoder.run(None, {"image": image.numpy()})

    def denoise(self, y_t, t, features):
        named = dict(zip(self.names, (y_t.numpy(), t.numpy(), *features), strict=True))
        return torch.from_numpy(self.step.run(None, named)[0])


@pytest.mark.parametrize("preset", ["fast-tiny", "tiny"])
def test_the_graphs_sample_the_same_masks(preset, tmp_path):
    model, out, shares = segmenter(preset), tmp_path / "onnx", []
    content = export.export_onnx(model, (16, 24), out, lambda *share: shares.append(share))
    assert shares == [(1, 3), (2, 3), (3, 3)]
    assert sorted(p.name for p in out.iterdir()) == ["denoise.onnx", "encode.onnx", "export.json"]
    assert content == json.loads((out / "export.json").read_text())
    assert content["size"] == [16, 24]
    assert content["largest_difference_to_pytorch"] < 1e-4
    assert len(content["alpha_bar"]) == 51
    assert content["files"]["encode.onnx"]["outputs"] == content["files"]["denoise.onnx"]["inputs"][2:]
    assert content.keys() == {
        *("size", "largest_difference_to_pytorch", "files", "weights_sha256", "input_spec", "model", "alpha_bar"),
        *("shapes", "targets", "hurdle", "how_to_sample"),
    }
    image = torch.rand(1, 2, 16, 24)  # one image and five masks: neither is a number the exporter saw
    ours = model.sample(image, 5, sample_generators(0, ["a"], 5))
    theirs = diffusion(FromOnnx(out), model.config, SPEC).sample(image, 5, sample_generators(0, ["a"], 5))
    assert 0 < ours.float().mean() < 1
    # a logit within rounding of a drawn number may fall on its other side
    assert (ours != theirs).float().mean() < 1e-3


class GatedFromOnnx(FromOnnx):
    """With the hurdle as export.json words it: what is below pi is empty, at every step."""

    def encode(self, image):
        *features, empty = super().encode(image)
        return Encoded(features, torch.from_numpy(empty), torch.empty(0))

    def denoise(self, y_t, t, features):
        assert features.level is not None
        empty = features.level < features.empty.sigmoid()[:, None]
        return super().denoise(y_t, t, features.features).masked_fill(empty[..., None, None, None], -torch.inf)


def test_the_graphs_of_a_hurdle_sample_the_same_masks(tmp_path):
    model, out = segmenter("fast-tiny", hurdle=0.05), tmp_path / "onnx"
    assert isinstance(model, HurdleSegmenter)
    content = export.export_onnx(model, (16, 24), out)
    outputs, inputs = content["files"]["encode.onnx"]["outputs"], content["files"]["denoise.onnx"]["inputs"]
    assert outputs == [*inputs[2:], "empty"]
    assert content == json.loads((out / "export.json").read_text())
    assert content["hurdle"]
    assert "logit of pi" in content["shapes"]["empty"]
    image = torch.rand(3, 2, 16, 24)
    theirs = HurdleSegmenter(model.config, SPEC, GatedFromOnnx(out), model.kernel)
    for sampler in (SHARED, Sampler(steps=4)):
        one, two = (m.sample(image, 16, sample_generators(0, list("abc"), 16), sampler) for m in (model, theirs))
        empty = one.flatten(2).any(2).logical_not()
        assert 0 < int(empty.sum()) < 48
        assert torch.equal(empty, two.flatten(2).any(2).logical_not())
        assert (one != two).float().mean() < 1e-3


def test_graphs_with_other_numbers_do_not_appear(tmp_path, monkeypatch):
    right = export._write

    def wrong(module, *args):
        state = {name: value.clone() for name, value in module.state_dict().items()}
        with torch.no_grad():
            next(module.parameters()).add_(0.01)
        right(module, *args)
        module.load_state_dict(state)

    monkeypatch.setattr(export, "_write", wrong)
    with refused("encode.onnx:"):
        export.export_onnx(segmenter("fast-tiny"), (16, 24), tmp_path / "onnx")
    assert not list(tmp_path.iterdir())

"""What SSN, MoSE and PixelSeg promise alike: batches, targets, sizes, and both of two equally likely masks."""

from dataclasses import replace

import pytest
import torch

from berdiff.diffusion.random import sample_generators
from berdiff.methods import folder
from berdiff.methods.base import Segmenter
from berdiff.methods.config import from_plain, to_plain
from berdiff.methods.mose import MoSE
from berdiff.methods.mose import network as mose
from berdiff.methods.pixelseg import PixelSeg
from berdiff.methods.ssn import SSN
from berdiff.methods.ssn import network as ssn
from fakes import make_spec

CONFIGS = [
    SSN("tiny", draws=4, masks_per_image=3),
    MoSE("tiny", samples_per_expert=2),
    PixelSeg("tiny", smooth=False),  # masks of random weights are noise, which closing fills
]
each = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.method)
batch_norm = pytest.mark.parametrize("config", CONFIGS[:2], ids=lambda config: config.method)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def real(config, spec=None) -> Segmenter:
    """With weights that do something: logits around 0, much noise."""
    torch.manual_seed(0)
    model = config.build(spec or make_spec())
    for name, p in model.named_parameters():
        if not p.any() or "factor" in name or name.endswith("mean.bias"):  # SSN's mean begins far below 0
            torch.nn.init.normal_(p, std=0.5)
    model.masks_per_pass = 4
    return model.eval()


@pytest.fixture
def with_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tiny` with the norm of `small` and `paper`."""
    for networks in (ssn, mose):
        monkeypatch.setitem(networks.PRESETS, "tiny", replace(networks.PRESETS["tiny"], norm="batch"))


@each
def test_a_sample_is_the_same_whatever_batch_it_is_drawn_in(config):
    assert_a_sample_is_the_same_in_any_batch(real(config))


def assert_a_sample_is_the_same_in_any_batch(model: Segmenter) -> None:
    image, names = torch.rand(5, 1, 16, 16, generator=generator()), list("abcde")

    def sample(part: list[int], n: int) -> torch.Tensor:
        return model.sample(image[part], n, sample_generators(0, [names[i] for i in part], n))

    whole = sample([0, 1, 2, 3, 4], 3)
    assert (whole.shape, whole.dtype) == ((5, 3, 1, 16, 16), torch.uint8)
    assert set(whole.unique().tolist()) == {0, 1}
    assert bool((whole[:, 0] != whole[:, 1]).any())
    for part in ([0], [4, 1], [2, 0, 3]):
        torch.testing.assert_close(sample(part, 3), whole[part], rtol=0, atol=0)
    torch.testing.assert_close(sample([3, 1], 2), whole[[3, 1], :2], rtol=0, atol=0)


def losses(model: Segmenter) -> tuple[torch.Tensor, torch.Tensor]:
    """Of three images of unlike contrast in one batch, and the mean of each alone."""
    image = torch.rand(3, 1, 16, 16, generator=generator()) * torch.tensor([1, 0.5, 0.1]).reshape(3, 1, 1, 1)
    masks = (torch.rand(3, 4, 1, 16, 16, generator=generator()) > 0.5).to(torch.uint8)
    with torch.no_grad():
        together = model.loss(image, masks, sample_generators(0, list("abc"), 1))["loss"]
        single = [
            model.loss(image[i : i + 1], masks[i : i + 1], sample_generators(0, [key], 1))["loss"]
            for i, key in enumerate("abc")
        ]
    return together, torch.stack(single).mean()


@each
def test_an_images_loss_does_not_depend_on_its_batch(config):
    """In training, with the GroupNorm of `tiny`."""
    together, alone = losses(real(config).train())
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@batch_norm
def test_with_batch_norm_images_mix_in_training_and_never_after_it(config, with_batch_norm):
    """SSN's and MoSE's own norm: in training a loss does depend on the batch, as their pages say; samples never do."""
    model = real(config).train()
    for _ in range(5):  # each of the four passes moves the averages, which begin as 0 and 1
        together, alone = losses(model)
    assert abs(float(together - alone)) > 1e-3
    torch.testing.assert_close(*losses(model.eval()), rtol=1e-4, atol=1e-5)
    assert_a_sample_is_the_same_in_any_batch(model)


@each
def test_several_channels_and_targets(config):
    spec = make_spec((16, 24), channels=("t1", "t2"), targets=("core", "edema"))
    model = real(config, spec)
    assert (model.sampler, model.T, model.stride) == (None, None, 2)
    image = torch.rand(2, 2, 16, 24, generator=generator())
    masks = (torch.rand(2, 3, 2, 16, 24, generator=generator()) > 0.5).to(torch.uint8)
    assert bool(torch.isfinite(model.loss(image, masks, generator())["loss"]))
    samples = model.sample(image, 2, generator())
    assert samples.shape == (2, 2, 2, 16, 24)
    assert bool((samples[:, :, 0] != samples[:, :, 1]).any())
    with pytest.raises(ValueError, match=r"^image: expected 2 channels, found 1"):
        model.sample(image[:, :1], 1, generator())
    with pytest.raises(ValueError, match=r"^image: expected height and width in multiples of 2, found 16x23"):
        model.sample(image[..., :23], 1, generator())
    with pytest.raises(ValueError, match=r"^masks: expected .* 2 target"):
        model.loss(image, masks[:, :, :1], generator())


@each
def test_a_configuration_builds_the_same_names_again_and_survives_a_folder(config, tmp_path):
    model = real(config)
    twin = from_plain(to_plain(config), str).build(make_spec())
    assert {k: v.shape for k, v in twin.state_dict().items()} == {k: v.shape for k, v in model.state_dict().items()}
    folder.save(model, tmp_path / "model")
    opened = folder.load(tmp_path / "model")
    assert opened.config == config
    image = torch.rand(1, 1, 16, 16, generator=generator())
    assert torch.equal(opened.sample(image, 3, generator(1)), model.sample(image, 3, generator(1)))


def test_which_raters_they_learn_from():
    for config, raters in ((SSN("tiny"), "one"), (CONFIGS[0], "all"), (MoSE("tiny"), "all"), (PixelSeg("tiny"), "one")):
        assert config.build(make_spec()).raters == raters
    assert PixelSeg("tiny", masks_per_image=4).build(make_spec()).raters == "all"


@pytest.mark.parametrize(
    ("config", "paper", "small", "strides"),
    [(SSN(), 9.24, 3.20, (64, 16)), (MoSE(), 9.32, 3.28, (64, 16)), (PixelSeg(), 3.43, 0.98, (16, 8))],
    ids=lambda value: getattr(value, "method", ""),
)
def test_sizes_are_the_documented_ones(config, paper: float, small: float, strides: tuple[int, int]):
    for preset, millions, stride in zip(("paper", "small"), (paper, small), strides, strict=True):
        with torch.device("meta"):
            model = replace(config, preset=preset).build(make_spec((128, 128)))
        assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions
        assert model.stride == stride


@pytest.mark.parametrize("config", [SSN("small"), MoSE("small", samples_per_expert=1)], ids=["ssn", "mose"])
def test_the_least_size_learns_from_one_image_and_a_smaller_one_is_refused(config):
    """At 16x16 BatchNorm has one number per channel and raises where a part of a batch holds one slice."""
    for size in ((16, 16), (32, 16)):
        with pytest.raises(ValueError, match=rf"^size: expected at least 32 pixels per side, found {size[0]}x16$"):
            config.build(make_spec(size))
    model = config.build(make_spec((32, 32))).train()
    image, masks = torch.rand(1, 1, 32, 32), torch.ones(1, 2, 1, 32, 32, dtype=torch.uint8)
    assert bool(torch.isfinite(model.loss(image, masks, generator())["loss"]))


# --- two equally likely masks ----------------------------------------------------------------------------------------

TOYS = [
    (SSN("tiny", mean_steps=20, masks_per_image=2), 100, 0),
    (MoSE("tiny", cap_steps=40), 80, 3),  # with other seeds a sample may keep both squares (docs/methods/mose.md)
    (PixelSeg("tiny", masks_per_image=2), 120, 0),
]


@pytest.mark.parametrize(("config", "steps", "seed"), TOYS, ids=lambda value: getattr(value, "method", ""))
def test_two_equally_likely_masks_are_both_drawn(config, steps: int, seed: int):
    """One rater marks one square, the other the other: samples are one or the other, each about as often.

    Some are neither: a Gaussian has draws between both, and the training is short.
    """
    torch.manual_seed(seed)
    model = config.build(make_spec((12, 12)))
    squares = torch.zeros(2, 1, 12, 12)
    squares[0, :, 1:6, 1:6], squares[1, :, 6:11, 6:11] = 1, 1
    image, masks = (0.4 * squares[0] + 0.8 * squares[1]).unsqueeze(0), squares.unsqueeze(0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(steps):
        terms = model.loss(image, masks, generator(step))
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        model.after_step(terms)
    samples = model.eval().sample(image, 100, generator(0))[0].unsqueeze(1).float()  # (100, 1, K, H, W)
    both = (samples * squares).sum((2, 3, 4))
    iou = both / (samples + squares - samples * squares).sum((2, 3, 4)).clamp(min=1)
    first, second = (float((iou[:, i] > 0.6).float().mean()) for i in range(2))
    assert first + second > 0.6
    assert 0.35 < first / (first + second) < 0.65

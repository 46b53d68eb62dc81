"""What every method promises, whatever it is made of: batches, passes, callbacks, groups, and what it refuses."""

import inspect
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import berdiff
import fakes
from berdiff.diffusion import bernoulli
from berdiff.diffusion.kernels import bernoulli as kernel
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.methods.base import ParameterGroup, Segmenter
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.deterministic import Deterministic
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from berdiff.recipes import RECIPES
from fakes import TenLines, diffusion, generator, make_spec, real

FEW = Sampler(steps=3)


# every setting that makes it CCDM, but for its 250 steps and for times spread over a batch, which mix images on purpose
CCDM = replace(RECIPES["ccdm-cpu"].config.model, preset="fast-tiny", time_sampling="uniform")

METHODS = {
    "berdiff, paper's network": BerDiff(preset="tiny", sampler=FEW),
    "berdiff, encode once": BerDiff(preset="fast-tiny", sampler=FEW),
    "berdiff, hurdle": BerDiff(preset="fast-tiny", hurdle=0.05, sampler=FEW),
    "ccdm": replace(CCDM, sampler=replace(CCDM.sampler, steps=3)),
    "gaussian": GaussianDiffusion(preset="fast-tiny", T=50, sampler=Sampler(steps=(50, 20, 5), sigma=0.0)),
    "unet": UNet("fast-tiny"),
    "a toy": fakes.StandIn(),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_sample_is_the_same_whatever_batch_it_is_drawn_in(name: str):
    model = real(METHODS[name])
    image, names = torch.rand(5, 1, 16, 16, generator=generator()), list("abcde")

    def sample(part: list[int], n: int) -> torch.Tensor:
        return model.sample(image[part], n, sample_generators(0, [names[i] for i in part], n))

    whole = sample([0, 1, 2, 3, 4], 3)
    assert whole.shape == (5, 3, 1, 16, 16)
    assert whole.dtype == torch.uint8
    assert set(whole.unique().tolist()) == {0, 1}
    assert name == "unet" or bool((whole[:, 0] != whole[:, 1]).any())
    for part in ([0, 1, 2, 3, 4], [0], [4, 1], [2, 0, 3]):
        torch.testing.assert_close(sample(part, 3), whole[part], rtol=0, atol=0)
    if name != "a toy":  # its passes change shape with n, and it makes no promise about that
        torch.testing.assert_close(sample([3, 1], 2), whole[[3, 1], :2], rtol=0, atol=0)


def test_memory_bound_changes_nothing_and_each_image_is_encoded_once():
    torch.manual_seed(0)
    model, image = diffusion(TenLines()), torch.rand(3, 1, 8, 8, generator=generator())
    largest, encoded = [0], []
    model.network.conv.register_forward_hook(lambda _module, args, _output: largest.append(len(args[0])))
    encode = model.network.encode
    model.network.encode = lambda image: encoded.append(len(image)) or encode(image)
    for n in (1, 3, 7):
        reference = model.sample(image, n, sample_generators(0, list("abc"), n))
        for masks_per_pass in (1, 2, 5, 100):
            model.masks_per_pass, largest[:] = masks_per_pass, [0]
            bounded = model.sample(image, n, sample_generators(0, list("abc"), n))
            assert max(largest) <= masks_per_pass
            torch.testing.assert_close(bounded, reference, rtol=0, atol=0)
        model.masks_per_pass = Segmenter.masks_per_pass
    encoded.clear()
    model.sample(image, 16, generator())
    assert sum(encoded) == 3


def test_every_pass_has_the_same_shape_where_samples_have_their_own_generators():
    """Convolutions round differently for other batch sizes; so a last pass that is not full is filled up."""
    model, image = diffusion(TenLines()), torch.rand(5, 1, 8, 8)
    model.masks_per_pass, sizes = 4, []
    model.network.conv.register_forward_hook(lambda _module, args, _output: sizes.append(len(args[0])))
    for count, n in ((5, 2), (1, 2), (3, 3), (1, 7)):
        sizes.clear()
        model.sample(image[:count], n, sample_generators(0, list("abcde")[:count], n))
        assert set(sizes) == {4 if n != 3 else 3}
    sizes.clear()
    model.sample(image, 2, generator())  # nothing is promised, and nothing is filled
    assert set(sizes) == {4, 2}


def test_callback_sees_every_step_with_falling_t():
    model, seen = diffusion(TenLines(), BerDiff(T=1000)), []
    model.sample(torch.rand(1, 1, 8, 8), 2, generator(), Sampler(steps=4), callback=seen.append)
    assert [(step.t, step.s) for step in seen] == [(1000, 750), (750, 500), (500, 250), (250, 0)]
    assert [(step.index, step.total) for step in seen] == [(i, 4) for i in range(4)]
    assert all(step.y_s.shape == step.y0_hat.shape == (1, 2, 1, 8, 8) for step in seen)
    seen.clear()
    model.sample(torch.rand(2, 1, 8, 8), 16, generator(), Sampler(steps=3), callback=seen.append)
    assert [step.t for step in seen] == [1000, 667, 333] * 2, "once more for each pass"


def test_from_sample_to_draw_are_five_hops_at_most(monkeypatch):
    """sample -> _sample -> draw -> sampling.sample -> kernel.step -> draw: a reader keeps that in mind."""
    source, stacks = str(Path(berdiff.__file__).parent), []

    def watch(p, generators):
        frames = [frame for frame in inspect.stack(context=0)[1:] if frame.filename.startswith(source)]
        stacks.append([frame.function for frame in frames])
        return bernoulli.draw(p, generators)

    monkeypatch.setattr(kernel, "draw", watch)
    diffusion(TenLines()).sample(torch.rand(1, 1, 8, 8), 1, generator(), Sampler(steps=2))
    assert len(stacks) == 3  # y_T and two steps
    for stack in stacks:
        assert stack[-1] == "sample"
        assert len(stack) <= 5, stack


@pytest.mark.parametrize("name", METHODS)
def test_an_images_loss_does_not_depend_on_its_batch(name: str):
    model = real(METHODS[name])
    image = torch.rand(3, 1, 16, 16, generator=generator())
    masks = (torch.rand(3, 4, 1, 16, 16, generator=generator()) > 0.5).to(torch.uint8)
    together = model.loss(image, masks, sample_generators(0, list("abc"), 1))["loss"]
    single = [
        model.loss(image[i : i + 1], masks[i : i + 1], sample_generators(0, [key], 1))["loss"]
        for i, key in enumerate("abc")
    ]
    torch.testing.assert_close(together, torch.stack(single).mean(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "config", [BerDiff(T=1000, prediction="mask"), GaussianDiffusion(), UNet()], ids=lambda config: config.method
)
def test_a_ten_line_network_trains(config):
    torch.manual_seed(0)
    build = Deterministic(config, make_spec(), TenLines()) if config == UNet() else diffusion(TenLines(), config)
    assert isinstance(build, Segmenter)
    masks = torch.zeros(8, 4, 1, 16, 16)
    masks[..., 4:12, 4:12] = 1
    image = torch.rand(8, 1, 16, 16) / 2 + masks[:, 0] / 2
    optimizer = torch.optim.Adam(build.parameters(), 0.05)
    losses = []
    for step in range(60):
        loss = build.loss(image, masks, generator(step % 3))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


def test_a_parameter_group_has_a_rate_at_each_step():
    assert [ParameterGroup().rate_at(step) for step in (1, 900)] == [1.0, 1.0]
    assert ParameterGroup(("head.",), rate=0.1).rate_at(7) == 0.1
    warm = ParameterGroup(rate=lambda step: min(1.0, step / 10))
    assert [warm.rate_at(step) for step in (1, 5, 10, 11)] == [0.1, 0.5, 1.0, 1.0]
    model = diffusion(TenLines())
    (group,) = model.parameter_groups()
    assert all(name.startswith(group.prefixes) for name, _ in model.named_parameters())
    model.after_step({})


def test_what_a_method_declares_follows_from_its_configuration():
    spec = make_spec((16, 24), channels=("t1", "t2"), targets=("core", "edema"))
    for config in METHODS.values():
        if isinstance(config, fakes.StandIn):
            continue
        model = config.build(spec)
        assert (model.config, model.input_spec, model.targets) == (config, spec, 2)
        assert model.stride > 1
        assert (model.sampler, model.T) == ((None, None) if isinstance(config, UNet) else (config.sampler, config.T))
        every = getattr(config, "hurdle", 0) or getattr(config, "masks_per_image", 1) > 1
        assert (model.raters, model.weights_sha256) == ("all" if every else "one", None)
        samples = model.sample(torch.rand(1, 2, 16, 24), 2, generator())
        assert samples.shape == (1, 2, 2, 16, 24)
    assert BerDiff("fast-tiny", masks_per_image=4).build(spec).raters == "all"


def test_bad_tensors_are_named():
    models = [
        diffusion(TenLines()),
        diffusion(TenLines(), GaussianDiffusion(T=50)),
        Deterministic(UNet(), make_spec(), TenLines()),
    ]
    image, masks = torch.rand(2, 1, 8, 8), torch.zeros(2, 4, 1, 8, 8)
    for model in models:
        for bad_image, bad_masks, message in (
            (image[0, 0], masks, r"^image: expected \(B, C, H, W\), found \(8, 8\)"),
            (image, masks[:, 0], r"^masks: expected \(B, R, K, H, W\) .* found \(2, 1, 8, 8\)"),
            (image, masks[:1], r"^masks: expected .* for images of shape \(2, 1, 8, 8\), found \(1, 4, 1, 8, 8\)"),
            (image, masks[:, :0], r"^masks: expected .* at least one rater .* found \(2, 0, 1, 8, 8\)"),
            (image, masks[..., :4], r"^masks: expected .* found \(2, 4, 1, 8, 4\)"),
            (image, masks.repeat(1, 1, 2, 1, 1), r"^masks: expected .* 1 target.* found \(2, 4, 2, 8, 8\)"),
            (
                image,
                masks + 255 * (torch.arange(4) == 0).reshape(1, 4, 1, 1, 1),
                r"only the values 0 and 1, found values in \[0, 255\]",
            ),
        ):
            with pytest.raises(ValueError, match=message):
                model.loss(bad_image, bad_masks, generator())
        with pytest.raises(ValueError, match=r"^image: expected \(B, C, H, W\), found \(1, 8, 8\)"):
            model.sample(image[0], 1, generator())
        with pytest.raises(ValueError, match=r"^n: expected at least 1 sample, found 0"):
            model.sample(image, 0, generator())
        with pytest.raises(ValueError, match="for each of 2 x 3 samples, found 5"):
            model.sample(image, 3, sample_generators(0, ["a"], 5))

"""BerDiff: algorithm 1 and 2 on any network that keeps the protocol; seeds, batches, and what it refuses."""

import pytest
import torch
from ten_lines import TenLines
from torch import nn

from berdiff.diffusion.bernoulli import predict_y0, q_sample
from berdiff.diffusion.losses import TARGETS, Target, total_loss
from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.diffusion.schedule import SCHEDULES, linear, make_schedule
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.diffusing import pick_readers
from berdiff.methods.segmenter import Segmenter
from berdiff.networks.build import make_network


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def model() -> BerDiff:
    torch.manual_seed(0)
    return BerDiff(TenLines(), linear(1000))


def test_a_ten_line_network_trains_and_samples():
    torch.manual_seed(0)
    model = BerDiff(TenLines(), linear(1000), target="mask")  # one linear layer cannot express XOR, so not the noise
    assert isinstance(model, Segmenter)
    image, masks = torch.rand(8, 1, 16, 16), torch.zeros(8, 4, 1, 16, 16)
    masks[..., 4:12, 4:12] = 1
    image = image + masks[:, 0]
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    first = last = float("nan")
    for step in range(60):
        terms = model.loss(image, masks, generator(step % 3))
        optimizer.zero_grad()
        terms["loss"].backward()
        optimizer.step()
        last = terms["loss"].item()
        first = last if step == 0 else first
    assert last < 0.8 * first
    samples = model.sample(image, 3, generator())
    assert samples.shape == (8, 3, 1, 16, 16)
    assert samples.dtype == torch.uint8
    assert set(samples.unique().tolist()) <= {0, 1}


def test_loss_is_algorithm_1_written_out(model: BerDiff):
    image, masks = torch.rand(1, 1, 8, 8), (torch.rand(1, 1, 1, 8, 8) > 0.5).float()
    g = generator(5)
    torch.rand(1, 1, generator=g)  # the reader: there is only one
    t = 1 + (torch.rand(1, 1, generator=g) * 1000).long()
    y_t, eps = q_sample(model.schedule, masks, t, g)
    logits = model.network.denoise(y_t, t, image)
    by_hand = total_loss(model.schedule, logits, masks, y_t, eps, t)
    ours = model.loss(image, masks, generator(5))
    assert ours.keys() == {"loss", "kl", "bce"}
    for name, value in by_hand.items():
        torch.testing.assert_close(ours[name], value)


def test_every_reader_and_every_step_gets_its_turn(model: BerDiff):
    """4,000 draws: each of four readers 1,000 +- 6 sigma, each tenth of the steps 400 +- 6 sigma."""
    masks = torch.arange(4).reshape(1, 4, 1, 1, 1).expand(4000, 4, 1, 1, 1)
    readers = pick_readers(masks, 1, generator(1)).flatten().bincount(minlength=4)
    assert ((readers - 1000).abs() < 6 * (4000 * 3 / 16) ** 0.5).all()
    t = model._pick_times(torch.empty(4000, 1, 1, 1), generator(2)).flatten()
    assert t.min() >= 1
    assert t.max() <= 1000
    tenths = ((t - 1) // 100).bincount(minlength=10)
    assert ((tenths - 400).abs() < 6 * (4000 * 0.09) ** 0.5).all()


def test_stratified_steps_cover_all_noise_levels():
    model = BerDiff(TenLines(), linear(1000), time_sampling="stratified")
    t = model._pick_times(torch.empty(10, 1, 1, 1), generator()).flatten()
    assert ((t - 1) // 100).tolist() == list(range(10))


def test_an_images_loss_does_not_depend_on_its_batch(model: BerDiff):
    image, masks = torch.rand(3, 1, 8, 8), (torch.rand(3, 4, 1, 8, 8) > 0.5).float()
    together = model.loss(image, masks, sample_generators(0, ["a", "b", "c"], 1))["loss"]
    alone = [
        model.loss(image[i : i + 1], masks[i : i + 1], sample_generators(0, [key], 1))["loss"]
        for i, key in enumerate("abc")
    ]
    torch.testing.assert_close(together, torch.stack(alone).mean())


@pytest.mark.parametrize("preset", ["tiny", "fast-tiny"])
def test_a_sample_is_the_same_whatever_batch_it_is_drawn_in(preset: str):
    torch.manual_seed(0)
    net = make_network(preset)
    for p in net.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.2)
    model = BerDiff(net, linear(1000), masks_per_pass=4).eval()
    image, names = torch.rand(5, 1, 16, 16), list("abcde")
    sampler = Sampler(steps=5)
    whole = model.sample(image, 3, sample_generators(0, names, 3), sampler)
    assert whole.float().var() > 0
    torch.testing.assert_close(model.sample(image, 3, sample_generators(0, names, 3), sampler), whole, rtol=0, atol=0)
    for part in ([0], [4, 1], [2, 0, 3]):
        drawn = model.sample(image[part], 3, sample_generators(0, [names[i] for i in part], 3), sampler)
        torch.testing.assert_close(drawn, whole[part], rtol=0, atol=0)


def test_fewer_samples_are_the_first_of_more(model: BerDiff):
    image = torch.rand(2, 1, 16, 16)
    many = model.sample(image, 7, sample_generators(3, ["a", "b"], 7))
    few = model.sample(image, 2, sample_generators(3, ["a", "b"], 2))
    torch.testing.assert_close(many[:, :2], few, rtol=0, atol=0)


@pytest.mark.parametrize("masks_per_pass", [1, 2, 5, 100])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_memory_bound_changes_nothing(model: BerDiff, masks_per_pass: int, n: int):
    image = torch.rand(3, 1, 8, 8)
    largest = 0

    def watch(_module, args, _output):
        nonlocal largest
        largest = max(largest, len(args[0]))

    hook = model.network.conv.register_forward_hook(watch)
    reference = model.sample(image, n, sample_generators(0, list("abc"), n))
    model.masks_per_pass, largest = masks_per_pass, 0
    bounded = model.sample(image, n, sample_generators(0, list("abc"), n))
    hook.remove()
    assert largest <= masks_per_pass
    torch.testing.assert_close(bounded, reference, rtol=0, atol=0)


def test_each_image_is_encoded_once(model: BerDiff):
    calls = []
    encode = model.network.encode
    model.network.encode = lambda image: calls.append(len(image)) or encode(image)
    model.sample(torch.rand(3, 1, 8, 8), 16, generator(), Sampler(steps=10))
    assert sum(calls) == 3


def test_callback_sees_every_step(model: BerDiff):
    seen = []
    model.sample(torch.rand(1, 1, 8, 8), 2, generator(), Sampler(steps=4), callback=seen.append)
    assert [(step.t, step.s) for step in seen] == [(1000, 750), (750, 500), (500, 250), (250, 0)]
    assert [(step.index, step.total) for step in seen] == [(i, 4) for i in range(4)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_target_means_the_same_estimate(target: Target, schedule: str):
    """A network that knows the mask says so in any language, and the model then returns it."""
    truth = (torch.rand(1, 1, 8, 8, generator=generator()) > 0.5).float()

    class Oracle(TenLines):
        def __init__(self, target: str) -> None:
            super().__init__()
            self.target = target

        def denoise(self, y_t, t, features):
            said = predict_y0(y_t, truth.expand_as(y_t)) if self.target == "noise" else truth.expand_as(y_t)
            return (said - 0.5) * 40

    model = BerDiff(Oracle(target), make_schedule(schedule, 100), target=target)
    assert (model.sample(torch.rand(2, 1, 8, 8), 3, generator()) == truth).all()


@pytest.mark.parametrize("fill", [0.0, 1.0])
@pytest.mark.parametrize("posterior", ["soft", "marginal"])
@pytest.mark.parametrize(("target", "schedule"), [("noise", "linear"), ("prior", "power2.5")])
def test_gradients_are_finite_on_empty_and_full_masks(fill: float, posterior, target: Target, schedule: str):
    torch.manual_seed(0)
    model = BerDiff(TenLines(), make_schedule(schedule, 10), target=target, posterior=posterior, masks_per_image=4)
    with torch.no_grad():
        model.network.conv.weight *= 1e3  # sigmoids that are 0 and 1 in float32
    for seed in range(20):
        terms = model.loss(torch.rand(4, 1, 8, 8), torch.full((4, 2, 1, 8, 8), fill), generator(seed))
        terms["loss"].backward()
        assert all(torch.isfinite(v) for v in terms.values())
        assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "edges"}, "target: expected one of noise, mask, prior, found 'edges'"),
        ({"posterior": "hard"}, "posterior: expected 'soft' or 'marginal', found 'hard'"),
        ({"time_sampling": "late"}, "time_sampling: expected 'uniform' or 'stratified', found 'late'"),
        ({"lambda_kl": 0.0, "lambda_bce": 0.0}, "not both 0, found 0.0 and 0.0"),
        ({"masks_per_image": 0}, "masks_per_image: expected at least 1, found 0"),
        ({"masks_per_pass": 0}, "masks_per_pass: expected at least 1, found 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        BerDiff(TenLines(), linear(10), **options)


def test_bad_tensors_are_named(model: BerDiff):
    image, masks = torch.rand(2, 1, 8, 8), torch.zeros(2, 4, 1, 8, 8)
    with pytest.raises(ValueError, match=r"image: expected \(B, C, H, W\), found \(8, 8\)"):
        model.loss(image[0, 0], masks, generator())
    with pytest.raises(ValueError, match=r"masks: expected .* found \(2, 1, 8, 8\)"):
        model.loss(image, masks[:, 0], generator())
    with pytest.raises(ValueError, match=r"masks: expected .* found \(2, 4, 1, 8, 4\)"):
        model.loss(image, masks[..., :4], generator())
    with pytest.raises(ValueError, match=r"masks: expected .* 1 target.* found \(2, 4, 2, 8, 8\)"):
        model.loss(image, masks.repeat(1, 1, 2, 1, 1), generator())
    with pytest.raises(ValueError, match=r"masks: expected only the values 0 and 1, found values in \[0, 255\]"):
        model.loss(image, masks + 255 * (torch.arange(4) == 0).reshape(1, 4, 1, 1, 1), generator())
    with pytest.raises(ValueError, match="n: expected at least 1 sample, found 0"):
        model.sample(image, 0, generator())
    with pytest.raises(ValueError, match="for each of 2 x 3 samples, found 5"):
        model.sample(image, 3, sample_generators(0, ["a"], 5))

"""Several pairs of a reader and a step from one encoding: fair to readers and steps, and with one pair as ever."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from berdiff.diffusion.bernoulli import predict_y0, q_sample
from berdiff.diffusion.losses import total_loss
from berdiff.diffusion.sampling import initial_noise, sample, sample_generators
from berdiff.diffusion.schedule import linear
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.diffusing import TimeSampling, pick_readers
from berdiff.methods.folder import bundled, load, save
from berdiff.networks.build import make_network


class Echo(nn.Module):
    """Logits that depend on image, step and mask, and a count of what was asked for."""

    targets = 1

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.encoded = 0

    def encode(self, image):
        self.encoded += len(image)
        return image

    def denoise(self, y_t, t, features):
        self.asked.append((y_t, t))
        return y_t - features.unsqueeze(1) + (t / 1000)[..., None, None, None]


def model(N: int, times: TimeSampling = "uniform", T: int = 1000) -> BerDiff:
    return BerDiff(Echo(), linear(T), masks_per_image=N, time_sampling=times)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def readers(B: int, R: int) -> torch.Tensor:
    """Masks `(B, R, 1, 1, 1)` that hold their reader's number."""
    return torch.arange(R).reshape(1, R, 1, 1, 1).expand(B, R, 1, 1, 1)


# --- readers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("N", "R"), [(4, 4), (8, 4), (3, 3), (6, 2), (5, 1)])
def test_every_reader_of_every_image_counts_the_same(N: int, R: int) -> None:
    picked = pick_readers(readers(50, R), N, generator())
    assert picked.shape == (50, N, 1, 1, 1)
    for row in picked.flatten(1):
        assert row.bincount(minlength=R).tolist() == [N // R] * R


@pytest.mark.parametrize(("N", "R"), [(1, 4), (2, 4), (6, 4), (3, 2)])
def test_readers_are_even_over_many_images_otherwise(N: int, R: int) -> None:
    """No reader is more than one ahead in an image, and 4,000 first readers are even to 6 sigma."""
    picked = pick_readers(readers(4000, R), N, generator(1)).flatten(1)
    counts = torch.stack([(picked == r).sum(1) for r in range(R)], 1)
    assert int((counts.amax(1) - counts.amin(1)).max()) <= 1
    first = picked[:, 0].bincount(minlength=R)
    assert bool(((first - 4000 / R).abs() < 6 * (4000 * (R - 1) / R**2) ** 0.5).all())


# --- steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("B", "N"), [(10, 1), (5, 2), (2, 5), (1, 10), (4, 25)])
def test_stratified_steps_cover_the_batch_and_spread_in_each_image(B: int, N: int) -> None:
    t = model(N, "stratified")._pick_times(torch.empty(B, 1, 1, 1), generator())
    assert t.shape == (B, N)
    part = 1000 // (B * N)
    assert sorted(((t - 1) // part).flatten().tolist()) == list(range(B * N))  # one in each of B * N parts
    assert sorted({tuple(row) for row in ((t - 1) // (1000 // N)).tolist()}) == [tuple(range(N))]  # each image: N parts


@pytest.mark.parametrize("times", ["uniform", "stratified"])
@pytest.mark.parametrize("T", [1, 3, 1000])
def test_steps_are_steps_and_even(times: TimeSampling, T: int) -> None:
    """From 1 to T, each tenth of them 800 times in 8,000 to 6 sigma; even where there are more masks than steps."""
    t = model(8, times, T)._pick_times(torch.empty(1000, 1, 1, 1), generator(2)).flatten()
    assert (int(t.min()), int(t.max())) == (1, T) if T < 1000 else int(t.min()) >= 1 and int(t.max()) <= T
    bins = min(T, 10)
    counts = ((t - 1) * bins // T).bincount(minlength=bins)
    assert bool(((counts - 8000 / bins).abs() <= 6 * (8000 / bins) ** 0.5).all())


def test_no_reader_keeps_to_one_part_of_the_steps() -> None:
    """Readers go in turn and stratified steps in order: only the random first reader keeps the two apart."""
    ours = model(4, "stratified")
    g = generator(3)
    seen = torch.zeros(4, 4)
    for _ in range(500):
        reader = pick_readers(readers(4, 4), 4, g).flatten()
        quarter = ((ours._pick_times(torch.empty(4, 1, 1, 1), g) - 1) // 250).flatten()
        seen.index_put_((reader, quarter), torch.ones(16), accumulate=True)
    assert bool(((seen - 500).abs() < 6 * (2000 * 3 / 16) ** 0.5 * 2).all())


# --- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", ["uniform", "stratified"])
@pytest.mark.parametrize("an_image", [False, True])
def test_one_mask_an_image_draws_what_it_always_drew(times: TimeSampling, an_image: bool) -> None:
    """The draws of the releases before masks_per_image, written out: a training that began there goes on the same."""
    B, R = 3, 4
    image, masks = torch.rand(B, 1, 8, 8), (torch.rand(B, R, 1, 8, 8) > 0.5).float()

    def dice() -> torch.Generator | list[torch.Generator]:
        return sample_generators(7, list("abc"), 1) if an_image else generator(7)

    def one_each(g) -> torch.Tensor:
        if isinstance(g, torch.Generator):
            return torch.rand(B, 1, generator=g)
        return torch.cat([torch.rand(1, 1, generator=own) for own in g])

    g = dice()
    reader, u = (one_each(g) * R).long().flatten(), one_each(g)
    if times == "stratified":
        u = (torch.arange(B).unsqueeze(1) + u) / B
    t = 1 + (u * 1000).long()
    y0 = torch.stack([masks[b, reader[b]] for b in range(B)]).unsqueeze(1)
    y_t, eps = q_sample(linear(1000), y0, t, g)
    ours = model(1, times)
    expected = total_loss(ours.schedule, Echo().denoise(y_t, t, image), y0, y_t, eps, t)
    found = ours.loss(image, masks, dice())
    assert torch.equal(ours.network.asked[0][0], y_t)
    assert torch.equal(ours.network.asked[0][1], t)
    for name, value in expected.items():
        assert torch.equal(found[name], value)


def test_one_encoding_serves_all_masks_of_an_image() -> None:
    ours = model(8)
    ours.loss(torch.rand(3, 1, 8, 8), torch.zeros(3, 4, 1, 8, 8), generator())
    assert ours.network.encoded == 3
    ((y_t, t),) = ours.network.asked
    assert y_t.shape == (3, 8, 1, 8, 8)
    assert t.shape == (3, 8)
    assert len(y_t.flatten(0, 1).flatten(1).unique(dim=0)) == 24  # each has its own noise


def test_the_loss_is_the_mean_over_readers_and_steps() -> None:
    """Each pair by itself, as a batch of one mask of its own reader at its own step."""
    ours = model(6)
    image, masks = torch.rand(2, 1, 8, 8), (torch.rand(2, 3, 1, 8, 8) > 0.5).float()
    found = ours.loss(image, masks, generator(4))["loss"]
    ((y_t, t),) = ours.network.asked
    y0 = pick_readers(masks, 6, generator(4))
    alone = []
    for b, i in product(range(2), range(6)):
        one = (slice(b, b + 1), slice(i, i + 1))
        logits = ours.network.denoise(y_t[one], t[one], image[b : b + 1])
        eps = (y0[one] - y_t[one]).abs()
        alone.append(total_loss(ours.schedule, logits, y0[one], y_t[one], eps, t[one])["loss"])
    torch.testing.assert_close(found, torch.stack(alone).mean())


@pytest.mark.parametrize("N", [1, 4, 6])
def test_an_images_draws_do_not_depend_on_its_batch(N: int) -> None:
    ours = model(N)
    image, masks = torch.rand(3, 1, 8, 8), (torch.rand(3, 4, 1, 8, 8) > 0.5).float()
    together = ours.loss(image, masks, sample_generators(0, list("abc"), 1))["loss"]
    alone = [
        ours.loss(image[i : i + 1], masks[i : i + 1], sample_generators(0, [key], 1))["loss"]
        for i, key in enumerate("abc")
    ]
    torch.testing.assert_close(together, torch.stack(alone).mean())
    whole, *parts = ours.network.asked
    assert torch.equal(whole[0], torch.cat([y_t for y_t, _ in parts]))
    assert torch.equal(whole[1], torch.cat([t for _, t in parts]))


# --- the configuration -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("N", [0, -1])
def test_a_count_that_is_none_is_refused(N: int) -> None:
    with pytest.raises(ValueError, match=f"^masks_per_image: expected at least 1, found {N}$"):
        model(N)


def test_an_older_configuration_means_one_mask_an_image(tmp_path) -> None:
    save(BerDiff(make_network("fast-tiny"), linear(10), masks_per_image=4), tmp_path)
    assert load(tmp_path).masks_per_image == 4
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["masks_per_image"]
    file.write_text(json.dumps(config))
    assert load(tmp_path).masks_per_image == 1


@pytest.mark.parametrize("name", bundled())
def test_bundled_weights_give_the_masks_they_always_gave(name: str) -> None:
    """The estimate once was |y_t - sigmoid(logits)|; on logits it is the same but for the last digit."""
    ours = load(name)
    ours.sampler = replace(ours.sampler, steps=4)
    image = torch.rand(1, 1, 64, 64, generator=generator(1))
    image[..., 24:40, 24:40] += 0.5
    image = image.clamp(0, 1)
    features = ours.network.encode(image)
    denoise = ours.network.denoise

    def predict(y_t: torch.Tensor, t: int) -> torch.Tensor:
        estimate = denoise(y_t, torch.full(y_t.shape[:2], t), features).sigmoid()
        return predict_y0(y_t, estimate) if ours.target == "noise" else estimate

    own = sample_generators(0, ["a"], 2)
    with torch.no_grad():
        before = sample(ours.schedule, ours.sampler, predict, initial_noise((1, 2, 1, 64, 64), own, image), own)
    ours.masks_per_pass = 2  # passes of the shape of those above: the same rounding
    found = ours.sample(image, 2, sample_generators(0, ["a"], 2))
    assert torch.equal(found, before.to(torch.uint8))

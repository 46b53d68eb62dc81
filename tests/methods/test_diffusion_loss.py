"""Algorithm 1: fair to raters and steps, each pair from one encoding, and every prediction means the same estimate."""

from itertools import product

import pytest
import torch

from berdiff.diffusion.bernoulli import q_sample
from berdiff.diffusion.losses import total_loss
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.schedule import linear
from berdiff.methods.base import pick_raters
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.diffusion import DiffusionSegmenter
from fakes import TenLines, diffusion, generator


class Echo(TenLines):
    """Logits that depend on image, step and mask, and a count of what was asked for."""

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


def model(N: int = 1, times="uniform", T: int = 1000) -> DiffusionSegmenter:
    return diffusion(Echo(), BerDiff(T=T, masks_per_image=N, time_sampling=times))


def numbered(B: int, R: int) -> torch.Tensor:
    """Masks `(B, R, 1, 1, 1)` that hold their rater's number."""
    return torch.arange(R).reshape(1, R, 1, 1, 1).expand(B, R, 1, 1, 1)


# --- raters and steps ------------------------------------------------------------------------------------------------


def test_every_rater_of_every_image_counts_the_same():
    for N, R in ((4, 4), (8, 4), (3, 3), (6, 2), (5, 1)):
        picked = pick_raters(numbered(50, R), N, generator())
        assert picked.shape == (50, N, 1, 1, 1)
        for row in picked.flatten(1):
            assert row.bincount(minlength=R).tolist() == [N // R] * R
    # otherwise none is more than one ahead in an image, and 4,000 first raters are even to 6 sigma
    for N, R in ((1, 4), (2, 4), (6, 4), (3, 2)):
        picked = pick_raters(numbered(4000, R), N, generator(1)).flatten(1)
        counts = torch.stack([(picked == r).sum(1) for r in range(R)], 1)
        assert int((counts.amax(1) - counts.amin(1)).max()) <= 1
        first = picked[:, 0].bincount(minlength=R)
        assert bool(((first - 4000 / R).abs() < 6 * (4000 * (R - 1) / R**2) ** 0.5).all())


def test_steps_are_steps_and_even():
    """From 1 to T, each tenth of them 800 times in 8,000 to 6 sigma; even where there are more masks than steps."""
    for times, T in product(("uniform", "stratified"), (1, 3, 1000)):
        t = model(8, times, T)._pick_times(torch.empty(1000, 1, 1, 1), generator(2)).flatten()
        assert 1 <= int(t.min()) <= int(t.max()) <= T
        bins = min(T, 10)
        counts = ((t - 1) * bins // T).bincount(minlength=bins)
        assert bool(((counts - 8000 / bins).abs() <= 6 * (8000 / bins) ** 0.5).all())


def test_stratified_steps_cover_the_batch_and_spread_in_each_image():
    for B, N in ((10, 1), (5, 2), (2, 5), (1, 10), (4, 25)):
        t = model(N, "stratified")._pick_times(torch.empty(B, 1, 1, 1), generator())
        assert t.shape == (B, N)
        part = 1000 // (B * N)
        assert sorted(((t - 1) // part).flatten().tolist()) == list(range(B * N)), "one in each of B * N parts"
        rows = {tuple(row) for row in ((t - 1) // (1000 // N)).tolist()}
        assert rows == {tuple(range(N))}, "each image: one in each of N parts"


def test_no_rater_keeps_to_one_part_of_the_steps():
    """Raters go in turn and stratified steps in order: only the random first rater keeps the two apart."""
    ours, g, seen = model(4, "stratified"), generator(3), torch.zeros(4, 4)
    for _ in range(500):
        rater = pick_raters(numbered(4, 4), 4, g).flatten()
        quarter = ((ours._pick_times(torch.empty(4, 1, 1, 1), g) - 1) // 250).flatten()
        seen.index_put_((rater, quarter), torch.ones(16), accumulate=True)
    assert bool(((seen - 500).abs() < 6 * (2000 * 3 / 16) ** 0.5 * 2).all())


# --- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("times", ["uniform", "stratified"])
def test_loss_is_algorithm_1_written_out(times: str, per_image: bool):
    """A rater, a step, the flips, in this order: a training that began with an older release resumes the same."""
    B, R = 3, 4
    image, masks = torch.rand(B, 1, 8, 8), (torch.rand(B, R, 1, 8, 8) > 0.5).float()

    def dice() -> torch.Generator | list[torch.Generator]:
        return sample_generators(7, list("abc"), 1) if per_image else generator(7)

    def one_each(g) -> torch.Tensor:
        if isinstance(g, torch.Generator):
            return torch.rand(B, 1, generator=g)
        return torch.cat([torch.rand(1, 1, generator=own) for own in g])

    g = dice()
    rater, u = (one_each(g) * R).long().flatten(), one_each(g)
    if times == "stratified":
        u = (torch.arange(B).unsqueeze(1) + u) / B
    t = 1 + (u * 1000).long()
    y0 = torch.stack([masks[b, rater[b]] for b in range(B)]).unsqueeze(1)
    y_t, eps = q_sample(linear(1000), y0, t, g)
    ours = model(1, times)
    expected = total_loss(linear(1000), Echo().denoise(y_t, t, image), y0, y_t, eps, t)
    found = ours.loss(image, masks, dice())
    assert torch.equal(ours.network.asked[0][0], y_t)
    assert torch.equal(ours.network.asked[0][1], t)
    assert found.keys() == {"loss", "kl", "bce"}
    for name, value in expected.items():
        assert torch.equal(found[name], value)


def test_one_encoding_serves_all_masks_of_an_image_and_the_loss_is_their_mean():
    """Each pair by itself, as a batch of one mask of its own rater at its own step."""
    ours = model(6)
    image, masks = torch.rand(2, 1, 8, 8), (torch.rand(2, 3, 1, 8, 8) > 0.5).float()
    found = ours.loss(image, masks, generator(4))["loss"]
    assert ours.network.encoded == 2
    ((y_t, t),) = ours.network.asked
    assert y_t.shape == (2, 6, 1, 8, 8)
    assert t.shape == (2, 6)
    assert len(y_t.flatten(0, 1).flatten(1).unique(dim=0)) == 12, "each has its own noise"
    y0 = pick_raters(masks, 6, generator(4))
    single = []
    for b, i in product(range(2), range(6)):
        one = (slice(b, b + 1), slice(i, i + 1))
        logits = ours.network.denoise(y_t[one], t[one], image[b : b + 1])
        eps = (y0[one] - y_t[one]).abs()
        single.append(total_loss(linear(1000), logits, y0[one], y_t[one], eps, t[one])["loss"])
    torch.testing.assert_close(found, torch.stack(single).mean())

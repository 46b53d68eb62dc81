"""The network that reads the image once: shapes, no leak between masks, gradients, size, and what it refuses."""

from itertools import product

import pytest
import torch
from torch import Tensor

from berdiff.networks import paper
from berdiff.networks.encode_once import EncodeOnce, summary
from refusals import refused

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def awake(channels: int = 1, targets: int = 1, preset: str = "fast-tiny") -> EncodeOnce:
    """Residual branches begin as zeros; here every one of them has something to say."""
    torch.manual_seed(0)
    net = EncodeOnce(preset, channels, targets)
    for p in net.parameters():
        if not p.any():
            torch.nn.init.normal_(p, std=0.1)
    return net.eval()


def inputs(B: int, N: int, C: int = 1, K: int = 1, size: tuple[int, int] = (16, 24)) -> tuple[Tensor, Tensor, Tensor]:
    """image, y_t and t, all different."""
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(B, C, *size, generator=generator)
    y_t = torch.randint(2, (B, N, K, *size), generator=generator).float()
    return image, y_t, torch.randperm(1000, generator=generator)[: B * N].reshape(B, N) + 1


@torch.no_grad()
def logits(net: EncodeOnce, image: Tensor, y_t: Tensor, t: Tensor) -> Tensor:
    return net.denoise(y_t, t, net.encode(image))


# --- the protocol ----------------------------------------------------------------------------------------------------


def test_the_step_network_is_light_and_the_encoder_is_not() -> None:
    with torch.device("meta"):
        net = EncodeOnce("fast")
    step, whole = (sum(p.numel() for p in part.parameters()) for part in (net.step, net))
    assert 100_000 <= step <= 300_000
    assert whole > 10 * step


# --- the image as a whole --------------------------------------------------------------------------------------------


def test_a_summary_is_the_mean_the_largest_and_the_middle_of_each_channel() -> None:
    features = torch.randn(2, 3, 16, 8, generator=torch.Generator().manual_seed(0))
    found = summary(features)
    assert found.shape == (2, 9)
    for b, c in product(range(2), range(3)):
        rows = features[b, c].tolist()
        pixels = [v for row in rows for v in row]
        middle = [rows[i][j] for i in (6, 7, 8, 9) for j in (3, 4)]  # a quarter of the height and of the width
        expected = sum(pixels) / 128, max(pixels), sum(middle) / 8
        assert found[b, [c, 3 + c, 6 + c]].tolist() == pytest.approx(expected, abs=1e-5)
    for size in ((1, 1), (1, 2), (2, 3)):
        assert bool(summary(torch.ones(1, 4, *size)).eq(1).all()), "of the smallest maps too"


def test_summarising_leaves_the_features_as_they_are_and_every_level_has_a_say() -> None:
    net = awake(2)
    image, _, _ = inputs(3, 1, 2)
    with torch.no_grad():
        maps, seen = net.encode_and_summarise(image)
        levels = net.encoder(torch.nn.functional.pixel_unshuffle(2 * image - 1, 2))
        for ours, theirs in zip(maps, net.encode(image), strict=True):
            assert torch.equal(ours, theirs)
    assert seen.shape == (3, net.summary_width)
    for part, level in zip(seen.split([3 * level.shape[1] for level in levels], 1), levels, strict=True):
        torch.testing.assert_close(part[:, : level.shape[1]], level.mean((2, 3)))
    other = paper.PaperUNet("tiny")
    assert other.summary_width == 0
    with refused("preset:", error=ValueError):
        other.encode_and_summarise(image)


# --- each mask for itself --------------------------------------------------------------------------------------------


def test_the_four_pixels_of_a_fold_keep_their_places() -> None:
    """Folding is undone by unfolding: with the network reduced to its input, a pixel answers for itself."""
    net = EncodeOnce("fast-tiny", targets=2)
    net.step.forward = lambda y, t, maps: y  # type: ignore[method-assign]
    _, y_t, t = inputs(2, 3, K=2)
    assert torch.equal(net.denoise(y_t, t, ()), y_t)
    assert torch.equal(net.denoise_mask(y_t, t, ()), 2 * y_t - 1)


def test_a_pixel_anywhere_is_seen_everywhere() -> None:
    """The pooled glance: what all pixels share must reach a corner from the opposite one, at any size."""
    net = awake()
    image, y_t, t = inputs(1, 1, size=(128, 128))
    before = logits(net, image, y_t, t)
    y_t[..., :64, :64] = 1
    assert float((logits(net, image, y_t, t) - before)[..., -1, -1].abs().max()) > 0


# --- training --------------------------------------------------------------------------------------------------------


def test_a_fresh_network_learns_from_its_zeros() -> None:
    """Branches that begin as zeros must not stay so: a few steps move every one of them."""
    torch.manual_seed(0)
    net = EncodeOnce("fast-tiny")
    image, y_t, t = inputs(2, 2)
    zeros = [name for name, p in net.named_parameters() if not p.any()]
    assert zeros
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):  # the step network wakes first, then the maps, then the encoder from its end
        optimizer.zero_grad()
        net.denoise(y_t, t, net.encode(image)).sigmoid().mean().backward()
        optimizer.step()
    assert not [name for name, p in net.named_parameters() if not p.any()]

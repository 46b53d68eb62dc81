"""One answer per image: the loss written out, level sets, and what every method of table 4 promises."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from berdiff.diffusion.random import sample_generators
from berdiff.methods.families.deterministic import SMOOTH, Deterministic, level_weights, soft_dice_loss
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.swinunetr import SwinUNETR
from berdiff.methods.unet import UNet
from berdiff.metrics import dice_from_counts
from berdiff.networks.whole import Whole
from berdiff.training.config import DataConfig, TrainConfig
from berdiff.training.session import open_trainer
from fakes import Table, generator, make_spec, make_store, real
from refusals import refused


def table(p: torch.Tensor, **settings) -> Deterministic:
    return Deterministic(UNet(**settings), make_spec(), Table(torch.logit(p)))


# --- the loss --------------------------------------------------------------------------------------------------------


def test_the_weights_of_the_levels_are_nnunets():
    """1, 1/2, 1/4, ...; of its six stages the decoder has five resolutions, and the coarsest gets 0; 1 in all."""
    by_hand = [1 / 2**i for i in range(5)]
    by_hand[-1] = 0
    by_hand = [weight / sum(by_hand) for weight in by_hand]
    assert level_weights(4) == pytest.approx(by_hand[:4])
    assert level_weights(1) == [1.0]
    for count in range(1, 7):
        assert sum(level_weights(count)) == pytest.approx(1)


def test_the_loss_written_out_pixel_by_pixel():
    class Levels(Whole):
        def __init__(self, *levels):
            super().__init__("levels", 1, 2, (8, 8), stride=1)
            self.given = [nn.Parameter(level) for level in levels]

        def levels(self, image):
            return tuple(self.given)

    torch.manual_seed(0)
    given = [torch.randn(3, 2, n, n) for n in (8, 4, 2)]
    config = NNUNet(lambda_bce=0.7, lambda_dice=0.3)
    model = Deterministic(config, make_spec((8, 8), targets=("core", "edema")), Levels(*given))
    y = (torch.rand(3, 1, 2, 8, 8) > 0.6).to(torch.uint8)
    bce = dice = 0.0
    for weight, level in zip((4 / 7, 2 / 7, 1 / 7), given, strict=True):
        n, step = level.shape[-1], 8 // level.shape[-1]
        losses, overlaps = [], []
        for b in range(3):
            for k in range(2):
                both = either = 0.0
                for i in range(n):
                    for j in range(n):
                        p = 1 / (1 + math.exp(-float(level[b, k, i, j])))
                        # the pixel in which the middle of the coarse one lies: of an even number, the one after it
                        t = float(y[b, 0, k, i * step + step // 2, j * step + step // 2])
                        losses.append(-math.log(p if t else 1 - p))
                        both, either = both + p * t, either + p + t
                overlaps.append((2 * both + SMOOTH) / (either + SMOOTH))
        bce += weight * sum(losses) / len(losses)
        dice += weight * (1 - sum(overlaps) / len(overlaps))
    terms = {name: term.detach() for name, term in model.loss(torch.rand(3, 1, 8, 8), y, generator()).items()}
    assert float(terms["bce"]) == pytest.approx(bce, rel=1e-5)
    assert float(terms["dice"]) == pytest.approx(dice, rel=1e-5)
    assert float(terms["loss"]) == pytest.approx(0.7 * bce + 0.3 * dice, rel=1e-5)


def test_soft_dice_of_masks_is_dice():
    """Up to the smoothing, one pixel in numerator and denominator."""
    masks = (torch.rand(2, 5, 2, 64, 64, generator=generator()) > 0.7).float()
    a, b = masks[:, None]
    counts = torch.stack([(a * b).sum((-2, -1)), a.sum((-2, -1)), b.sum((-2, -1))], -1)
    assert float(soft_dice_loss(a, b)) == pytest.approx(1 - float(dice_from_counts(counts).mean()), abs=1e-3)
    empty = torch.zeros(1, 1, 1, 8, 8)
    assert soft_dice_loss(empty, empty) == 0
    p = torch.full((1, 1, 1, 8, 8), 0.01, requires_grad=True)
    soft_dice_loss(p, empty).backward()
    assert p.grad is not None
    assert (p.grad > 0.1).all(), "an empty mask teaches too"


# --- the answer ------------------------------------------------------------------------------------------------------


def test_level_sets_mark_each_pixel_as_often_as_it_is_probable_and_are_nested():
    """All pixels of a sample share a level, so the largest deviation of any is Kolmogorov's: by Dvoretzky, Kiefer,
    Wolfowitz and Massart it is above the bound once in a million."""
    n, p = 1000, torch.rand(1, 16, 16, generator=generator(1))
    model = table(p, answer="level-sets")
    samples = model.sample(torch.rand(1, 1, 16, 16), n, sample_generators(0, ["a"], n))[0, :, 0]
    bound = math.sqrt(math.log(2 / 1e-6) / (2 * n))
    assert float((samples.float().mean(0) - p[0]).abs().max()) < bound
    by_area = sorted(samples[:300].bool(), key=lambda mask: int(mask.sum()))
    assert all(bool((larger | ~smaller).all()) for smaller, larger in pairwise(by_area))
    assert len({int(mask.sum()) for mask in by_area}) > 100
    sure = torch.tensor([0.0, 1.0]).expand(16, 8, 2).reshape(1, 16, 16)
    certain = table(sure, answer="level-sets").sample(torch.rand(1, 1, 16, 16), 50, generator())
    assert (certain[0, :, 0] == sure.to(torch.uint8)).all()


def test_level_sets_share_their_level_among_targets():
    """So a target that is never more probable than another lies inside it in every sample."""
    inner = torch.rand(1, 16, 16, generator=generator())
    p = torch.cat([inner, inner.sqrt()])
    config, spec = UNet(answer="level-sets"), make_spec(targets=("core", "whole"))
    samples = Deterministic(config, spec, Table(torch.logit(p))).sample(torch.rand(1, 1, 16, 16), 200, generator())
    core, whole = samples[0].bool().unbind(1)
    assert bool((whole | ~core).all())
    assert bool((whole & ~core).any())


def learnt(first: torch.Tensor, second: torch.Tensor, answer: str) -> list[torch.Tensor]:
    """Samples after training on two masks of one image, each right half of the time."""
    model = table(torch.full((1, 16, 16), 0.5), answer=answer)
    optimizer, masks = torch.optim.Adam(model.parameters(), 0.5), torch.stack([first, second])[None, :, None]
    for i in range(40):
        optimizer.zero_grad()
        each = [model.loss(torch.rand(1, 1, 16, 16), masks[:, j : j + 1], generator(i))["loss"] for j in (0, 1)]
        sum(each).backward()
        optimizer.step()
    return list(model.sample(torch.rand(1, 1, 16, 16), 400, generator())[0, :, 0])


def test_of_two_equally_likely_masks_only_level_sets_of_nested_ones_are_both_drawn():
    small, large, left = (torch.zeros(16, 16, dtype=torch.uint8) for _ in range(3))
    small[4:8, 4:8], large[2:12, 2:12], left[:, :3] = 1, 1, 1
    answers = learnt(small, large, "mask")
    assert all((answer == answers[0]).all() for answer in answers), "the second is never drawn"
    levels = learnt(small, large, "level-sets")
    draws = sum(bool((mask == large).all()) for mask in levels)
    assert draws + sum(bool((mask == small).all()) for mask in levels) > 395, "one or the other, no mixture"
    assert abs(draws - 200) < 5 * math.sqrt(400 / 4) + 5
    # of two that lie apart a level set is neither: both at once, or nothing
    apart = learnt(small, left, "level-sets")
    assert not any(bool((mask == wanted).all()) for mask in apart for wanted in (small, left))


# --- configurations --------------------------------------------------------------------------------------------------


def test_an_image_too_small_for_the_network_is_one_sentence(tmp_path):
    store = make_store(tmp_path, train=2, val=0)
    for model in (SwinUNETR("tiny"), NNUNet("small")):
        with refused("--model: size:", "16x16"):
            open_trainer(TrainConfig(model=model, data=DataConfig(store=str(store))), tmp_path / "run")


def test_a_tiled_image_is_the_mean_of_its_tiles_probabilities():
    model = real(NNUNet("tiny", answer="level-sets"))
    image = torch.rand(1, 1, 16, 32, generator=generator())
    tiles = model.tiled((16, 16), 0.0)
    both = torch.cat([model.logits(image[..., :16]), model.logits(image[..., 16:])], -1)
    torch.testing.assert_close(tiles.logits(image), both, rtol=1e-4, atol=1e-4)  # without overlap: side by side
    assert tiles.sample(image, 2, generator()).shape == (1, 2, 1, 16, 32)

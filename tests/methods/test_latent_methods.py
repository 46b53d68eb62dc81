"""Probabilistic and Hierarchical Probabilistic U-Net: sizes, losses, teacher forcing, samples, exact resume, a toy."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from berdiff.methods.families.latent import Elbo, LatentSegmenter
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.probunet import ProbUNet
from berdiff.networks.latent import MapHead, VectorHead
from berdiff.training import checkpoint
from berdiff.training.session import train
from fakes import make_spec, make_store
from training.small import small_config, weight_files, without_validation

TINY = (ProbUNet("tiny"), HierarchicalProbUNet("tiny"))
BOTH = pytest.mark.parametrize("config", TINY, ids=[config.method for config in TINY])


def build(config, seed=0, **spec) -> LatentSegmenter:
    torch.manual_seed(seed)
    return config.build(make_spec(**spec))


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def batch(images=3, raters=4, targets=1) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(5)
    masks = torch.randint(2, (images, raters, targets, 16, 16), generator=g, dtype=torch.uint8)
    return torch.rand(images, 1, 16, 16, generator=g), masks


def noise(seed: int):
    """A source of latents' noise, as a network gets it."""
    generator = torch.Generator().manual_seed(seed)
    return lambda shape: torch.randn(shape, generator=generator)


# --- losses ----------------------------------------------------------------------------------------------------------


def test_the_elbo_is_cross_entropy_over_pixels_and_beta_kl_over_images():
    elbo = Elbo(beta=2.0, warmup=4)
    bce, kl = torch.rand(2, 3, 1, 4, 4), torch.rand(2, 3)
    for share in (0.25, 0.5, 0.75, 1, 1):
        before = elbo.steps.clone()
        terms = elbo(bce, kl, torch.Generator())
        assert elbo.steps == before, "the loss moves no state"
        torch.testing.assert_close(terms["loss"] * 16, (bce.sum((2, 3, 4)) + 2 * share * kl).mean())
        elbo.update(terms)
    plain = Elbo(beta=0.5, warmup=0)(bce, kl, torch.Generator())
    torch.testing.assert_close(plain["loss"] * 16, (bce.sum((2, 3, 4)) + 0.5 * kl).mean())


@BOTH
def test_kl_is_0_where_the_posterior_is_the_prior(config):
    """Heads that see nothing and say the same, at every level of latents."""
    model = build(config)
    image, masks = batch()
    heads = [part for part in model.network.modules() if isinstance(part, VectorHead | MapHead)]
    for head in heads:
        weight, bias = head.parameters()
        torch.nn.init.zeros_(weight)
        torch.nn.init.constant_(bias, 0.3)
    _, kls = model.network.infer(model.encode(image), image, masks.float(), noise(0))
    assert not any(kl.any() for kl in kls)
    torch.nn.init.constant_(list(heads[-1].parameters())[1], 0.5)
    _, kls = model.network.infer(model.encode(image), image, masks.float(), noise(0))
    assert (kls[-1] > 0).all(), "the test can fail"


def test_each_level_compares_posterior_and_prior_under_the_same_coarser_latents():
    """Other noise at the finest level leaves every KL bit-equal; at the coarsest one it moves the finer KL alone."""
    model, (image, masks) = build(HierarchicalProbUNet("tiny")), batch()
    y, features = masks.float(), model.encode(image)

    def kls(*seeds: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        left = iter(seeds)
        return model.network.infer(features, image, y, lambda shape: noise(next(left))(shape))

    logits, (coarse, fine) = kls(0, 1)
    other_fine, (coarse_2, fine_2) = kls(0, 2)
    assert torch.equal(coarse, coarse_2)
    assert torch.equal(fine, fine_2)
    assert not torch.equal(logits, other_fine)
    _, (coarse_3, fine_3) = kls(3, 1)
    assert torch.equal(coarse, coarse_3)
    assert (fine != fine_3).all()


# --- samples ---------------------------------------------------------------------------------------------------------


@BOTH
def test_another_z_is_another_mask_and_the_same_z_the_same(config):
    model, (image, _) = build(config), batch()
    features = model.encode(image)
    a, b = (model.network.generate(features, 2, noise(seed)) for seed in (0, 1))
    assert a.shape == (3, 2, 1, 16, 16)
    assert torch.equal(a, model.network.generate(features, 2, noise(0)))
    assert ((a - b).abs().amax((2, 3, 4)) > 1e-3).all()
    assert ((a[:, 0] - a[:, 1]).abs().amax((1, 2, 3)) > 1e-3).all()


def test_the_latents_of_a_mask_reach_every_pixel_of_it_alone():
    network, (image, _) = build(ProbUNet("tiny")).network, batch()
    last, prior = network.encode(image)
    z = prior.mean.unsqueeze(1).repeat(1, 2, 1)
    swapped = z.clone()
    swapped[1, 1] += 1
    changed = (network.decode(last, z) != network.decode(last, swapped)).flatten(3).all(3).squeeze(2)
    assert changed.tolist() == [[False, False], [False, True], [False, False]]


# --- training --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store"))


# the first cross-entropies are above kappa, but not so far that lambda moves at its limit
MOVING = (ProbUNet("tiny", beta_warmup=3), HierarchicalProbUNet("tiny", kappa=0.5, masks_per_image=3))


@pytest.mark.parametrize("config", MOVING, ids=[config.method for config in MOVING])
def test_a_resumed_training_is_the_uninterrupted_one_with_its_state(config, store: Path, tmp_path: Path):
    def run(name: str, steps: int, accumulate: int = 1) -> Path:
        train(without_validation(small_config(store, config, max_steps=steps, accumulate=accumulate)), tmp_path / name)
        return tmp_path / name

    def state(folder: Path) -> dict[str, torch.Tensor]:
        (newest,) = folder.glob("checkpoints/step-00000005")
        return {name: value for name, value in checkpoint.read(newest).tensors["raw"].items() if "objective" in name}

    whole = run("whole", 5)
    run("resumed", 3)
    assert weight_files(run("resumed", 5))["model/model.safetensors"] == weight_files(whole)["model/model.safetensors"]
    ours, resumed, in_parts = state(whole), state(tmp_path / "resumed"), state(run("parts", 5, accumulate=2))
    assert ours.keys() == resumed.keys() == in_parts.keys()
    assert ours["objective.steps" if config.method == "probunet" else "objective.updates"] == 5
    for name, value in ours.items():
        assert torch.equal(value, resumed[name])
        torch.testing.assert_close(value, in_parts[name], rtol=1e-4, atol=1e-6)
    if config.method == "hprobunet":
        assert 0 < ours["objective.log_lambda"] < 5 * config.nu


TOYS = (
    ProbUNet("tiny", masks_per_image=8),
    HierarchicalProbUNet("tiny", masks_per_image=8, top_k=0.2, average_decay=0.9),
)


@pytest.mark.parametrize(("config", "steps"), [(TOYS[0], 150), pytest.param(TOYS[1], 100, marks=pytest.mark.slow)])
def test_two_equally_likely_masks_are_both_drawn_about_half_the_time(config, steps):
    """A bright square that one rater marks and the other does not. Each pixel alone is a coin; the masks are whole."""
    model = build(config)
    masks = torch.zeros(1, 2, 1, 16, 16, dtype=torch.uint8)
    masks[:, 0, :, 4:12, 4:12] = 1
    image = 0.2 + 0.6 * masks[:, 0].float()
    optimizer, own = torch.optim.AdamW(model.parameters(), weight_decay=0.0), generators(0)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 2e-2 * min(1.0, 2 * (steps - step) / steps)
        terms = model.loss(image, masks, own)
        optimizer.zero_grad()
        terms["loss"].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            model.after_step(terms)
    samples = model.sample(image, 256, torch.Generator().manual_seed(1))[0].float()
    wrong = F.l1_loss(
        samples[:, None].expand(-1, 2, -1, -1, -1), masks.float().expand(256, -1, -1, -1, -1), reduction="none"
    )
    nearest = wrong.sum((2, 3, 4)).min(1)
    assert (nearest.values <= 6).float().mean() > 0.85, "whole masks, not a mixture of both"
    assert 0.3 < nearest.indices.float().mean() < 0.7

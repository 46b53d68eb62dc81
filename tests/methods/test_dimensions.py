"""Spatial axes are whatever is left over: slices as volumes of one slice, and BerDiff on volumes."""

from dataclasses import replace

import pytest
import torch

from berdiff.diffusion.energy import energy_score, soft_level_sets
from berdiff.diffusion.flow import Flow
from berdiff.diffusion.gaussian import Gaussian
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.kernels.categorical import Categorical
from berdiff.diffusion.links import LINKS, Link
from berdiff.diffusion.links import Nested as NestedLink
from berdiff.diffusion.nested import Nested
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import power
from berdiff.methods.base import Segmenter
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.deterministic import soft_dice_loss
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.mednext import MedNeXt
from berdiff.methods.ssn import SSN
from berdiff.methods.unet import UNet
from berdiff.networks.encode_once import EncodeOnce, fold, unfold
from fakes import generator, make_spec, real
from refusals import refused

SCHEDULE = power(20)
KERNELS: dict[str, Kernel] = {
    "noise": Bernoulli(SCHEDULE),
    "prior": Bernoulli(SCHEDULE, "prior", posterior="marginal"),
    "hurdle": Bernoulli(SCHEDULE, "mask", nonempty=True),
    "nested": Nested(SCHEDULE, inner_weight=4.0),
    "exclusive": Categorical(SCHEDULE),
    "exclusive, exact": Categorical(SCHEDULE, posterior="marginal"),
    "gaussian": Gaussian(SCHEDULE),
    "flow": Flow(SCHEDULE),
}
SAMPLERS = [
    *(Sampler(rule="ddpm"), Sampler(rule="ddpm", posterior="marginal", last_step="sample"), Sampler(sigma=0.5)),
    *(Sampler(sigma=0.0), Sampler(noise="shared", last_step="sample", smallest=3), Sampler(noise="shared")),
]


def exclusive(shape: tuple[int, ...]) -> torch.Tensor:
    """Masks `(B, N, 2, *S)` that every kernel knows: of no pixel two targets, and nested where the second is empty."""
    first = (torch.rand(*shape[:2], 1, *shape[3:], generator=generator(7)) > 0.6).float()
    return torch.cat([first, torch.zeros_like(first)], 2)


@pytest.mark.parametrize("name", KERNELS)
def test_a_volume_of_one_slice_has_the_numbers_of_the_slice(name: str):
    kernel, shape = KERNELS[name], (2, 3, 2, 6, 8)
    flat, deep = (shape, (2, 3, 2, 1, 6, 8))

    def same(of_slice: torch.Tensor, of_volume: torch.Tensor) -> None:
        assert torch.equal(of_slice.unsqueeze(3), of_volume)

    same(*(kernel.prior(of, generator(1), torch.empty(0)) for of in (flat, deep)))
    y0, t = exclusive(shape), torch.tensor([[1, 7, 20], [2, 19, 5]])
    (y_t, eps), (y_t3, eps3) = (kernel.q_sample(y, t, generator(2)) for y in (y0, y0.unsqueeze(3)))
    same(y_t, y_t3)
    same(eps, eps3)
    output = 3 * torch.randn(shape, generator=generator(3))
    weight = torch.tensor([[0.2, 0.0, 1.5], [0.1, 0.1, 0.4]])
    for of in (None, weight):
        terms = kernel.loss(output, y0, y_t, eps, t, of)
        volumes = kernel.loss(*(x.unsqueeze(3) for x in (output, y0, y_t, eps)), t, of)
        assert {k: float(v) for k, v in terms.items()} == {k: float(v) for k, v in volumes.items()}
    for sampler in SAMPLERS:
        try:
            kernel.check(sampler)
        except ValueError:
            continue
        for t_, s in ((20, 9), (4, 0)):
            found = (
                kernel.step(sampler, x, y, t_, s, generator(4))
                for x, y in ((output, y_t), (output.unsqueeze(3), y_t.unsqueeze(3)))
            )
            for one, three in zip(*found, strict=True):
                same(one, three)
    same(kernel.from_mean(kernel.to_mean(output)), kernel.from_mean(kernel.to_mean(output.unsqueeze(3))))


@pytest.mark.parametrize(
    "link", [*LINKS.values(), NestedLink(4.0)], ids=["independent", "nested", "exclusive", "nested-4"]
)
def test_links_and_other_losses_know_no_dimensions(link: Link):
    logits = 3 * torch.randn(2, 3, 2, 6, 8, generator=generator(1))
    y, deep = exclusive((2, 3, 2, 6, 8)), logits.unsqueeze(3)
    for of_slice, of_volume in (
        (link.probs(logits), link.probs(deep)),
        (link.logits(link.probs(logits)), link.logits(link.probs(deep))),
        (link.likely(logits), link.likely(deep)),
        (link.draw(logits, generator(2)), link.draw(deep, generator(2))),
    ):
        assert torch.equal(of_slice.unsqueeze(3), of_volume)
    assert float(link.cross_entropy(logits, y)) == float(link.cross_entropy(deep, y.unsqueeze(3)))
    p = link.probs(logits)
    assert float(soft_dice_loss(p, y)) == float(soft_dice_loss(p.unsqueeze(3), y.unsqueeze(3)))
    scores = []
    for p_, y_ in ((p[:, 0], y), (p[:, 0].unsqueeze(2), y.unsqueeze(3))):
        S = soft_level_sets(p_, torch.tensor([[0.1, 0.5], [0.3, 0.9]]))
        scores.append(energy_score(S, S.flip(1), y_.flatten(3), torch.ones(2, 3)))
    assert torch.equal(*scores)


def test_folding_a_volume_keeps_the_place_of_every_voxel():
    x = torch.rand(2, 3, 4, 6, 8, generator=generator())
    folded = fold(x)
    assert folded.shape == (2, 24, 2, 3, 4)
    assert torch.equal(unfold(folded), x)
    assert torch.equal(folded[1, 8:16, 1, 2, 3], x[1, 1, 2:4, 4:6, 6:8].flatten()), (
        "neighbours are one voxel's channels"
    )


# --- BerDiff on volumes ----------------------------------------------------------------------------------------------

VOLUME = (8, 16, 16)
OURS = BerDiff(
    *("fast-tiny", "power2.5", 20), masks_per_image=2, prediction="mask", hurdle=0.1, energy=0.1,
    sampler=Sampler(2, noise="shared", views=4, smallest=3),
)  # fmt: skip
CONFIGS = {
    "hurdle": OURS,
    "paper": BerDiff("fast-tiny", T=20, sampler=Sampler(3)),
    "gaussian": GaussianDiffusion("fast-tiny", T=20),
    "unet": UNet("fast-tiny", lambda_dice=1.0, answer="level-sets"),
    "mednext": MedNeXt("tiny"),
}


def segmenter(config, size=VOLUME) -> Segmenter:
    return real(config, make_spec(size, targets=("organ", "lesion")))


def ball(B: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Images `(B, 1, Z, H, W)` with a bright ball, and what two raters mark of it."""
    z, y, x = torch.meshgrid(*(torch.arange(side) - side / 2 for side in VOLUME), indexing="ij")
    distance = (z**2 + y**2 + x**2).sqrt()
    masks = torch.stack([torch.stack([distance < r, distance < r / 2]) for r in (3.0, 4.0)])
    return (1 - distance / 12).clamp(0, 1).expand(B, 1, *VOLUME), masks.to(torch.uint8).expand(B, *masks.shape)


@pytest.mark.parametrize("name", CONFIGS)
def test_volumes_are_learnt_and_sampled(name: str):
    model, (image, masks) = segmenter(CONFIGS[name]), ball()
    optimiser = torch.optim.Adam(model.train().parameters(), 3e-3)
    losses = []
    for step in range(12):
        terms = model.loss(image, masks, generator(step))
        optimiser.zero_grad()
        terms["loss"].backward()
        optimiser.step()
        losses.append(terms["loss"].item())
    assert sum(losses[-3:]) < sum(losses[:3])
    model.eval()
    samples = model.sample(image, 3, sample_generators(0, ["a", "b"], 3))
    assert samples.shape == (2, 3, 2, *VOLUME)
    assert samples.dtype == torch.uint8
    alone = model.sample(image[1:], 3, sample_generators(0, ["b"], 3))
    assert torch.equal(alone[0], samples[1]), "whatever the batch"


def test_larger_volumes_are_sampled_by_tiles():
    """Of one tile's size the tiles are the model itself; a larger volume is covered by tiles in every direction."""
    model = segmenter(CONFIGS["paper"])
    one, large = torch.rand(1, 1, *VOLUME), torch.rand(1, 1, 12, 24, 20)
    plain, tile = (model.sample(one, 2, sample_generators(0, "a", 2), tile=by) for by in (None, (VOLUME, 0.25)))
    assert float((plain != tile).float().mean()) < 0.01, "but for rounding"
    assert model.sample(large, 2, sample_generators(0, "a", 2), tile=(VOLUME, 0.25)).shape == (1, 2, 2, 12, 24, 20)


def test_what_does_not_fit_the_dimensions_is_refused():
    model = segmenter(CONFIGS["paper"])
    with refused("image:", "(B, C, Z, H, W)", error=ValueError):
        model.sample(torch.rand(1, 1, 16, 16), 1, generator())
    with refused("image:", "multiples of 8", error=ValueError):
        model.sample(torch.rand(1, 1, 8, 16, 12), 1, generator())
    with refused("preset:", "tiny", code="unsupported"):
        segmenter(replace(CONFIGS["paper"], preset="tiny"))
    with refused("size:", "ssn", code="unsupported"):
        segmenter(SSN("tiny"))


# --- nothing is assigned onto a network ------------------------------------------------------------------------------


def test_a_network_of_two_segmenters_belongs_to_neither():
    """The masks of one are the same before and after another noise, tiles or a precision were put on its network."""
    spec, network = make_spec((16, 16)), EncodeOnce("fast-tiny")
    config = BerDiff("fast-tiny", T=20, sampler=Sampler(3))
    model = DiffusionSegmenter(config, spec, network, config.kernel()).eval()
    torch.nn.init.normal_(network.step.stem.weight)
    image = torch.rand(1, 1, 16, 16, generator=generator())
    before, state = model.sample(image, 4, sample_generators(0, "a", 4)), vars(network).copy()
    other = GaussianDiffusion("fast-tiny", T=20)
    DiffusionSegmenter(other, spec, network, other.kernel())
    model.tiled((8, 8), 0.25)
    twin = model.with_changes(precision="bf16", sampler=Sampler(2))
    assert (twin.precision, twin.sampler, model.precision, model.sampler) == ("bf16", Sampler(2), "fp32", Sampler(3))
    assert vars(network) == state
    assert torch.equal(model.sample(image, 4, sample_generators(0, "a", 4)), before)

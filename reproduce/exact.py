"""Which sampler is right? An exact answer, on a distribution small enough to list.

3x3 masks have 512 states. With a known law p(y0 | x) the best possible network, E[y0 | y_t, x], follows from Bayes'
rule over those states, and one step of a sampler is a 512x512 transition matrix built from `step_prob`, the very
function that `Bernoulli.step` draws from. The law of the sampler's masks is then a product of matrices, and its
total-variation distance from the truth is exact: no network, no training, no sampling noise.

What a network estimates depends on its loss. Cross-entropy is least at the posterior, E[y0 | y_t, x]; the paper's
L_KL, with the soft form of eq. 7 inside, is least at the prior, E[y0_i | y_t without pixel i, x]: the soft form adds
pixel i's own evidence itself. So the soft rule is biased when it is fed the posterior, and exact when fed the prior.

Masks of three classes have their own calculation (`exact_categorical.py`); the chains and the table are the same.

With a hurdle the truth is split as the model splits it: pi(x), and the law of the masks that mark something. The chain
makes the second, its last step given that something is marked, and the law is the mixture of both.

`python -m reproduce.exact` prints the table.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise, product
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from berdiff.diffusion.bernoulli import q_marginal
from berdiff.diffusion.kernels.bernoulli import draw_nonempty, step_prob
from berdiff.diffusion.sampler import Sampler, time_grid
from berdiff.diffusion.schedule import NoiseSchedule, make_schedule

SIDE = 3
PIXELS = SIDE * SIDE
STATES = torch.tensor(list(product((0.0, 1.0), repeat=PIXELS)), dtype=torch.float64)
"""All masks `(512, 9)`: row i holds the binary digits of i, the first pixel first."""

Estimate = Literal["posterior", "prior"]
SAMPLERS: dict[str, tuple[Estimate, Sampler]] = {
    "DDPM, soft (the paper's)": ("posterior", Sampler(rule="ddpm", posterior="soft")),
    "DDPM, soft, fed the prior": ("prior", Sampler(rule="ddpm", posterior="soft")),
    "DDPM, exact marginal": ("posterior", Sampler(rule="ddpm", posterior="marginal")),
    "DDIM, sigma = max": ("posterior", Sampler(rule="ddim", sigma=1.0)),
    "DDIM, sigma = max / 2": ("posterior", Sampler(rule="ddim", sigma=0.5)),
    "DDIM, sigma = 0": ("posterior", Sampler(rule="ddim", sigma=0.0)),
    "DDIM, sigma = max, shared noise": ("posterior", Sampler(rule="ddim", sigma=1.0, noise="shared")),
}
HURDLE = ("DDIM, sigma = max", "DDIM, sigma = max, shared noise")
"""The rows that are there with a hurdle too; a hurdle's last step is sampled with shared noise alone."""
STEPS = (2, 5, 10, 50, 200, 1000)


def truth() -> Tensor:
    """p(y0 | x) `(2, 512)` for the one-bit image x: a reader may see nothing, or a lesion whose pixels hold together.

    x = 0 is a doubtful image (often empty, a small lesion), x = 1 a clear one (seldom empty, a large lesion). The
    lesion is an Ising model: neighbours like to agree, and the centre is more likely inside than the rim.
    """
    grid = STATES.reshape(-1, SIDE, SIDE)
    agree = (grid[:, 1:] == grid[:, :-1]).sum((1, 2)) + (grid[:, :, 1:] == grid[:, :, :-1]).sum((1, 2))
    empty, field = torch.tensor([[0.5, 0.1], [-0.4, 0.3]], dtype=torch.float64)[..., None]
    law = (1 - empty) * torch.softmax(0.8 * agree + field * STATES.sum(1) + 1.0 * grid[:, 1, 1], 1)
    law[:, 0] += empty[:, 0]
    return law


def nonempty(law: Tensor) -> Tensor:
    """p(y0 | x, y0 is not empty), from p(y0 | x)."""
    some = torch.cat([torch.zeros_like(law[:, :1]), law[:, 1:]], 1)
    return some / some.sum(1, keepdim=True)


def mixture(law: Tensor, of_chain: Tensor) -> Tensor:
    """The law of masks with a hurdle: pi [y0 is empty] + (1 - pi) of_chain, with the pi of `law`."""
    pi, empty = law[:, :1], torch.zeros_like(law[0])
    empty[0] = 1
    return pi * empty + (1 - pi) * of_chain


def expected_mask(schedule: NoiseSchedule, law: Tensor, t: int, estimate: Estimate = "posterior") -> Tensor:
    """`(X, 512, 9)` for every y_t, by Bayes' rule over all y0; law `(X, 512)`.

    "posterior": E[y0_i | y_t, x]; "prior": E[y0_i | y_t without pixel i, x], summed over both values of that pixel.
    """
    one = q_marginal(schedule, torch.tensor([0.0, 1.0], dtype=law.dtype), t)  # q(y_t = 1 | y0) of one pixel
    flip = torch.stack([1 - one, one], 1)  # [y0, y_t]
    likelihood = torch.ones(1, 1, dtype=law.dtype)
    for _ in range(PIXELS):
        likelihood = torch.kron(likelihood, flip)  # pixels are flipped independently
    joint = torch.stack([law, *(law[:, None] * STATES.T).unbind(1)], 1) @ likelihood  # (X, 1 + 9, 512)
    marked, total = joint[:, 1:], joint[:, :1].expand(-1, PIXELS, -1)
    if estimate == "prior":
        marked, total = _without_own_pixel(marked), _without_own_pixel(total)
    return (marked / total).transpose(1, 2)


def _without_own_pixel(joint: Tensor) -> Tensor:
    """joint `(X, 9, 512)`: row i summed over the two states of y_t that differ in pixel i alone."""
    states = torch.arange(len(STATES))
    flipped = torch.stack([states ^ (1 << (PIXELS - 1 - pixel)) for pixel in range(PIXELS)])
    return joint + joint.gather(2, flipped.expand(len(joint), -1, -1))


def transition(p: Tensor) -> Tensor:
    """The matrix `(..., 512, 512)` from each y_t to each y_s, from the pixels' probabilities `(..., 512, 9)`."""
    matrix = torch.ones_like(p[..., :1])
    for pixel in p.unbind(-1):
        both = torch.stack([1 - pixel, pixel], -1)
        matrix = (matrix[..., :, None] * both[..., None, :]).flatten(-2)
    return matrix


def step_matrix(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0_hat: Tensor, t: int, s: int) -> Tensor:
    """The matrix `(X, 512, 512)` of one step, for every y_t `(X, 512, 9)` and its estimate of y0."""
    if sampler.noise == "independent" or (s == 0 and sampler.last_step == "threshold"):
        return transition(step_prob(schedule, sampler, y_t, y0_hat, t, s))
    above = y0_hat.sort(-1, descending=True).values  # the level falls between two of these, or below or above all
    weights = -torch.diff(above, prepend=torch.ones_like(above[..., :1]), append=torch.zeros_like(above[..., :1]))
    matrix = torch.zeros(())
    for k, weight in enumerate(weights.unbind(-1)):
        y0 = y0_hat >= above[..., k - 1 : k] if k else torch.zeros_like(y0_hat)
        matrix = matrix + weight.unsqueeze(-1) * transition(step_prob(schedule, sampler, y_t, y0.to(y_t), t, s))
    return matrix


def nonempty_matrix(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0_hat: Tensor, t: int) -> Tensor:
    """The matrix of the last step of a hurdle: that of `step_matrix` without its empty outcome, where it is drawn."""
    if sampler.last_step == "threshold":
        estimate = y0_hat.unflatten(-1, (1, SIDE, SIDE))
        return transition(draw_nonempty(estimate, sampler, torch.Generator()).flatten(2))
    return nonempty(step_matrix(schedule, sampler, y_t, y0_hat, t, 0).flatten(0, 1)).reshape(*y_t.shape[:2], -1)


class Masks(NamedTuple):
    """All masks that there are, the empty one first, their law, and one step of a kernel as a matrix."""

    states: Tensor  # (S, ...)
    truth: Callable[[], Tensor]
    expected_mask: Callable[[NoiseSchedule, Tensor, int, Estimate], Tensor]
    step_matrix: Callable[[NoiseSchedule, Sampler, Tensor, Tensor, int, int], Tensor]
    nonempty_matrix: Callable[[NoiseSchedule, Sampler, Tensor, Tensor, int], Tensor] | None  # None: without a hurdle


BINARY = Masks(STATES, truth, expected_mask, step_matrix, nonempty_matrix)


def sampler_laws(
    schedule: NoiseSchedule,
    samplers: list[tuple[Estimate, Sampler]],
    law: Tensor,
    hurdle: bool = False,
    masks: Masks = BINARY,
) -> list[dict[str, Tensor]]:
    """The law `(X, S)` of the masks that each sampler makes, for either choice of its last step.

    The samplers share one grid of steps, so that the estimates are enumerated once per step for all of them. With a
    `hurdle` the chain is of the masks that mark something.
    """
    grids = {time_grid(schedule.T, sampler.steps, sampler.spacing) for _, sampler in samplers}
    if len(grids) != 1:
        raise ValueError(f"samplers: expected one grid of steps for all, found {len(grids)}")
    grid = grids.pop()
    y_t, of_chain = masks.states.expand(len(law), *masks.states.shape), nonempty(law) if hurdle else law
    laws = [{"sample": torch.full_like(law, 1 / len(masks.states))} for _ in samplers]  # y_T is pure noise
    for t, s in pairwise(grid):
        y0_hat = {kind: masks.expected_mask(schedule, of_chain, t, kind) for kind in dict(samplers)}
        for i, (kind, sampler) in enumerate(samplers):
            before = laws[i]["sample"][:, None]
            for choice in ("sample", "threshold") if s == 0 else ("sample",):
                last = replace(sampler, last_step=choice)
                if s == 0 and hurdle:
                    assert masks.nonempty_matrix is not None
                    matrix = masks.nonempty_matrix(schedule, last, y_t, y0_hat[kind], t)
                else:
                    matrix = masks.step_matrix(schedule, last, y_t, y0_hat[kind], t, s)
                laws[i][choice] = (before @ matrix)[:, 0]
    if hurdle:
        for (_, sampler), ends in zip(samplers, laws, strict=True):
            if sampler.noise == "independent":
                del ends["sample"]
        return [{choice: mixture(law, found) for choice, found in ends.items()} for ends in laws]
    return laws


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the sum of absolute differences, the images x being equally likely."""
    return float((p - q).abs().sum(-1).mean() / 2)


def distances(
    name: str, steps: Iterable[int], T: int = 1000, hurdle: bool = False, masks: Masks = BINARY
) -> dict[tuple[str, str], list[float]]:
    """(sampler, last step) -> the distance from the truth at each number of steps, for the schedule of that name."""
    schedule, law, labels = make_schedule(name, T), masks.truth(), HURDLE if hurdle else tuple(SAMPLERS)
    table: dict[tuple[str, str], list[float]] = {}
    for n in steps:
        rows = [SAMPLERS[label] for label in labels]
        samplers: list[tuple[Estimate, Sampler]] = [(kind, replace(s, steps=n)) for kind, s in rows]
        for label, ends in zip(labels, sampler_laws(schedule, samplers, law, hurdle, masks), strict=True):
            for choice, found in ends.items():
                table.setdefault((label, choice), []).append(total_variation(found, law))
    return table


def markdown(steps: Iterable[int] = STEPS, T: int = 1000, masks: Masks = BINARY) -> str:
    """The whole table."""
    steps = list(steps)
    lines = [
        f"| schedule | rule | last step | {' | '.join(f'{n} steps' for n in steps)} |",
        f"| --- | --- | --- |{' ---: |' * len(steps)}",
    ]
    for name in ("linear", "cosine"):
        for hurdle in (False, True) if masks.nonempty_matrix else (False,):
            for (label, choice), row in distances(name, steps, T, hurdle, masks).items():
                rule = label + ", hurdle" * hurdle
                last = {"sample": "sampled", "threshold": "thresholded"}[choice]
                lines.append(f"| {name} | {rule} | {last} | {' | '.join(f'{value:.4f}' for value in row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())

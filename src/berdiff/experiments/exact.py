"""Which sampler is right? An exact answer, on a distribution small enough to list.

3x3 masks have 512 states. With a known law p(y0 | x) the best possible network, E[y0 | y_t, x], follows from Bayes'
rule over those states, and one step of a sampler is a 512x512 transition matrix built from `step_prob`, the very
function that `sample` draws from. The law of the sampler's masks is then a product of matrices, and its
total-variation distance from the truth is exact: no network, no training, no sampling noise.

`python -m berdiff.experiments.exact` prints the table.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise, product

import torch
from torch import Tensor

from berdiff.diffusion.bernoulli import q_marginal
from berdiff.diffusion.sampling import Sampler, step_prob, time_grid
from berdiff.diffusion.schedule import NoiseSchedule, make_schedule

SIDE = 3
PIXELS = SIDE * SIDE
STATES = torch.tensor(list(product((0.0, 1.0), repeat=PIXELS)), dtype=torch.float64)
"""All masks `(512, 9)`: row i holds the binary digits of i, the first pixel first."""

SAMPLERS: dict[str, Sampler] = {
    "DDPM, soft (the paper's)": Sampler(rule="ddpm", posterior="soft"),
    "DDPM, exact marginal": Sampler(rule="ddpm", posterior="marginal"),
    "DDIM, sigma = max": Sampler(rule="ddim", sigma=1.0),
    "DDIM, sigma = max / 2": Sampler(rule="ddim", sigma=0.5),
    "DDIM, sigma = 0": Sampler(rule="ddim", sigma=0.0),
    "DDIM, sigma = max, shared latent": Sampler(rule="ddim", sigma=1.0, latent="shared"),
}
STEPS = (2, 5, 10, 50, 200, 1000)


def truth() -> Tensor:
    """p(y0 | x) `(2, 512)` for the one-bit image x: a reader may see nothing, or a lesion whose pixels hold together.

    x = 0 is a doubtful image (often empty, a small lesion), x = 1 a clear one (seldom empty, a large lesion). The
    lesion is an Ising model: neighbours like to agree, and the centre is more likely inside than the rim.
    """
    grid = STATES.reshape(-1, SIDE, SIDE)
    agree = (grid[:, 1:] == grid[:, :-1]).sum((1, 2)) + (grid[:, :, 1:] == grid[:, :, :-1]).sum((1, 2))
    rows = []
    for empty, field in ((0.5, -0.4), (0.1, 0.3)):
        lesion = torch.softmax(0.8 * agree + field * STATES.sum(1) + 1.0 * grid[:, 1, 1], 0)
        law = (1 - empty) * lesion
        law[0] += empty
        rows.append(law)
    return torch.stack(rows)


def expected_mask(schedule: NoiseSchedule, law: Tensor, t: int) -> Tensor:
    """E[y0 | y_t, x] `(X, 512, 9)` for every y_t, by Bayes' rule over all y0; law `(X, 512)`."""
    one = q_marginal(schedule, torch.tensor([0.0, 1.0], dtype=law.dtype), t)  # q(y_t = 1 | y0) of one pixel
    flip = torch.stack([1 - one, one], 1)  # [y0, y_t]
    likelihood = torch.ones(1, 1, dtype=law.dtype)
    for _ in range(PIXELS):
        likelihood = torch.kron(likelihood, flip)  # pixels are flipped independently
    joint = torch.stack([law, *(law[:, None] * STATES.T).unbind(1)], 1) @ likelihood  # (X, 1 + 9, 512)
    return (joint[:, 1:] / joint[:, :1]).transpose(1, 2)


def transition(p: Tensor) -> Tensor:
    """The matrix `(..., 512, 512)` from each y_t to each y_s, from the pixels' probabilities `(..., 512, 9)`."""
    matrix = torch.ones_like(p[..., :1])
    for pixel in p.unbind(-1):
        both = torch.stack([1 - pixel, pixel], -1)
        matrix = (matrix[..., :, None] * both[..., None, :]).flatten(-2)
    return matrix


def step_matrix(schedule: NoiseSchedule, sampler: Sampler, y_t: Tensor, y0_hat: Tensor, t: int, s: int) -> Tensor:
    """The matrix `(X, 512, 512)` of one step of `sample`, for every y_t `(X, 512, 9)` and its estimate of y0."""
    if sampler.latent == "pixel" or (s == 0 and sampler.last_step == "threshold"):
        return transition(step_prob(schedule, sampler, y_t, y0_hat, t, s))
    above = y0_hat.sort(-1, descending=True).values  # the level falls between two of these, or below or above all
    weights = -torch.diff(above, prepend=torch.ones_like(above[..., :1]), append=torch.zeros_like(above[..., :1]))
    matrix = torch.zeros(())
    for k, weight in enumerate(weights.unbind(-1)):
        y0 = y0_hat >= above[..., k - 1 : k] if k else torch.zeros_like(y0_hat)
        matrix = matrix + weight.unsqueeze(-1) * transition(step_prob(schedule, sampler, y_t, y0.to(y_t), t, s))
    return matrix


def sampler_laws(schedule: NoiseSchedule, samplers: Iterable[Sampler], law: Tensor) -> list[dict[str, Tensor]]:
    """The law `(X, 512)` of the masks that each sampler makes, for either choice of its last step.

    The samplers share one grid of steps, so that E[y0 | y_t, x] is enumerated once a step for all of them.
    """
    samplers = list(samplers)
    grids = {time_grid(schedule.T, sampler.steps, sampler.spacing) for sampler in samplers}
    if len(grids) != 1:
        raise ValueError(f"samplers: expected one grid of steps for all, found {len(grids)}")
    grid = grids.pop()
    y_t = STATES.expand(len(law), -1, -1)
    laws = [torch.full_like(law, 1 / len(STATES)) for _ in samplers]  # y_T ~ B(1/2)
    for t, s in pairwise(grid[:-1]):
        y0_hat = expected_mask(schedule, law, t)
        for i, sampler in enumerate(samplers):
            laws[i] = (laws[i][:, None] @ step_matrix(schedule, sampler, y_t, y0_hat, t, s))[:, 0]
    t, s = grid[-2:]
    y0_hat = expected_mask(schedule, law, t)
    ends = []
    for sampler, before in zip(samplers, laws, strict=True):
        last = {}
        for choice in ("sample", "threshold"):
            matrix = step_matrix(schedule, replace(sampler, last_step=choice), y_t, y0_hat, t, s)
            last[choice] = (before[:, None] @ matrix)[:, 0]
        ends.append(last)
    return ends


def total_variation(p: Tensor, q: Tensor) -> float:
    """Half the sum of absolute differences, the images x being equally likely."""
    return float((p - q).abs().sum(-1).mean() / 2)


def distances(name: str, steps: Iterable[int], T: int = 1000) -> dict[tuple[str, str], list[float]]:
    """(sampler, last step) -> the distance from the truth at each number of steps, for the schedule of that name."""
    schedule, law = make_schedule(name, T), truth()
    table: dict[tuple[str, str], list[float]] = {}
    for n in steps:
        laws = sampler_laws(schedule, [replace(sampler, steps=n) for sampler in SAMPLERS.values()], law)
        for label, ends in zip(SAMPLERS, laws, strict=True):
            for choice, found in ends.items():
                table.setdefault((label, choice), []).append(total_variation(found, law))
    return table


def markdown(steps: Iterable[int] = STEPS, T: int = 1000) -> str:
    """The whole table."""
    steps = list(steps)
    lines = [
        f"| schedule | rule | last step | {' | '.join(f'{n} steps' for n in steps)} |",
        f"| --- | --- | --- |{' ---: |' * len(steps)}",
    ]
    for name in ("linear", "cosine"):
        for (label, choice), row in distances(name, steps, T).items():
            last = {"sample": "sampled", "threshold": "thresholded"}[choice]
            lines.append(f"| {name} | {label} | {last} | {' | '.join(f'{value:.4f}' for value in row)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())

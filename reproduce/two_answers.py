"""Two equally likely, exclusive answers for one object: is each drawn half of the time, and are they ever mixed?

An image shows a disc and nothing of its kind: it is all of the first target or all of the second. The best possible
network follows from Bayes' rule over the two answers, so that what is left to see is the kernel and the sampler.

`python -m reproduce.two_answers` prints the table.
"""

from itertools import product

import torch
from torch import Tensor

from berdiff.diffusion.categorical import q_marginal, with_background
from berdiff.diffusion.kernels.categorical import Categorical
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import sample
from berdiff.diffusion.schedule import NoiseSchedule, make_schedule

SIDE = 12
SURE = 50.0  # a logit that leaves the other class 2e-22


def disc() -> Tensor:
    """`(12, 12)`: 52 pixels of 1."""
    place = torch.arange(SIDE) - (SIDE - 1) / 2
    return (place[:, None] ** 2 + place**2 < 17).float()


def answers() -> Tensor:
    """Both masks `(2, 2, 12, 12)`, [answer, target]."""
    return torch.eye(2)[..., None, None] * disc()


def estimate(schedule: NoiseSchedule, y_t: Tensor, t: int) -> Tensor:
    """The logits of the mask `(B, N, 2, 12, 12)`, relative to the background: P(answer | y_t) by Bayes' rule."""
    q = q_marginal(schedule, with_background(answers()[None]).double(), t)[0]  # (2, 3, 12, 12)
    likelihood = torch.einsum("bnchw,achw->bna", with_background(y_t).double(), q.log())
    log_p = likelihood.log_softmax(-1)[..., None, None].to(y_t.dtype)  # the two answers are the two targets
    return torch.where(disc() > 0, SURE + log_p, -SURE)


def drawn(schedule: NoiseSchedule, sampler: Sampler, n: int, generator: torch.Generator) -> Tensor:
    """n masks `(n, 2, 12, 12)`."""
    kernel = Categorical(schedule)
    y_T = kernel.prior((1, n, 2, SIDE, SIDE), generator, torch.zeros(()))
    return sample(kernel, sampler, lambda y_t, t: estimate(schedule, y_t, t), y_T, generator)[0]


def shares(masks: Tensor) -> tuple[float, float, float]:
    """Of masks `(n, 2, H, W)`: the shares that have the first target alone, the second alone, and both."""
    first, second = masks.flatten(2).any(2).unbind(1)
    alone, other, both = first & ~second, second & ~first, first & second
    return float(alone.float().mean()), float(other.float().mean()), float(both.float().mean())


def markdown(n: int = 4000) -> str:
    lines = ["| steps | noise | last step | first | second | both mixed |", "| ---: | --- | --- | ---: | ---: | ---: |"]
    for steps, noise, last_step in product((1, 2, 5, 10, 50), ("independent", "shared"), ("sample", "threshold")):
        sampler, generator = Sampler(steps, noise=noise, last_step=last_step), torch.Generator().manual_seed(steps)
        found = shares(drawn(make_schedule("power2.5", 1000), sampler, n, generator))
        last = {"sample": "sampled", "threshold": "thresholded"}[last_step]
        lines.append(f"| {steps} | {noise} | {last} | {' | '.join(f'{share:.3f}' for share in found)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(markdown())

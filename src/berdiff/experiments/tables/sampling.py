"""Table A1: DDPM's and DDIM's rules at 2 to 1000 steps, from one trained model; and, ours, other forms of each.

The paper's DDPM plugs a probability into the posterior (soft); `marginal` is the exact form. Its DDIM leaves sigma
open; the release has its largest value, sigma 1 here. `shared` draws a mask by one latent instead of one a pixel.
"""

from collections.abc import Callable
from itertools import pairwise

from berdiff.diffusion.sampling import Sampler
from berdiff.experiments.tables.row import Claim, Row, Table, ged_row
from berdiff.experiments.tables.scale import Scale

STEPS = (2, 10, 100, 1000)
PAPER = {
    ("ddpm-soft", 2): ged_row(0.441, 0.483, 0.568, 1.076, 0.303),
    ("ddpm-soft", 10): ged_row(0.266, 0.302, 0.377, 0.824, 0.533),
    ("ddpm-soft", 100): ged_row(0.258, 0.296, 0.372, 0.829, 0.539),
    ("ddpm-soft", 1000): ged_row(0.254, 0.293, 0.369, 0.832, 0.539),
    ("ddim-1", 2): ged_row(0.432, 0.481, 0.579, 1.167, 0.341),
    ("ddim-1", 10): ged_row(0.252, 0.287, 0.358, 0.775, 0.575),
    ("ddim-1", 100): ged_row(0.250, 0.284, 0.351, 0.759, 0.582),
    ("ddim-1", 1000): ged_row(0.247, 0.280, 0.348, 0.758, 0.585),
}


def ddpm_soft(steps: int) -> Sampler:
    return Sampler(steps, rule="ddpm", posterior="soft")


def ddpm_marginal(steps: int) -> Sampler:
    return Sampler(steps, rule="ddpm", posterior="marginal")


def ddim(sigma: float) -> Callable[[int], Sampler]:
    return lambda steps: Sampler(steps, rule="ddim", sigma=sigma)


def ddim_shared(steps: int) -> Sampler:
    return Sampler(steps, rule="ddim", latent="shared")


RULES: dict[str, tuple[str, Callable[[int], Sampler]]] = {
    "ddpm-soft": ("DDPM, soft", ddpm_soft),
    "ddpm-marginal": ("DDPM, exact marginal", ddpm_marginal),
    "ddim-1": ("DDIM, sigma 1", ddim(1.0)),
    "ddim-0.5": ("DDIM, sigma 0.5", ddim(0.5)),
    "ddim-0": ("DDIM, sigma 0", ddim(0.0)),
    "ddim-shared": ("DDIM, sigma 1, shared latent", ddim_shared),
}


def row_of(rule: str, steps: int) -> Callable[[Scale], Row]:
    """The function of one row. Few steps come first: a rule's cost is in its many."""
    label, make = RULES[rule]

    def row(scale: Scale) -> Row:
        settings = scale.settings(scale.ablation, make(steps))
        paper = PAPER.get((rule, steps))
        return Row(f"{rule}-{steps}", (label, str(steps)), "model", scale.ablation, settings, paper, "model")

    return row


def _claims() -> tuple[Claim, ...]:
    better = [Claim(f"DDIM is better than DDPM at {n} steps", f"ddim-1-{n}", f"ddpm-soft-{n}") for n in STEPS]
    for rule, name in (("ddpm-soft", "DDPM"), ("ddim-1", "DDIM")):
        better += [
            Claim(f"{more} steps are better than {few}: {name}", f"{rule}-{more}", f"{rule}-{few}")
            for few, more in pairwise(STEPS)
        ]
    for n in STEPS:
        text = f"the exact marginal is better than the soft posterior at {n} steps"
        better.append(Claim(text, f"ddpm-marginal-{n}", f"ddpm-soft-{n}", "ours"))
        better.append(Claim(f"sigma 1 is better than sigma 0 at {n} steps", f"ddim-1-{n}", f"ddim-0-{n}", "ours"))
        text = f"one latent a mask is better than one a pixel at {n} steps"
        better.append(Claim(text, f"ddim-shared-{n}", f"ddim-1-{n}", "ours"))
    return tuple(better)


TABLE = Table(
    name="sampling",
    title="Table A1: sampling rule and number of steps on LIDC-IDRI, one trained model",
    heads=("rule", "steps"),
    rows=tuple(row_of(rule, steps) for rule in RULES for steps in STEPS),
    claims=_claims(),
    takes_model=True,
)

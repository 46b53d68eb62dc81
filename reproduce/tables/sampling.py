"""Table A1: DDPM's and DDIM's rules at 2 to 1000 steps, from one trained model; and, ours, other forms of each.

The paper's DDPM plugs a probability into the posterior (soft); `marginal` is the exact form. Its DDIM leaves sigma
open; the release has its largest value, sigma 1 here. `shared` has one random number per mask instead of one per pixel.
"""

from dataclasses import replace
from itertools import pairwise

from berdiff.diffusion.sampler import Sampler
from reproduce.tables.spec import Claim, PaperTable, TableRow, ged_row

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
RULES = {
    "ddpm-soft": ("DDPM, soft", Sampler(rule="ddpm", posterior="soft")),
    "ddpm-marginal": ("DDPM, exact marginal", Sampler(rule="ddpm", posterior="marginal")),
    "ddim-1": ("DDIM, sigma 1", Sampler(sigma=1.0)),
    "ddim-0.5": ("DDIM, sigma 0.5", Sampler(sigma=0.5)),
    "ddim-0": ("DDIM, sigma 0", Sampler(sigma=0.0)),
    "ddim-shared": ("DDIM, sigma 1, shared noise", Sampler(noise="shared")),
}


def make_row(rule: str, steps: int) -> TableRow:
    """All rows evaluate one model."""
    label, sampler = RULES[rule]
    return TableRow(
        name=f"{rule}-{steps}",
        label=(label, str(steps)),
        sampler=replace(sampler, steps=steps),
        paper=PAPER.get((rule, steps)),
        run="model",
        model="model",
    )


def _claims() -> tuple[Claim, ...]:
    claims = [Claim(f"DDIM is better than DDPM at {n} steps", f"ddim-1-{n}", f"ddpm-soft-{n}") for n in STEPS]
    for rule, name in (("ddpm-soft", "DDPM"), ("ddim-1", "DDIM")):
        claims += [
            Claim(f"{more} steps are better than {few}: {name}", f"{rule}-{more}", f"{rule}-{few}")
            for few, more in pairwise(STEPS)
        ]
    ours = (
        ("the exact marginal is better than the soft posterior", "ddpm-marginal", "ddpm-soft"),
        ("sigma 1 is better than sigma 0", "ddim-1", "ddim-0"),
        ("shared noise is better than independent noise", "ddim-shared", "ddim-1"),
    )
    claims += [
        Claim(f"{text} at {n} steps", f"{better}-{n}", f"{worse}-{n}", "ours")
        for n in STEPS
        for text, better, worse in ours
    ]
    return tuple(claims)


TABLE = PaperTable(
    name="sampling",
    title="Table A1: sampling rule and number of steps on LIDC-IDRI, one trained model",
    heads=("rule", "steps"),
    rows=tuple(make_row(rule, steps) for rule in RULES for steps in STEPS),
    claims=_claims(),
    takes_model=True,
)

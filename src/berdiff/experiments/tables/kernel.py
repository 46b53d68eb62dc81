"""Table 2: the Gaussian kernel against the Bernoulli one, after short and after long training of the same run."""

from dataclasses import replace

from berdiff.experiments.tables.row import Claim, Figures, Row, Table, as_gaussian, ged_row
from berdiff.experiments.tables.scale import Scale
from berdiff.training.config import TrainConfig


def _row(scale: Scale, training: str, kernel: str, config: TrainConfig, paper: Figures) -> Row:
    config = replace(config, validation=scale.curves)
    return Row(
        f"{kernel.lower()}-{training}", (training, kernel), kernel.lower(), config, scale.settings(config), paper
    )


def gaussian_short(scale: Scale) -> Row:
    return _row(scale, "short", "Gaussian", as_gaussian(scale.short), ged_row(0.671, 0.732, 0.852, 1.573, 0.020))


def bernoulli_short(scale: Scale) -> Row:
    return _row(scale, "short", "Bernoulli", scale.short, ged_row(0.252, 0.287, 0.358, 0.775, 0.575))


def gaussian_long(scale: Scale) -> Row:
    return _row(scale, "long", "Gaussian", as_gaussian(scale.long), ged_row(0.251, 0.282, 0.345, 0.719, 0.587))


def bernoulli_long(scale: Scale) -> Row:
    return _row(scale, "long", "Bernoulli", scale.long, ged_row(0.238, 0.271, 0.340, 0.748, 0.596))


TABLE = Table(
    name="kernel",
    title="Table 2: the diffusion kernel on LIDC-IDRI",
    heads=("training", "kernel"),
    rows=(gaussian_short, bernoulli_short, gaussian_long, bernoulli_long),
    claims=(
        Claim("Bernoulli is better than Gaussian after short training", "bernoulli-short", "gaussian-short"),
        Claim("Bernoulli is better than Gaussian after long training", "bernoulli-long", "gaussian-long"),
        Claim("long training is better than short: Gaussian", "gaussian-long", "gaussian-short"),
        Claim("long training is better than short: Bernoulli", "bernoulli-long", "bernoulli-short"),
    ),
    seeds=2,
)

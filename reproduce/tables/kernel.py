"""Table 2: the Gaussian kernel against the Bernoulli one, after short and after long training of the same run."""

from typing import Any

from reproduce.tables.spec import Claim, PaperTable, TableRow, Training, ged_row

PAPER: dict[tuple[Training, str], Any] = {
    ("short", "Gaussian"): ged_row(0.671, 0.732, 0.852, 1.573, 0.020),
    ("short", "Bernoulli"): ged_row(0.252, 0.287, 0.358, 0.775, 0.575),
    ("long", "Gaussian"): ged_row(0.251, 0.282, 0.345, 0.719, 0.587),
    ("long", "Bernoulli"): ged_row(0.238, 0.271, 0.340, 0.748, 0.596),
}

TABLE = PaperTable(
    name="kernel",
    title="Table 2: the diffusion kernel on LIDC-IDRI",
    heads=("training", "kernel"),
    rows=tuple(
        TableRow(
            name=f"{kernel.lower()}-{training}",
            label=(training, kernel),
            training=training,
            method="gaussian" if kernel == "Gaussian" else "berdiff",
            paper=paper,
            run=kernel.lower(),
            curves=True,
        )
        for (training, kernel), paper in PAPER.items()
    ),
    claims=(
        Claim("Bernoulli is better than Gaussian after short training", "bernoulli-short", "gaussian-short"),
        Claim("Bernoulli is better than Gaussian after long training", "bernoulli-long", "gaussian-long"),
        Claim("long training is better than short: Gaussian", "gaussian-long", "gaussian-short"),
        Claim("long training is better than short: Bernoulli", "bernoulli-long", "bernoulli-short"),
    ),
    seeds=2,
)

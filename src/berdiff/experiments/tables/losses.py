"""Table 1: which loss, and whether the network estimates the noise or the mask."""

from berdiff.experiments.tables.row import Claim, Figures, Row, Table, ged_row, with_model
from berdiff.experiments.tables.scale import Scale


def _row(scale: Scale, name: str, label: tuple[str, str], paper: Figures, **model: object) -> Row:
    config = with_model(scale.ablation, **model)
    return Row(name, label, name, config, scale.settings(config), paper)


def kl(scale: Scale) -> Row:
    return _row(scale, "kl", ("KL", "noise"), ged_row(0.332, 0.365, 0.430, 0.825, 0.517), lambda_bce=0.0)


def bce(scale: Scale) -> Row:
    return _row(scale, "bce", ("BCE", "noise"), ged_row(0.251, 0.287, 0.359, 0.785, 0.566), lambda_kl=0.0)


def both(scale: Scale) -> Row:
    return _row(scale, "both", ("BCE + KL", "noise"), ged_row(0.249, 0.287, 0.358, 0.775, 0.575))


def mask(scale: Scale) -> Row:
    return _row(scale, "mask", ("BCE + KL", "mask"), ged_row(0.277, 0.317, 0.396, 0.866, 0.509), target="mask")


TABLE = Table(
    name="losses",
    title="Table 1: losses and targets on LIDC-IDRI",
    heads=("loss", "target"),
    rows=(kl, bce, both, mask),
    claims=(
        Claim("BCE + KL is better than KL alone", "both", "kl"),
        Claim("BCE + KL is better than BCE alone", "both", "bce"),
        Claim("BCE alone is better than KL alone", "bce", "kl"),
        Claim("estimating the noise is better than estimating the mask", "both", "mask"),
    ),
)

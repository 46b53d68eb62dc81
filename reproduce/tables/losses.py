"""Table 1: which loss, and whether the network predicts the noise or the mask.

L_KL alone, with the paper's soft posterior, is smallest at the pixel's probability WITHOUT its own evidence, which that
posterior then adds itself. So a network trained by it is also sampled by the soft DDPM rule, the last step drawn: its
estimate is no probability of the mask, and not to be thresholded (docs/deviations.md).
"""

from berdiff.diffusion.sampler import Sampler
from reproduce.tables.spec import Claim, PaperTable, TableRow, ged_row

KL, BCE, MASK = {"lambda_bce": 0.0}, {"lambda_kl": 0.0}, {"prediction": "mask"}
SOFT_DDPM = Sampler(10, rule="ddpm", posterior="soft", last_step="sample")

TABLE = PaperTable(
    name="losses",
    title="Table 1: losses and predictions on LIDC-IDRI",
    heads=("loss", "prediction"),
    rows=(
        TableRow("kl", ("KL", "noise"), model_settings=KL, paper=ged_row(0.332, 0.365, 0.430, 0.825, 0.517)),
        TableRow(
            "kl-soft-ddpm",
            ("KL, soft DDPM, last step sampled", "noise"),
            model_settings=KL,
            sampler=SOFT_DDPM,
            run="kl",
            model="kl",
        ),
        TableRow("bce", ("BCE", "noise"), model_settings=BCE, paper=ged_row(0.251, 0.287, 0.359, 0.785, 0.566)),
        TableRow("both", ("BCE + KL", "noise"), paper=ged_row(0.249, 0.287, 0.358, 0.775, 0.575)),
        TableRow("mask", ("BCE + KL", "mask"), model_settings=MASK, paper=ged_row(0.277, 0.317, 0.396, 0.866, 0.509)),
    ),
    claims=(
        Claim("BCE + KL is better than KL alone", "both", "kl"),
        Claim("BCE + KL is better than BCE alone", "both", "bce"),
        Claim("BCE alone is better than KL alone", "bce", "kl"),
        Claim("predicting the noise is better than predicting the mask", "both", "mask"),
        Claim("KL alone is better sampled by the soft DDPM rule", "kl-soft-ddpm", "kl", "ours"),
        Claim("BCE + KL is better than KL alone by the soft DDPM rule", "both", "kl-soft-ddpm", "ours"),
    ),
)

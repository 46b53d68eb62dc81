"""Tables 3 and 4: methods against each other on LIDC-IDRI and on BraTS 2021.

A method that joins gets a line in METHODS: its name, how the BerDiff row's training becomes its own, and what the paper
has for it. Nothing else knows the list.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from berdiff.evaluation.paper import BRATS, LIDC
from berdiff.experiments.tables.row import Claim, Figures, Row, Table, as_gaussian, as_unet
from berdiff.experiments.tables.scale import Scale
from berdiff.training.config import TrainConfig


@dataclass(frozen=True)
class Method:
    label: str
    train: Callable[[TrainConfig], TrainConfig]
    lidc: Figures | None = None
    brats: Figures | None = None


METHODS = {
    "berdiff": Method("BerDiff", lambda config: config, LIDC["metrics"], BRATS["metrics"]),
    # SegDiff is Gaussian diffusion with another network, so it stands among the paper's other rows
    "gaussian": Method("Gaussian diffusion, the same network", as_gaussian),
    "unet": Method("U-net, the same network", as_unet, None, {"dice_slice": 0.892}),
}

LIDC_OTHERS = {
    "Prob.U-net": {"ged_16": 0.320, "hm_iou_16": 0.500},
    "Hprob.U-net": {"ged_16": 0.270, "hm_iou_16": 0.530},
    "CAR": {"ged_16": 0.264, "hm_iou_16": 0.592},
    "JPro.U-net": {"ged_16": 0.260, "hm_iou_16": 0.585},
    "PixelSeg": {"ged_16": 0.260, "hm_iou_16": 0.587},
    "SegDiff": {"ged_16": 0.248, "hm_iou_16": 0.585},
    "MedSegDiff": {"ged_16": 0.420, "hm_iou_16": 0.413},
}
BRATS_OTHERS = {
    "nnU-net": {"dice_slice": 0.882},
    "TransU-net": {"dice_slice": 0.886},
    "Swin UNETR": {"dice_slice": 0.890},
    "SegDiff": {"dice_slice": 0.893},
}


def row_of(name: str, data: Literal["lidc", "brats"]) -> Callable[[Scale], Row]:
    method = METHODS[name]

    def row(scale: Scale) -> Row:
        config = method.train(scale.long if data == "lidc" else scale.brats)
        paper = method.lidc if data == "lidc" else method.brats
        return Row(name, (method.label,), name, config, scale.settings(config), paper)

    return row


KERNEL = Claim("Bernoulli diffusion is better than Gaussian diffusion", "berdiff", "gaussian")
U_NET = "Bernoulli diffusion is better than the U-net of the same network"

LIDC_TABLE = Table(
    name="lidc",
    title="Table 3: methods on LIDC-IDRI",
    heads=("method",),
    rows=tuple(row_of(name, "lidc") for name in METHODS),
    claims=(KERNEL, Claim(U_NET, "berdiff", "unet", "ours")),  # table 3 has no plain U-net
    others=LIDC_OTHERS,
)
BRATS_TABLE = Table(
    name="brats",
    title="Table 4: methods on BraTS 2021",
    heads=("method",),
    rows=tuple(row_of(name, "brats") for name in METHODS),
    claims=(KERNEL, Claim(U_NET, "berdiff", "unet")),
    metrics=("dice_slice", "dice_volume", "dice_patient"),
    judged=("dice_slice",),
    others=BRATS_OTHERS,
)

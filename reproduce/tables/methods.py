"""Tables 3 and 4: methods against each other on LIDC-IDRI and on BraTS 2021.

Any other method, a plug-in's too, is a row by its name: `berdiff table lidc --rows berdiff mymethod`.
"""

from typing import Any

from berdiff.evaluation.published import BRATS, LIDC
from reproduce.tables.spec import Claim, PaperTable, TableRow, Training

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


def _rows(training: Training, berdiff: Any, unet: Any) -> tuple[TableRow, ...]:
    """SegDiff is Gaussian diffusion with another network, so it is listed among the paper's other rows."""
    return (
        TableRow("berdiff", ("BerDiff",), training, paper=berdiff),
        TableRow("gaussian", ("Gaussian diffusion, the same network",), training, "gaussian"),
        TableRow("unet", ("U-net, the same network",), training, "unet", paper=unet),
    )


def _own(recipe: str, label: str, paper: Any = None) -> TableRow:
    """A row by the recipe RECIPE-cpu."""
    return TableRow(recipe, (label,), recipe=recipe, paper=paper)


LIDC_COMPARED = (
    _own("berdiff", "BerDiff, our recipe"),
    _own("berdiff-small", "BerDiff, the paper's way", LIDC["metrics"]),
    _own("gaussian-small", "Gaussian diffusion, the same network"),
    _own("probunet", "Prob. U-net", LIDC_OTHERS["Prob.U-net"]),
    _own("hprobunet", "H. Prob. U-net", LIDC_OTHERS["Hprob.U-net"]),
    _own("car", "CAR", LIDC_OTHERS["CAR"]),
    _own("jprounet", "JPro. U-net", LIDC_OTHERS["JPro.U-net"]),
    _own("pixelseg", "PixelSeg", LIDC_OTHERS["PixelSeg"]),
    _own("segdiff", "SegDiff", LIDC_OTHERS["SegDiff"]),
    _own("medsegdiff", "MedSegDiff", LIDC_OTHERS["MedSegDiff"]),
    _own("ssn", "SSN"),
    _own("ccdm", "CCDM"),
    _own("flow", "flow matching"),
    _own("mose", "MoSE"),
)
BRATS_COMPARED = (
    _own("berdiff-brats", "BerDiff, our recipe", BRATS["metrics"]),
    _own("unet", "U-net", {"dice_slice": 0.892}),
    _own("nnunet", "nnU-net", BRATS_OTHERS["nnU-net"]),
    _own("transunet", "TransU-net", BRATS_OTHERS["TransU-net"]),
    _own("swinunetr", "Swin UNETR", BRATS_OTHERS["Swin UNETR"]),
    _own("segdiff-brats", "SegDiff", BRATS_OTHERS["SegDiff"]),
    _own("mednext", "MedNeXt"),
)

KERNEL = Claim("Bernoulli diffusion is better than Gaussian diffusion", "berdiff", "gaussian")
U_NET = "Bernoulli diffusion is better than the U-net of the same network"

LIDC_TABLE = PaperTable(
    name="lidc",
    title="Table 3: methods on LIDC-IDRI",
    heads=("method",),
    rows=_rows("long", LIDC["metrics"], None),
    claims=(KERNEL, Claim(U_NET, "berdiff", "unet", "ours")),  # table 3 has no plain U-net
    others=LIDC_OTHERS,
    compared=LIDC_COMPARED,
    any_method="long",
)
BRATS_TABLE = PaperTable(
    name="brats",
    title="Table 4: methods on BraTS 2021",
    heads=("method",),
    rows=_rows("brats", BRATS["metrics"], {"dice_slice": 0.892}),
    claims=(KERNEL, Claim(U_NET, "berdiff", "unet")),
    metrics=("dice_slice", "dice_volume", "dice_patient", "dice_patient_marked", "dice_slice_marked"),
    # the paper's test set has few slices without tumour, or none: what is marked in those decides one of them alone
    deciding=("dice_slice", "dice_slice_marked", "dice_patient", "dice_patient_marked"),
    others=BRATS_OTHERS,
    compared=BRATS_COMPARED,
    any_method="brats",
)

"""The paper's own figures, to be shown beside ours; never ours, and never on our data."""

from berdiff.evaluation.result_file import PaperRow

# table "Ablation results of diffusion kernel", Bernoulli at 86,500 iterations: the row of its main table
LIDC: PaperRow = {
    "method": "BerDiff, the paper",
    "data": "LIDC-IDRI, the paper's own preparation and split, 128x128",
    "metrics": {"ged_1": 0.748, "ged_4": 0.340, "ged_8": 0.271, "ged_16": 0.238, "hm_iou_16": 0.596},
}
# the paper does not report whether by slice or by volume; its test set is counted in slices
BRATS: PaperRow = {
    "method": "BerDiff, the paper",
    "data": "BraTS 2021, the paper's own split, 224x224",
    "metrics": {"dice_slice": 0.897},
}


def paper_row(source: str) -> PaperRow | None:
    """The row for a store prepared from `source`; None where the paper has none."""
    if source.startswith("lidc"):
        return LIDC
    return BRATS if source.startswith("brats") else None

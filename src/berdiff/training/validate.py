"""Validation in the middle of a run: GED and HM-IoU on a fixed subset, and a sheet of samples to look at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from berdiff.evaluation import core
from berdiff.files import whole_file
from berdiff.metrics import ged, hm_iou
from berdiff.training.config import ValidationConfig


@dataclass(frozen=True, eq=False)
class Cases:
    """The fixed subset, in memory."""

    images: Tensor  # (N, C, H, W)
    masks: Tensor  # (N, R, K, H, W)
    raters: Tensor  # (N,) how many of the R masks are readers' own
    names: list[str]
    notes: tuple[str, ...] = ()  # of the store, for the sheet

    def __len__(self) -> int:
        return len(self.names)


def draw(segmenter: Any, cases: Cases, chosen: list[int], n: int, seed: int, fabric: Fabric) -> Tensor:
    """n masks of each chosen case `(len(chosen), n, K, H, W)` on the CPU, by the model's own sampler.

    They are the same whatever is drawn beside them.
    """
    names = [cases.names[i] for i in chosen]
    with fabric.autocast():
        return core.draw(segmenter, cases.images[chosen], names, n, None, seed, fabric.device)


def score(
    fabric: Fabric, segmenter: Any, cases: Cases, config: ValidationConfig, seed: int
) -> tuple[dict[str, float], Tensor]:
    """Mean GED and HM-IoU over the subset, and the samples of this process's first cases, for the sheet.

    The processes share the cases, the first one has the first of them; each case counts once.
    """
    rank, world = fabric.global_rank, fabric.world_size
    # all make as many calls (with FSDP and DDP they wait for each other), so the last ones may repeat a case
    share = -(-len(cases) // world)
    own = [(rank * share + i) % len(cases) for i in range(share)]
    totals, shown = torch.zeros(3, dtype=torch.float64), []
    for first in range(0, share, config.batch_size):
        chosen = own[first : first + config.batch_size]
        samples = draw(segmenter, cases, chosen, config.samples, seed, fabric)
        shown.append(samples[: max(0, config.sheet_cases - first)])
        counts = torch.tensor([rank * share + first + i < len(cases) for i in range(len(chosen))])
        values = [f(samples, cases.masks[chosen], cases.raters[chosen]).mean(1)[counts] for f in (ged, hm_iou)]
        totals += torch.stack([values[0].sum(), values[1].sum(), counts.sum().double()])
    if world > 1:
        totals = fabric.all_reduce(totals.to(fabric.device), reduce_op="sum").cpu()  # pyright: ignore
    return {"ged": float(totals[0] / totals[2]), "hm_iou": float(totals[1] / totals[2])}, torch.cat(shown)


def sheet(path: Path, cases: Cases, samples: Tensor, title: str) -> None:
    """A picture, one row a case: image, each reader, the samples, saliency (the mean of the samples).

    The first channel and the first target are shown.
    """
    from matplotlib.figure import Figure  # no global state, no window; half a second to import

    rows, readers, drawn = len(samples), int(cases.raters[: len(samples)].max()), min(4, samples.shape[1])
    titles = ["image", *(f"reader {r + 1}" for r in range(readers)), *(f"sample {s + 1}" for s in range(drawn))]
    figure = Figure(figsize=(1.2 * (len(titles) + 1), 1.25 * rows + 0.7), layout="constrained")
    axes = np.atleast_2d(figure.subplots(rows, len(titles) + 1))
    for row in range(rows):
        image, masks = cases.images[row, 0], cases.masks[row, : int(cases.raters[row]), 0]
        panels = [image, *masks, *[None] * (readers - len(masks)), *samples[row, :drawn, 0]]
        panels.append(samples[row, :, 0].float().mean(0))
        for column, (ax, panel) in enumerate(zip(axes[row], panels, strict=True)):
            ax.set_axis_off()
            if panel is not None:
                ax.imshow(panel, cmap="magma" if column == len(titles) else "gray", vmin=0, vmax=1)
            if row == 0:
                ax.set_title([*titles, "saliency"][column], fontsize=8)
    figure.suptitle("; ".join([title, *cases.notes]), fontsize=9)
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=110)

"""Validation during a training: GED and HM-IoU on a fixed subset."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from berdiff.data.input_spec import Size
from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.evaluation.core import sample_cases
from berdiff.methods.base import Segmenter
from berdiff.metrics import Pairs, ged_limit
from berdiff.training.config import AnyConfig, ValidationConfig
from berdiff.training.engine import sum_over_processes


@dataclass(frozen=True, eq=False)
class ValidationCases:
    """The fixed subset, in memory."""

    images: Tensor  # (N, C, *S), whole
    masks: Tensor  # (N, R, K, *S)
    raters: Tensor  # (N,) how many of the R masks are raters' own
    names: list[str]
    size: Size  # of the centre that the model sees
    notes: tuple[str, ...] = ()  # of the store, for the sheet

    def planes(self, samples: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Images, masks, raters and these samples of the first cases; of a volume the slice that raters mark most."""
        images, masks = self.images[: len(samples)], self.masks[: len(samples)]
        if samples.ndim == 6:
            most = masks.sum((1, 2, 4, 5)).argmax(1).tolist()
            images, masks, samples = (
                torch.stack([one.select(-3, z) for one, z in zip(of, most, strict=True)])
                for of in (images, masks, samples)
            )
        return images, masks, self.raters[: len(samples)], samples

    @cached_property
    def _pairs(self) -> Pairs:
        return Pairs.of(self.masks, self.masks, self.raters)

    def ged_limit(self, n: int) -> float | None:
        """What a model that knew p(y|x) would score with n samples on average; None where no case has two raters."""
        limit = ged_limit(self._pairs.d_raters, self._pairs.raters[:, None], n)
        return None if np.isnan(limit).all() else float(np.nanmean(limit))


def read_cases(store: Store, config: AnyConfig, size: Size) -> ValidationCases | None:
    """What `berdiff evaluate` takes with the same split, seed and --limit; None where there is no such case."""
    validation = config.validation
    if not validation.every or not len(store.indices(validation.split)):
        return None
    chosen = choose_cases(store, validation.split, validation.cases, config.seed, option="--validation.cases")
    images, masks = store.read(chosen)
    return ValidationCases(
        torch.from_numpy(images),
        torch.from_numpy(masks),
        torch.from_numpy(store.cases.raters[chosen].astype(np.int64)),
        [str(name) for name in store.cases.case[chosen]],
        size,
        store.notes,
    )


def validate(
    fabric: Fabric, segmenter: Segmenter, cases: ValidationCases, config: ValidationConfig, seed: int
) -> tuple[dict[str, float], Tensor]:
    """Mean GED and HM-IoU over the subset, and the samples of this process's first cases, for the sheet.

    Figures are on whole images, as those of `berdiff evaluate`. The processes share the cases, the first one has the
    first of them; each case counts once.
    """
    rank, world, count = fabric.global_rank, fabric.world_size, len(cases.names)
    # all make as many calls (with FSDP and DDP they wait for each other), so the last ones may repeat a case
    share = -(-count // world)
    own = [(rank * share + i) % count for i in range(share)]
    totals, shown = torch.zeros(3, dtype=torch.float64), []
    for first in range(0, share, config.batch_size):
        chosen = own[first : first + config.batch_size]
        names = [cases.names[i] for i in chosen]
        with fabric.autocast():
            images, n = cases.images[chosen], config.samples
            samples = sample_cases(segmenter, images, names, n, None, seed, fabric.device, cases.size)
        shown.append(samples[: max(0, config.sheet_cases - first)])
        counts = torch.tensor([rank * share + first + i < count for i in range(len(chosen))])
        pairs = Pairs.of(samples, cases.masks[chosen], cases.raters[chosen])
        ged, hm_iou = (torch.from_numpy(of).mean(1)[counts].sum() for of in (pairs.ged(), pairs.hm_iou()))
        totals += torch.stack([ged, hm_iou, counts.sum().double()])
    totals = sum_over_processes(fabric, totals.to(fabric.device)).cpu()
    return {"ged": float(totals[0] / totals[2]), "hm_iou": float(totals[1] / totals[2])}, torch.cat(shown)

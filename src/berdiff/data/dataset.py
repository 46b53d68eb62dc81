"""The torch side of a store. Everything random is a pure function of seeds and positions:

item i of epoch e depends on (seed, e, i), and the batch of a step on (seed, step, rank, world size), so a training
that was killed goes on exactly where it was, and the number of workers changes nothing.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from berdiff.data.augment import augmented, window
from berdiff.data.store import Store
from berdiff.errors import InputError

Draw = tuple[int, int]  # (epoch, item)


class SliceDataset(Dataset):
    """The slices of one split, as dicts of

    - `image` (C, H, W) float32 in [0, 1],
    - `masks` (R, K, H, W) uint8: with `raters="random"` one reader of the case a draw, as the paper trains (R = 1);
      with `"all"` every reader, padded with empty masks to the store's count; with `"repeat"` the case's readers over
      and over up to that count, so that none is padding,
    - `raters`, how many of those masks are readers' and not padding,
    - `index`, the case's place in the store.

    Index it by an item, which takes the epoch of `set_epoch`, or by a pair (epoch, item).
    `crop` cuts the centre (64 of 128 keeps 99 % of LIDC's slices whole).
    """

    def __init__(
        self,
        store: Store,
        split: str,
        raters: Literal["random", "all", "repeat"] = "random",
        crop: int | None = None,
        augment: bool = False,
        seed: int = 0,
        shift: int = 4,
    ):
        if raters not in ("random", "all", "repeat"):
            raise InputError(f"raters: expected random, all or repeat, found {raters!r}")
        if crop is not None and not 0 < crop <= min(store.size):
            raise InputError(f"crop: expected 1 to {min(store.size)}, found {crop}")
        if shift < 0:
            raise InputError(f"shift: expected at least 0, found {shift}")
        self.indices = store.indices(split)
        if not len(self.indices):
            raise InputError(f"{store.address}: expected cases in the split {split}, found none")
        self.store, self.raters, self.augment, self.seed, self.shift = store, raters, augment, seed, shift
        self.size = store.size if crop is None else (crop, crop)
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.indices)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, item: int | Draw) -> dict[str, Any]:
        return self.__getitems__([item])[0]

    def __getitems__(self, items: Sequence[int | Draw]) -> list[dict[str, Any]]:
        """Several at once: one read of the store for a whole batch. torch's loader asks for it by this name."""
        draws = [(self.epoch, int(item)) if isinstance(item, int | np.integer) else item for item in items]
        indices = self.indices[[item for _, item in draws]]
        images, masks = self.store.read(indices)
        return [
            self._item(draw, int(index), image, readers)
            for draw, index, image, readers in zip(draws, indices, images, masks, strict=True)
        ]

    def _item(self, draw: Draw, index: int, image: np.ndarray, masks: np.ndarray) -> dict[str, Any]:
        epoch, item = draw
        rng = np.random.default_rng([self.seed, epoch, item % len(self)])
        raters = int(self.store.cases.raters[index])
        if self.raters == "random":
            reader = int(rng.integers(raters))
            masks, raters = masks[reader : reader + 1], 1
        elif self.raters == "repeat" and raters < len(masks):
            masks = masks[(int(rng.integers(raters)) + np.arange(len(masks))) % raters]
            raters = len(masks)
        if self.augment:
            image, masks = augmented(image, masks, self.size, rng, self.shift)
        else:
            image, masks = window(image, self.size), window(masks, self.size)
        return {
            "image": torch.from_numpy(np.ascontiguousarray(image)),
            "masks": torch.from_numpy(np.ascontiguousarray(masks)),
            "raters": raters,
            "index": index,
        }


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(n)


def batch_draws(
    n: int, batch_size: int, step: int, seed: int, rank: int = 0, world_size: int = 1
) -> list[tuple[int, int]]:
    """(epoch, item) of the batch that process `rank` of `world_size` takes at `step` (0-based).

    Steps walk through one seeded permutation of the n items after the other, without a gap: a batch may end one epoch
    and begin the next. The processes' batches of a step, one after the other, are the batch of a single process with
    `world_size * batch_size`.
    """
    first = (step * world_size + rank) * batch_size
    places = [divmod(position, n) for position in range(first, first + batch_size)]
    return [(epoch, int(_permutation(n, seed, epoch)[place])) for epoch, place in places]


def batch_indices(n: int, batch_size: int, step: int, seed: int, rank: int = 0, world_size: int = 1) -> np.ndarray:
    """The items of `batch_draws` alone: (batch_size,) integers in 0..n-1."""
    return np.array([item for _, item in batch_draws(n, batch_size, step, seed, rank, world_size)])


class StepSampler:
    """The batches of the steps `first_step` to `last_step` - 1, for a DataLoader's `batch_sampler`."""

    def __init__(
        self, n: int, batch_size: int, first_step: int, last_step: int, seed: int, rank: int = 0, world_size: int = 1
    ):
        self.n, self.batch_size, self.seed, self.rank, self.world_size = n, batch_size, seed, rank, world_size
        self.steps = range(first_step, last_step)

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[Draw]]:
        for step in self.steps:
            yield batch_draws(self.n, self.batch_size, step, self.seed, self.rank, self.world_size)


def training_loader(
    dataset: SliceDataset,
    batch_size: int,
    first_step: int,
    last_step: int,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    workers: int = 0,
) -> DataLoader:
    """Batches as dicts of stacked tensors, one a step. Memory holds the batches under way, never the data set."""
    sampler = StepSampler(len(dataset), batch_size, first_step, last_step, seed, rank, world_size)
    return DataLoader(dataset, batch_sampler=sampler, num_workers=workers, collate_fn=collate)


def collate(items: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {
        "image": torch.stack([item["image"] for item in items]),
        "masks": torch.stack([item["masks"] for item in items]),
        "raters": torch.tensor([item["raters"] for item in items]),
        "index": torch.tensor([item["index"] for item in items]),
    }

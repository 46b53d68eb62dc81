"""Batches as a pure function of (seed, step), made ahead in the background.

Nothing here has a state worth saving: a run that resumes at step s asks for batch s and gets what it would have got.
"""

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import torch
from torch import Tensor

from berdiff.data.dataset import SliceDataset, batch_draws, collate
from berdiff.diffusion.sampling import sample_generators
from berdiff.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Batch:
    """The part of one global batch that one process takes through the network at once."""

    image: Tensor  # (B, C, H, W) float32
    masks: Tensor  # (B, R, K, H, W) uint8
    places: range  # of its slices in the global batch

    def generators(self, seed: int, step: int, device: torch.device) -> list[torch.Generator]:
        """One a slice, seeded by its place in the global batch: how many processes share the batch changes nothing."""
        return sample_generators(seed, [f"step {step} place {place}" for place in self.places], 1, device)


@dataclass(frozen=True)
class Batches:
    """Cuts each global batch into world_size * accumulate equal parts; a process gets `accumulate` of them a step."""

    dataset: SliceDataset
    batch_size: int
    accumulate: int = 1
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    prefetch: int = 4
    pin: bool = False  # page-locked memory: copies to a GPU then overlap with its work

    def __post_init__(self) -> None:
        if self.batch_size % (self.world_size * self.accumulate):
            raise InputError(
                f"--loop.batch-size: expected a multiple of {self.world_size} processes x {self.accumulate} "
                f"(--loop.accumulate), found {self.batch_size}"
            )

    def make(self, step: int) -> list[Batch]:
        """This process's parts of the batch of a step (0-based)."""
        parts = self.world_size * self.accumulate
        first = self.rank * self.accumulate
        return [self._part(step, part, parts) for part in range(first, first + self.accumulate)]

    def _part(self, step: int, part: int, parts: int) -> Batch:
        size = self.batch_size // parts
        draws = batch_draws(len(self.dataset), size, step, self.seed, part, parts)
        items = collate(self.dataset.__getitems__(draws))
        image, masks = items["image"], items["masks"]
        if self.pin:
            image, masks = image.pin_memory(), masks.pin_memory()
        return Batch(image, masks, range(part * size, (part + 1) * size))

    def after(self, step: int) -> Generator[list[Batch], None, None]:
        """The parts of batch step, step + 1, ... without end."""
        return ahead(self.make, step, self.prefetch)


def ahead(make: Callable[[int], Item], first: int, depth: int) -> Generator[Item, None, None]:
    """make(first), make(first + 1), ... with up to `depth` of them made before they are asked for, in one thread.

    One thread is enough and keeps the order; numpy and torch let go of Python's lock while they work.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as pool:
        waiting: deque[Future[Item]] = deque()
        try:
            for number in count(first):
                waiting.append(pool.submit(make, number))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

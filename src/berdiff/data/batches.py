"""Batches as a pure function of (seed, step), made in the background: a training resumes without any saved state."""

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np
from torch import Tensor

from berdiff.data.dataset import CaseDataset, Draw
from berdiff.data.describe import expect


@dataclass(frozen=True, eq=False)
class Batch:
    """The part of one global batch that one process takes through the network at once."""

    image: Tensor  # (B, C, *S) float32
    masks: Tensor  # (B, R, K, *S) uint8
    places: range  # of its slices in the global batch

    def keys(self, step: int) -> list[str]:
        """A name per slice for its random numbers: by its place, so that cutting the batch differently changes none."""
        return [f"step {step} place {place}" for place in self.places]


@dataclass(frozen=True)
class Batches:
    """Cuts each global batch into world_size * accumulate equal parts; a process gets `accumulate` of them per step."""

    dataset: CaseDataset
    batch_size: int
    accumulate: int = 1
    seed: int = 0
    rank: int = 0
    world_size: int = 1
    prefetch: int = 4
    pin: bool = False  # page-locked memory: copies to a GPU then overlap with its work

    def __post_init__(self) -> None:
        divisor = f"{self.world_size} processes x {self.accumulate} (--loop.accumulate)"
        fits = self.batch_size % (self.world_size * self.accumulate) == 0
        expect(fits, "--loop.batch-size", f"a multiple of {divisor}", self.batch_size, "conflict")

    def make(self, step: int) -> list[Batch]:
        """This process's parts of the batch of a step (0-based)."""
        parts = self.world_size * self.accumulate
        size, first = self.batch_size // parts, self.rank * self.accumulate
        made = []
        for part in range(first, first + self.accumulate):
            image, masks = self.dataset.batch(batch_draws(len(self.dataset), size, step, self.seed, part, parts))
            if self.pin:
                image, masks = image.pin_memory(), masks.pin_memory()
            made.append(Batch(image, masks, range(part * size, (part + 1) * size)))
        return made

    def after(self, step: int) -> Generator[list[Batch], None, None]:
        """The parts of batch step, step + 1, ... without end, `prefetch` of them made ahead by one thread."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="batches") as pool:
            waiting: deque[Future[list[Batch]]] = deque()
            try:
                for number in count(step):
                    waiting.append(pool.submit(self.make, number))
                    if len(waiting) > self.prefetch:
                        yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


def batch_draws(n: int, batch_size: int, step: int, seed: int, part: int = 0, parts: int = 1) -> list[Draw]:
    """(epoch, item) of each slice in one of the `parts` of the batch of a step: steps walk through one seeded
    permutation of the n items after the other."""
    first = (step * parts + part) * batch_size
    places = [divmod(position, n) for position in range(first, first + batch_size)]
    return [(epoch, int(_permutation(n, seed, epoch)[place])) for epoch, place in places]


@lru_cache(maxsize=4)
def _permutation(n: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch]).permutation(n)

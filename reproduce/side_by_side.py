"""Durations measured side by side: the runs alternate, so that a busy moment of the machine hits all of them."""

import gc
import time
from collections.abc import Callable
from statistics import median

from berdiff.data.case import Progress
from berdiff.diffusion.sampling import Step

Run = Callable[[], object]


def see_every_mask(step: Step) -> None:
    """The callback of samplings that are timed on noise: masks that are empty by a hurdle are then drawn like all
    others, and what they cost does not depend on what a head makes of noise."""


def durations(
    *runs: Run, repeats: int = 3, warmup: int = 1, progress: Progress = lambda done, total: None
) -> list[float]:
    """The median seconds of each run, taken in turns after `warmup` rounds that do not count."""
    return [median(times) for times in rounds(*runs, repeats=repeats, warmup=warmup, progress=progress)]


def rounds(
    *runs: Run, repeats: int, warmup: int = 1, progress: Progress = lambda done, total: None
) -> list[list[float]]:
    """The seconds of each run in each round after `warmup`: those of one round were taken one right after the other."""
    seconds: list[list[float]] = [[] for _ in runs]
    count = warmup + repeats
    for round_ in range(count):
        for place, (run, times) in enumerate(zip(runs, seconds, strict=True), 1):
            gc.collect()
            start = time.perf_counter()
            run()
            if round_ >= warmup:
                times.append(time.perf_counter() - start)
            progress(round_ * len(runs) + place, count * len(runs))
    return seconds

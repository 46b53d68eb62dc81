"""Ratios of durations, measured side by side: the runs alternate, so that a busy moment of the machine hits both."""

import gc
import time
from collections.abc import Callable
from statistics import median


def durations(*runs: Callable[[], object], repeats: int = 3, warmup: int = 1) -> list[float]:
    """The median seconds of each run, taken in turns after `warmup` rounds that do not count."""
    seconds: list[list[float]] = [[] for _ in runs]
    for round_ in range(warmup + repeats):
        for run, times in zip(runs, seconds, strict=True):
            gc.collect()
            start = time.perf_counter()
            run()
            if round_ >= warmup:
                times.append(time.perf_counter() - start)
    return [median(times) for times in seconds]

"""What a run tells while it goes, to the terminal, log.txt, stats.jsonl and TensorBoard; by the first process only."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from berdiff.training.config import TrainConfig
from berdiff.training.progress import Display, duration
from berdiff.training.record import Record
from berdiff.training.runs import Row


class Window:
    """Means since the last line of stats.jsonl, kept on the device so that no step waits for a figure."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps = self.images = 0
        self._started = time.monotonic()
        self._paused = 0.0

    def add(self, terms: dict[str, Tensor], norm: Tensor) -> None:
        for name, value in (terms | {"grad_norm": norm}).items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()
        self.steps += 1

    def means(self) -> dict[str, float]:
        return {name: float(value) / self.steps for name, value in self.sums.items()}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent inside is not training time: validation, checkpoints."""
        begun = time.monotonic()
        yield
        self._paused += time.monotonic() - begun

    def images_per_s(self) -> float:
        return self.images / (time.monotonic() - self._started - self._paused)


class Reporter:
    def __init__(self, config: TrainConfig, run: Path, on: bool) -> None:
        self._config, self._run, self._on = config, run, on
        self._display = Display(on)
        self._record: Record | None = None

    @contextmanager
    def opened(self, step: int, device: str) -> Iterator[None]:
        """The run folder is open, from this step on, and the bar is shown."""
        if not self._on:
            yield
            return
        self._record = Record(self._run, self._config, step, device)
        try:
            with self._display.shown():
                yield
        finally:
            self._record.close()
            self._record = None

    def say(self, line: str) -> None:
        self._display.say(line)
        if self._record is not None:
            self._record.log(line)

    def add(self, row: Row) -> None:
        if self._record is not None:
            self._record.add(row)

    def training(self, row: Row, best_ged: float | None) -> None:
        """A line of stats.jsonl, and the bar moves."""
        self.add(row)
        done, left = self._time_left(row["step"], row["minutes"], row["images_per_s"])
        ged = "" if best_ged is None else f"  GED {best_ged:.3f}"
        loss = f"loss {row['loss']:.4f}" if "loss" in row else "no finite loss"
        text = f"step {row['step']}  {loss}{ged}  {row['images_per_s']:.1f} images/s  {left} left"
        if self._display.update(done, text) and self._record is not None:
            self._record.log(text)

    def _time_left(self, step: int, minutes: float, images_per_s: float) -> tuple[float, str]:
        """(share of the run that is done, time left), by the limit that comes first."""
        loop = self._config.loop
        seconds, done = (loop.max_steps - step) * loop.batch_size / images_per_s, step / loop.max_steps
        if loop.max_minutes is not None and (loop.max_minutes - minutes) * 60 < seconds:
            seconds, done = (loop.max_minutes - minutes) * 60, min(1.0, minutes / max(loop.max_minutes, 1e-9))
        return done, duration(seconds)

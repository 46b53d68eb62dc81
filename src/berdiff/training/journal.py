"""Everything a run reports: to the terminal, log.txt, stats.jsonl and TensorBoard; by the first process only."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from torch import Tensor

from berdiff import schema
from berdiff.display import Display, duration
from berdiff.files import write_text
from berdiff.methods.base import Terms
from berdiff.training.config import AnyConfig, dump
from berdiff.training.machine import environment
from berdiff.training.run_folder import ENVIRONMENT, StatsRow, read_rows, read_sessions


class RunningMeans:
    """Means since the last line of stats.jsonl, kept on the device so that no step waits for a figure."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.steps = self.images = 0
        self._started = time.monotonic()

    def add(self, terms: Terms, norm: Tensor) -> None:
        for name, value in {**terms, "grad_norm": norm}.items():
            self.sums[name] = self.sums.get(name, 0) + value.detach()
        self.steps += 1

    def values(self) -> dict[str, float]:
        return {name: float(value) / self.steps for name, value in self.sums.items()}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time spent inside is not training time: validation, checkpoints."""
        begun = time.monotonic()
        yield
        self._started += time.monotonic() - begun

    def images_per_s(self) -> float:
        return self.images / (time.monotonic() - self._started)


class Journal:
    """Silent where it is not `on`, as in all processes but the first."""

    def __init__(self, config: AnyConfig, run: Path, on: bool) -> None:
        self._config, self._run, self._on = config, run, on
        self._display = Display(Console(force_jupyter=False), on)
        self._open = False

    @contextmanager
    def opened(self, step: int, device: str) -> Iterator[None]:
        """The run folder is open for writing, from this step on, and the bar is shown.

        What a killed process wrote about later steps is dropped: each step is reported once.
        """
        if not self._on:
            yield
            return
        from torch.utils.tensorboard import SummaryWriter  # a second to import

        write_text(self._run / "config.json", dump(self._config))
        session = {"from_step": step, "seed": self._config.seed, "device": device, **environment()}
        write_text(self._run / ENVIRONMENT, schema.dump([*read_sessions(self._run), session]))
        stats = self._run / "stats.jsonl"
        rows = [row for row in read_rows(stats) if row["step"] <= step and row["kind"] != "end"]
        write_text(stats, "".join(json.dumps(row) + "\n" for row in rows))
        log = self._run / "log.txt"
        with stats.open("a", encoding="utf-8") as self._stats, log.open("a", encoding="utf-8") as self._log:
            self._board = SummaryWriter(str(self._run / "tensorboard"), purge_step=step + 1)
            self._open = True
            try:
                with self._display.shown("the first steps ..."):
                    yield
            finally:
                self._open = False
                self._board.close()

    def print(self, line: str) -> None:
        """On the terminal and in log.txt."""
        self._display.print(line)
        self._to_log(line)

    def add(self, row: StatsRow) -> None:
        """A line of stats.jsonl, and its figures to TensorBoard."""
        if not self._open:
            return
        self._stats.write(json.dumps(row) + "\n")
        self._stats.flush()
        for name, value in row.items():
            if name not in ("kind", "step") and isinstance(value, int | float):
                self._board.add_scalar(f"{row['kind']}/{name}", value, row["step"])
        self._board.flush()

    def add_training(self, row: StatsRow, best_ged: float | None) -> None:
        """A line of stats.jsonl, and the bar moves."""
        self.add(row)
        share = max(self._config.loop.used(row["step"], row["minutes"], row["cpu_minutes"]).values())
        left = duration(60 * row["minutes"] * (1 - share) / max(share, 1e-9))
        ged = "" if best_ged is None else f"  GED {best_ged:.3f}"
        loss = f"loss {row['loss']:.4f}" if "loss" in row else "no finite loss"
        text = f"step {row['step']}  {loss}{ged}  {row['images_per_s']:.1f} images/s  {left} left"
        if self._display.update(share, text, last=share >= 1):
            self._to_log(text)

    def _to_log(self, line: str) -> None:
        if self._open:
            self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
            self._log.flush()

"""What the terminal shows: a bar with time left, or plain lines where there is no terminal."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

SECONDS_BETWEEN_LINES = 10


class Display:
    """One bar over the run. On a terminal it moves at each step; elsewhere a line every ten seconds says as much."""

    def __init__(self, on: bool, console: Console | None = None) -> None:
        self._console = console or Console()
        self._on = on
        self._bar: Progress | None = None
        self._last_line = 0.0

    @contextmanager
    def shown(self) -> Iterator["Display"]:
        if not (self._on and self._console.is_terminal):
            yield self
            return
        columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task("the first steps ...", total=1.0)
            yield self
        self._bar = None

    def say(self, line: str) -> None:
        """A line that stays."""
        if self._on:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._console.file.flush()

    def update(self, done: float, text: str) -> bool:
        """The share done, and a text beside it. True when this came out as a plain line."""
        if not self._on:
            return False
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=text)
            return False
        now = time.monotonic()
        if now - self._last_line < SECONDS_BETWEEN_LINES and done < 1:
            return False
        self._last_line = now
        self.say(text)
        return True


def duration(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    minutes, s = divmod(round(max(seconds, 0)), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"

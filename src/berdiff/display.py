"""How far a long command is: a bar with the time left on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

SECONDS_BETWEEN_LINES = 10.0
_quiet = False


def be_quiet(quiet: bool = True) -> None:
    """No bars and no notices of this process from now on, only results and errors: `--quiet` of every command."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


def note(line: str) -> None:
    """Say on stderr what a command is doing, unless it is to be quiet."""
    if not _quiet:
        print(line, file=sys.stderr, flush=True)


class Display:
    """One bar. On a terminal it moves at each update; elsewhere a plain line every ten seconds reports as much."""

    def __init__(self, console: "Console", on: bool = True, first_line: float = 0.0) -> None:
        """Not `on`: nothing is shown, as in all processes but the first. No plain line before the time `first_line`."""
        self._console, self._on, self._next_line = console, on and not _quiet, first_line
        self._bar: Progress | None = None

    @contextmanager
    def shown(self, text: str) -> Iterator["Display"]:
        """The bar stands inside the block, with this text until the first update."""
        if not (self._on and self._console.is_terminal):
            yield self
            return
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.description}", markup=False))
        with Progress(*columns, console=self._console, transient=True) as self._bar:
            self._task = self._bar.add_task(text, total=None)
            yield self
        self._bar = None

    def print(self, line: str) -> None:
        """A line that stays."""
        if self._on:
            self._console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
            self._console.file.flush()

    def update(self, share: float | None, text: str, last: bool = False) -> bool:
        """The share done (None: unknown), and a text beside it; the last one is never left out.

        True where it was printed as a plain line.
        """
        if self._bar is not None:
            self._bar.update(self._task, completed=share or 0.0, total=None if share is None else 1.0, description=text)
            return False
        now = time.monotonic()
        if not self._on or (now < self._next_line and not last):
            return False
        self._next_line = now + SECONDS_BETWEEN_LINES
        self.print(text)
        return True


def plain_console(stderr: bool = False) -> "Console":
    """A console that shows names as they are: nothing in them is a colour, a link or a picture."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False, force_jupyter=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with (done, total or None); it may be called often. Shown on stderr."""
    start = time.monotonic()
    display = Display(
        plain_console(stderr=True), first_line=start + SECONDS_BETWEEN_LINES
    )  # a quick command prints nothing

    def update(done: int, total: int | None) -> None:
        left = (time.monotonic() - start) / done * (total - done) if done and total else 0.0
        of = f" of {total}, {duration(left)} left" if done and total else ""
        display.update(done / total if total else None, f"{what}: {done}{of}")

    with display.shown(what):
        yield update


def duration(seconds: float) -> str:
    """h:mm:ss, or m:ss below an hour."""
    minutes, s = divmod(round(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{s:02d}" if minutes >= 60 else f"{minutes}:{s:02d}"

"""How far a long command is: a bar with the time left on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 10.0  # seconds between plain lines


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with (done, total or None); it may be called often."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
        return

    start = said = time.monotonic()

    def line(done: int, total: int | None) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= EVERY:
            said = now
            left = f" of {total}, {(now - start) / done * (total - done):.0f} s left" if total and done else ""
            print(f"{what}: {done}{left}", file=sys.stderr, flush=True)

    yield line

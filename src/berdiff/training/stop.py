"""Why a run ends before its time, each in one sentence."""

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch
from safetensors import SafetensorError


class RunStopped(RuntimeError):
    """The run cannot go on; the message says why, what is safe, and what to do. Not the user's input: exit code 1."""


class Signals:
    """SIGINT and SIGTERM ask politely: the run saves and leaves after the step it is in. The second one ends it."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @contextmanager
    def watched(self) -> Iterator["Signals"]:
        if threading.current_thread() is not threading.main_thread():
            yield self  # Python lets only the main thread listen
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, frame: FrameType | None) -> None:
            self.received = signal.Signals(number)
            for each, handler in before.items():
                signal.signal(each, handler)

        for number in before:
            signal.signal(number, note)
        try:
            yield self
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


@contextmanager
def disk_errors_as_sentence(what: str, safe: Callable[[], str]) -> Iterator[None]:
    """A full disk, a file too large or a quota: RunStopped that tells what was being written and what is safe."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = error.errno if isinstance(error, OSError) else _number_in(error)
        if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise RunStopped(f"no room on the disk for {what} ({os.strerror(number)}); {safe()}") from error


def _number_in(error: SafetensorError) -> int | None:
    """safetensors hands on what the operating system said only as text: `... (os error 28)`."""
    found = re.search(r"os error (\d+)", str(error))
    return int(found[1]) if found else None


@contextmanager
def memory_errors_as_sentence(advice: Callable[[], str]) -> Iterator[None]:
    """Out of memory on the CPU or an accelerator: RunStopped with the advice."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise RunStopped(f"out of memory: {advice()}") from error
    except RuntimeError as error:
        # torch's CPU allocator has no exception class of its own
        if "not enough memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        raise RunStopped(f"out of memory: {advice()}") from error

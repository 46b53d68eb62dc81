"""Why a run does not begin or ends before its time, each in one sentence."""

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch
from lightning_fabric import Fabric
from safetensors import SafetensorError

from berdiff.errors import InputError
from berdiff.files import lock


class RunStopped(RuntimeError):
    """The run cannot continue: why, what is safe, and what to do. Not the user's input: exit code 1."""


class Signals:
    """SIGINT and SIGTERM ask politely: the run saves and leaves after the step it is in. The second one ends it."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        def note(number: int, frame: FrameType | None) -> None:
            self.received = signal.Signals(number)
            restore()

        # Python lets only the main thread listen
        main = threading.current_thread() is threading.main_thread()
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM) if main}
        try:
            yield
        finally:
            restore()


@contextmanager
def only_writer(run: Path, fabric: Fabric) -> Iterator[None]:
    """The run folder belongs to this training inside the block; InputError where another one has it.

    The first process holds the lock, and all leave together where it cannot.
    """
    refusal, held = "", None
    if fabric.is_global_zero:
        try:
            run.mkdir(parents=True, exist_ok=True)
            held = lock(run / ".lock", wait=False)
            refusal = "" if held else f"{run}: another training is at work in this folder"
        except OSError as error:
            refusal = f"{run}: cannot be written: {error.strerror or error}"
    refusal = fabric.broadcast(refusal)
    if refusal:
        raise InputError(refusal, "access") if fabric.is_global_zero else SystemExit(2)
    try:
        yield
    finally:
        if held is not None:
            (run / ".lock").unlink(missing_ok=True)
            held.close()


@contextmanager
def disk_errors_as_sentence(what: str, safe: Callable[[], str]) -> Iterator[None]:
    """A full disk, a file too large or a quota: RunStopped, with what was being written and what is safe."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        # safetensors passes on the error of the operating system only as text: `... (os error 28)`
        text = re.search(r"os error (\d+)", str(error))
        number = error.errno if isinstance(error, OSError) else int(text[1]) if text else None
        if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise RunStopped(f"no room on the disk for {what} ({os.strerror(number)}); {safe()}") from error


@contextmanager
def memory_errors_as_sentence(advice: Callable[[], str]) -> Iterator[None]:
    """Out of memory on the CPU or an accelerator: RunStopped with the advice."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # torch's CPU allocator has no exception class of its own
        kinds, words = (MemoryError, torch.OutOfMemoryError), r"not enough memory|can't allocate memory"
        if not isinstance(error, kinds) and not re.search(words, str(error)):
            raise
        raise RunStopped(f"out of memory: {advice()}") from error

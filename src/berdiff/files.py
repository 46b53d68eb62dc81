"""Files that appear whole or not at all, and locks between processes."""

import fcntl
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.part")


def _beside(path: Path) -> Path:
    """A temporary name in the folder of `path`, so that the final rename stays on one file system."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` on success, remove it on failure.

    The data is on the disk before the rename, so a power cut leaves the old file or the new one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    try:
        yield part
        to_disk(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def whole_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; rename it to `path` on success, remove it on failure.

    `path` itself must not exist: what to do with an older one is the caller's decision.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    part.mkdir()
    try:
        yield part
        os.replace(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def to_disk(path: Path) -> None:
    """Wait until the disk has it: a rename before that could survive a power cut that the data did not."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_leftover(path: Path) -> bool:
    """Whether a killed process left this unfinished."""
    return _LEFTOVER.fullmatch(path.name) is not None


def remove_leftovers(folder: Path) -> None:
    """At any depth. Only for a folder that no other process writes to now."""
    for path in filter(is_leftover, list(folder.rglob(".*.part"))):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def lock(path: Path, shared: bool = False, wait: bool = True) -> IO[str] | None:
    """The lock file, opened and locked; None where another process holds it and `wait` is False.

    The lock goes with the process that holds it, so whoever gets an exclusive one knows that no other is alive. It is
    taken again where its last holder removed the file while this process waited.
    """
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    while True:
        file = path.open("a")
        try:
            fcntl.flock(file, how)
        except BlockingIOError:
            file.close()
            return None
        if is_lock_of(file, path):
            return file
        file.close()


def is_lock_of(file: IO[str], path: Path) -> bool:
    """Whether the lock file is still the one that others would open."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))


def only_holder(file: IO[str]) -> bool:
    """Whether no other process holds the shared lock; it is exclusive from then on.

    Where another does, the lock is shared again: the system gives the old lock up even where it denies the new one.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(file, fcntl.LOCK_SH)
        return False
    return True


def share(file: IO[str]) -> None:
    """Let others in again, after `only_holder`."""
    fcntl.flock(file, fcntl.LOCK_SH)

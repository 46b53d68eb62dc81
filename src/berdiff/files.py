"""Files and folders that appear whole or not at all, and locks between processes."""

import ctypes
import fcntl
import glob
import os
import re
import shutil
import sys
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.part")


def _beside(path: Path) -> Path:
    """A temporary name in the folder of `path`, so that the final rename stays on one file system."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")


@contextmanager
def whole_file(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary path to write to; rename it to `path` on success, remove it on failure.

    The data is on the disk before the rename, so a power cut leaves the old file or the new one. What a killed process
    left of the same file goes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    handle = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    try:
        _lock_now(handle)  # it is alive
        _remove_dead(path)
        mode = os.fstat(handle).st_mode & 0o777  # as the umask says; some libraries put a private file of theirs there
        yield part
        _permit(part, mode)
        to_disk(part)
        os.replace(part, path)
    finally:
        os.close(handle)
        part.unlink(missing_ok=True)


def _remove_dead(path: Path) -> None:
    """Parts of this file whose writers are gone, and their locks with them."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????.part"):
        try:
            handle = os.open(left, os.O_RDONLY)
        except OSError:  # renamed meanwhile
            continue
        if left.is_file() and _lock_now(handle):
            left.unlink(missing_ok=True)
        os.close(handle)


def _lock_now(handle: int) -> bool:
    """Whether the lock is this process's now; False also where the file system has none."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextmanager
def whole_folder(path: str | Path) -> Generator[Path, None, None]:
    """Yield a temporary folder to fill; rename it to `path` on success, remove it on failure.

    `path` itself must not exist: what to do with an older one is the caller's decision.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(path)
    with _new_folder(path) as part:
        yield part
        _permit_all(part)
        os.replace(part, path)


@contextmanager
def replaced_folder(path: str | Path) -> Generator[Path, None, None]:
    """As `whole_folder`, on the disk before it appears; an older folder gives way to it in one step.

    Whoever opens `path`, at any time and after any kill, finds all of the old folder or all of the new one.
    """
    path = Path(path).resolve()  # the folder itself changes, not a link to it
    with _new_folder(path) as part:
        yield part
        _permit_all(part)
        settle(part)
        if path.exists():
            _exchange(part, path)
        else:
            os.replace(part, path)
        to_disk(path.parent)


@contextmanager
def _new_folder(path: Path) -> Generator[Path, None, None]:
    """A folder beside `path`; what is there under its name in the end is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = _beside(path)
    try:
        part.mkdir()
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _exchange(one: Path, other: Path) -> None:
    """Both folders change names, in one step where the system has it.

    Where it has not (some network file systems), the newer takes the place of the older in two, and a kill between
    them leaves the place empty: never half of each.
    """
    names = os.fsencode(one), os.fsencode(other)
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        at, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        done = libc.renameat2(at, names[0], at, names[1], exchange) == 0
    else:
        done = sys.platform == "darwin" and libc.renamex_np(*names, 2) == 0  # RENAME_SWAP
    if not done:
        aside = _beside(other)
        os.replace(other, aside)
        try:
            os.replace(one, other)
        except OSError:
            os.replace(aside, other)
            raise
        os.replace(aside, one)


def _permit(file: Path, mode: int) -> None:
    if file.stat().st_mode & 0o777 != mode:
        file.chmod(mode)


def _permit_all(folder: Path) -> None:
    """Files get the permissions that the umask gave their folder: some libraries make private ones."""
    mode = folder.stat().st_mode & 0o666
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            _permit(file, mode)


def settle(folder: Path) -> None:
    """Wait until the disk has every file of a folder."""
    for path in folder.rglob("*"):
        to_disk(path)
    to_disk(folder)


def remove_folder(folder: Path) -> None:
    """At once: half of it under its own name is never there. Where this is killed, a leftover stays."""
    part = _beside(folder)
    os.replace(folder, part)
    shutil.rmtree(part, ignore_errors=True)


def to_disk(path: Path) -> None:
    """Wait until the disk has it: a rename before that could survive a power cut that the data did not."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_leftovers(folder: Path, deep: bool = True) -> None:
    """What killed processes left unfinished, at any depth or only beside each other. Only for a folder that no other
    process writes to now."""
    found = list(folder.rglob(".*.part") if deep else folder.glob(".*.part"))
    for path in (path for path in found if _LEFTOVER.fullmatch(path.name)):
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
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:  # removed
            pass
        file.close()


def share(file: IO[str]) -> None:
    """Let others in who want a shared lock too."""
    fcntl.flock(file, fcntl.LOCK_SH)


def only_holder(file: IO[str]) -> bool:
    """Whether no other process holds the shared lock: then it is exclusive, and else it is lost."""
    return _lock_now(file.fileno())

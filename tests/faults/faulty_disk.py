"""A disk that fails: in this process, from the n-th call that changes it, or at it alone."""

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from typing import Any

from berdiff import files
from berdiff.methods import folder as model_folder
from berdiff.training import checkpoint

FAULTS = ("full", "broken", "killed")
"""full: no room from the n-th call on; broken: the n-th call alone is an I/O error; killed: as by a power cut"""
NOT_OURS = ("tensorboard", os.sep + "dev" + os.sep, ".log")  # TensorBoard writes in a thread, when it likes


class FaultyDisk:
    """Counts the calls, and fails as it was told. For a process of its own: nothing is put back."""

    def __init__(self, fault: str | None = None, at: int = -1) -> None:
        self.fault, self.at, self.calls = fault, at, 0

    def install(self) -> "FaultyDisk":
        for name in ("fsync", "replace", "rename", "mkdir"):
            setattr(os, name, self._failing(getattr(os, name)))
        os.open = self._opening(os.open)
        builtins.open = io.open = self._wrapping(io.open)
        files._exchange = self._failing(files._exchange)
        # written by Rust, past Python's own files
        model_folder.save_file = checkpoint.save_file = self._failing(checkpoint.save_file)
        return self

    def count(self, where: object = "", half: Callable[[], Any] = lambda: None) -> None:
        """One call; `half` does what a call that fails may have done already."""
        if any(part in str(where) for part in NOT_OURS):
            return
        number, self.calls = self.calls, self.calls + 1
        if self.fault is None or number < self.at or (number > self.at and self.fault != "full"):
            return
        half()
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        code = errno.ENOSPC if self.fault == "full" else errno.EIO
        raise OSError(code, os.strerror(code), str(where))

    def _failing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.count(args[-1] if args and isinstance(args[-1], str | os.PathLike) else "")
            return call(*args, **kwargs)

        return wrapped

    def _opening(self, call: Callable[..., int]) -> Callable[..., int]:
        def wrapped(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & os.O_CREAT:
                self.count(path)
            return call(path, flags, *args, **kwargs)

        return wrapped

    def _wrapping(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not set(mode) & set("wax+") or isinstance(file, int):
                return call(file, mode, *args, **kwargs)
            self.count(file)
            return _File(call(file, mode, *args, **kwargs), self, file)

        return wrapped


class _File:
    """An open file whose writes count; half of what it was to write is there when it fails."""

    def __init__(self, file: Any, disk: FaultyDisk, path: object) -> None:
        self._file, self._disk, self._path = file, disk, path

    def write(self, data: Any) -> int:
        def half() -> None:
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._disk.count(self._path, half)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Any:
        return iter(self._file)

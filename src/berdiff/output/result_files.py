"""The files of finished results, read back and added to: of a folder, or of an address on an object store.

Names are relative, with `/` between their parts.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.files import lock, whole_file
from berdiff.remote import speaking

DONE = "done.json"


class LocalFiles:
    def __init__(self, root: Path) -> None:
        self.root = root

    def address(self, name: str) -> str:
        """As it is called in a message."""
        return str(self.root / name)

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The contents of those that are there."""
        paths = {name: self.root / name for name in names}
        return {name: path.read_bytes() for name, path in paths.items() if path.is_file()}

    def sizes(self, folder: str) -> dict[str, int]:
        """Of the files in a folder of results, in bytes, by their names from there."""
        root = self.root / folder
        return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}

    def write(self, name: str, content: bytes) -> None:
        """Whole, or not at all."""
        with whole_file(self.root / name) as part:
            part.write_bytes(content)

    def results(self) -> list[str]:
        """The folders of all results, in the order of their names; what is in them is not looked at."""
        return [folder.relative_to(self.root).as_posix() for folder in _results_in(self.root)]

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """One process at a time."""
        held = lock(self.root / name)
        try:
            yield
        finally:
            (self.root / name).unlink(missing_ok=True)
            if held is not None:
                held.close()


class RemoteFiles:
    """What fails is an OSError, as on a disk."""

    def __init__(self, fs: Any, root: str, address: str) -> None:
        self.fs, self.root, self._address = fs, root, address

    def address(self, name: str) -> str:
        return f"{self._address}/{name}"

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """Many at once: each by itself would wait for the store every time."""
        paths = {f"{self.root}/{name}": name for name in names}
        with self.reaching():
            found = self.fs.cat(list(paths), on_error="return") if paths else {}
            for content in found.values():
                if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                    raise content
        return {paths[path]: content for path, content in found.items() if isinstance(content, bytes)}

    def sizes(self, folder: str) -> dict[str, int]:
        root = f"{self.root}/{folder}"
        with self.reaching():
            there = self.fs.find(root, detail=True)
        return {path.removeprefix(f"{root}/"): about["size"] for path, about in there.items()}

    def write(self, name: str, content: bytes) -> None:
        with self.reaching():
            self.fs.pipe_file(f"{self.root}/{name}", content)

    def results(self) -> list[str]:
        with self.reaching():
            paths = self.fs.find(self.root)
        inside = (path.removeprefix(f"{self.root}/").split("/") for path in paths)
        found = sorted(parts[:-1] for parts in inside if parts[-1] == DONE)
        outermost: list[list[str]] = []
        for parts in found:
            if not outermost or parts[: len(outermost[-1])] != outermost[-1]:
                outermost.append(parts)
        return ["/".join(parts) for parts in outermost if not any(part.startswith(".") for part in parts)]

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """An object store has no locks: of two processes the last one's files stay, which are whole."""
        yield

    @contextmanager
    def reaching(self) -> Iterator[None]:
        try:
            with speaking(self._address, "an address that can be written"):
                yield
        except InputError as error:
            raise OSError(str(error).partition(", found ")[2]) from error


ResultFiles = LocalFiles | RemoteFiles


def _results_in(folder: Path) -> Iterator[Path]:
    if (folder / DONE).is_file():
        yield folder
        return
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    for name in names:
        if not name.startswith("."):
            yield from _results_in(folder / name)

"""The files of a source folder, none of which may lead out of it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from berdiff.data.describe import expect

Key = TypeVar("Key")
# how people call the folders of a split
SPLIT_FOLDERS = {"training": "train", "train": "train", "validation": "val", "valid": "val", "val": "val"}
SPLIT_FOLDERS |= {"testing": "test", "test": "test"}


def expect_folder(path: Path, what: str = "a folder") -> None:
    expect(path.is_dir(), path, what, "a file" if path.exists() else "nothing")


def expect_file(path: Path, what: str) -> None:
    expect(path.is_file(), path, what, "a folder" if path.is_dir() else "no such file")


def inside(root: Path, path: Path) -> Path:
    """`path`, if it lies in `root` when all links and `..` are followed."""
    end = path.resolve()
    expect(end.is_relative_to(root.resolve()), path, f"a path inside {root}", f"one that leads to {end}")
    return path


def add_once(files: dict[Key, Path], key: Key, path: Path) -> None:
    expect(key not in files, path, "each case once", f"it also as {files.get(key)}")
    files[key] = path


def files_under(folder: Path, root: Path | None = None) -> Iterator[Path]:
    """All files under a folder in a fixed order, without hidden ones; a link must lead to a place inside `root`."""
    root = root or folder
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            inside(root, Path(parent, name))
        for name in sorted(names):
            if not name.startswith("."):
                yield inside(root, Path(parent, name))

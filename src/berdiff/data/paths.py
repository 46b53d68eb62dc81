"""The files of a source folder, none of which may lead out of it."""

import os
from collections.abc import Iterator
from pathlib import Path

from berdiff.errors import InputError

# how people call the folders of a split
SPLIT_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


def inside(root: Path, path: Path) -> Path:
    """`path`, if it lies in `root` when all links and `..` are followed."""
    if not path.resolve().is_relative_to(root.resolve()):
        raise InputError(f"{path}: expected a path inside {root}, found one that leads to {path.resolve()}")
    return path


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

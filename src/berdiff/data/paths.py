"""The files of a source folder: only regular files that lie in it are opened, whatever else is there is named."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from berdiff.data.describe import expect
from berdiff.errors import InputError, first_line

Key = TypeVar("Key")
# how people call the folders of a split
SPLIT_FOLDERS = {"training": "train", "train": "train", "validation": "val", "valid": "val", "val": "val"}
SPLIT_FOLDERS |= {"testing": "test", "test": "test"}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

_CLOSED = "may not be read"


def fault_of(path: Path) -> str:
    """What is wrong with something that should be a regular file that can be read, in words; "" where nothing is."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "a link to nothing" if path.is_symlink() else "no such file"
    except (OSError, ValueError) as error:  # a loop of links, a closed folder, a name too long, a name with a 0 in it
        return _reason(error)
    if not stat.S_ISREG(mode):
        return _KINDS.get(stat.S_IFMT(mode), "no regular file")
    return "" if os.access(path, os.R_OK) else f"one that {_CLOSED} (permission denied)"


def expect_folder(path: Path, what: str = "a folder") -> None:
    found = fault_of(path) or "a file"
    code = "missing" if found == "no such file" else "kind"
    expect(found == "a folder", path, what, "nothing" if code == "missing" else found, code)
    expect(os.access(path, os.R_OK | os.X_OK), path, what, f"one that {_CLOSED} (permission denied)", "access")


def expect_file(path: Path, what: str) -> None:
    found = fault_of(path)
    code = "missing" if found in ("no such file", "a link to nothing") else "access" if _CLOSED in found else "kind"
    expect(not found, path, what, found, code)


def exists(path: Path) -> bool:
    """Whether there is anything, of whatever kind; a name that no file system takes names nothing."""
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False


def inside(root: Path, path: Path) -> Path:
    """`path`, if it lies in `root` when all links and `..` are followed."""
    try:
        end, root_end = path.resolve(), root.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{path}: expected a path inside {root}, found {_reason(error)}", "access") from error
    expect(end.is_relative_to(root_end), path, f"a path inside {root}", f"one that leads to {end}", "place")
    return path


def add_once(files: dict[Key, Path], key: Key, path: Path) -> None:
    expect(key not in files, path, "each case once", f"another, {files.get(key)}", "name")
    files[key] = path


def files_under(folder: Path, root: Path | None = None) -> Iterator[Path]:
    """All files under a folder in a fixed order, without hidden ones; anything that is not a file inside `root` is
    refused."""
    for path, fault in list_files(folder, root):
        if fault:
            raise InputError(fault, "access")
        yield path


def list_files(folder: Path, root: Path | None = None) -> Iterator[tuple[Path, str]]:
    """The same as (path, ""), or (path, what is wrong with it) instead of an error."""
    root = root or folder
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: (_is_folder(entry), entry.name))
    except OSError as error:
        yield folder, f"{folder}: expected a folder that can be listed, found {_reason(error)}"
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        path = folder / entry.name
        if fault := _entry_fault(path, entry, root):
            yield path, fault
        elif not _is_folder(entry):
            yield path, ""
        elif not entry.is_symlink():  # what a link inside `root` leads to is found at its own place
            yield from list_files(path, root)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False


def _entry_fault(path: Path, entry: os.DirEntry[str], root: Path) -> str:
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        return f"{path}: expected a name in UTF-8, found other bytes in it"
    if entry.is_file(follow_symlinks=False) and os.access(path, os.R_OK):  # the usual case, without another look
        return ""
    found = fault_of(path)
    if found not in ("", "a folder"):
        return f"{path}: expected a regular file or a folder, found {found}"
    if entry.is_symlink():
        try:
            inside(root, path)
        except InputError as error:
            return str(error)
    return ""


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return first_line(error)

"""HDF5 files of strangers: no link is followed out of the file, and nothing larger than it may be is read."""

from math import prod
from pathlib import Path

import h5py
import numpy as np

from berdiff.data.describe import decoding, expect
from berdiff.data.limits import check_bytes, check_size
from berdiff.data.paths import expect_file
from berdiff.errors import InputError

MAX_IMAGES = 2**24  # in one dataset: its names are held in memory, and a header may claim any number
BLOCK = 2**22  # bytes of a dataset that are read at a time: larger ones leave the processor's cache
MAX_LINKS = 16  # from one soft link to the next
Found = h5py.Group | h5py.Dataset | None


def open_hdf5(path: Path) -> h5py.File:
    expect_file(path, "an HDF5 file")
    with decoding(path, "a whole HDF5 file"):
        return h5py.File(path, "r")


def find(file: h5py.File, name: str, path: Path, links: int = 0) -> Found:
    """What is called so, or None. Every step of the way is looked at before it is taken: h5py alone would open the
    file that an external link names, be it a FIFO or on another machine."""
    expect(links <= MAX_LINKS, f"{path}: {name}", "data in this file", "links in a circle", "place")
    place: h5py.Group = file  # its root
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for number, part in enumerate(parts):
        link = place.get(part, getlink=True)
        if link is None:
            return None
        if isinstance(link, h5py.ExternalLink):
            raise InputError(f"{path}: {name}: expected data in this file, found a link to {link.filename}", "place")
        if isinstance(link, h5py.SoftLink):
            start = "" if link.path.startswith("/") else f"{place.name}/"
            return find(file, "/".join([f"{start}{link.path}", *parts[number + 1 :]]), path, links + 1)
        found = place[part]
        if number == len(parts) - 1:
            return found if isinstance(found, h5py.Group | h5py.Dataset) else None
        if not isinstance(found, h5py.Group):
            return None
        place = found
    return place


def named_dataset(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """A dataset whose bytes are in this file, with chunks that fit into memory."""
    with decoding(f"{path}: {name}", "a dataset", "a damaged one"):
        found = find(file, name, path)
        if not isinstance(found, h5py.Dataset):
            raise InputError(f"{path}: {name} is {'missing' if found is None else 'a group, no dataset'}", "missing")
        here = not found.external and not found.is_virtual
        expect(here, f"{path}: {name}", "data in this file", "external storage", "place")
        expect(found.shape is not None, f"{path}: {name}", "an array", "an empty dataset", "kind")
        length = found.shape[0] if found.shape else 1
        expect(length <= MAX_IMAGES, f"{path}: {name}", f"at most {MAX_IMAGES} images", length, "limit")
        check_size(f"{path}: {name}", found.shape[1:], found.dtype.itemsize)
        if found.chunks:
            check_size(f"{path}: {name}, a chunk", found.chunks, found.dtype.itemsize)
    return found


def rows_per_block(*datasets: h5py.Dataset) -> int:
    """How many rows are read at a time."""
    return max(1, BLOCK // max(prod(part.shape[1:]) * part.dtype.itemsize for part in datasets))


def rows_of(dataset: h5py.Dataset, where: object, rows: slice = slice(None)) -> np.ndarray:
    """The values of some rows."""
    count = len(range(*rows.indices(len(dataset))))
    check_bytes(where, count * prod(dataset.shape[1:]) * dataset.dtype.itemsize)
    with decoding(where, "whole data", "damaged data"):
        return dataset[rows]

"""Write the shards of a Zarr array, and read single cases from them wherever fsspec reaches: 20 to 35 times as fast as
zarr, which reads a shard's index again for every case. A shard file holds the compressed cases, then (offset, length)
pairs of little-endian uint64, then their CRC-32C, by the Zarr v3 sharding specification."""

from math import prod
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import zstd

from berdiff.data.describe import check, decoding, expect, refusing
from berdiff.data.paths import expect_file

LEVEL = 1  # of Zstandard: higher ones gain little on noise and on masks
MOST_CASES = 256  # in one file: 54 files per array for all of LIDC
SHARD_BYTES = 2**28  # before they are packed
_ABSENT = np.iinfo(np.uint64).max  # the offset of a chunk that was never written


def shard_path(array: str, shard: int, dimensions: int) -> str:
    """Zarr's name for a shard: one index per dimension, and only the first dimension is cut."""
    return "/".join([array, "c", str(shard), *["0"] * (dimensions - 1)])


def cases_per_shard(nbytes: int) -> int:
    """How many cases of so many bytes, image and masks, go into one file: memory follows bytes, not cases."""
    return max(1, min(MOST_CASES, SHARD_BYTES // nbytes))


def packed(case: np.ndarray) -> bytes:
    return zstd.compress(np.ascontiguousarray(case), LEVEL)


def write_shard(path: Path, chunks: list[bytes], shard: int) -> None:
    """Up to `shard` cases, each `packed`, as one file."""
    lengths = np.array([len(chunk) for chunk in chunks], np.uint64)
    table = np.full((shard, 2), _ABSENT, "<u8")
    table[: len(chunks), 0] = np.cumsum(lengths) - lengths
    table[: len(chunks), 1] = lengths
    index = table.tobytes()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join([*chunks, index, google_crc32c.value(index).to_bytes(4, "little")]))


class ShardedArray:
    """Cases of one `shape` each, one per chunk and `shard` of them per file, compressed with Zstandard."""

    def __init__(self, fs: Any, root: str, name: str, shape: tuple[int, ...], dtype: str, shard: int):
        self.fs, self.root, self.name, self.shape, self.shard = fs, root, name, shape, shard
        self.dtype = np.dtype(dtype).newbyteorder("<")
        nbytes = prod(shape) * self.dtype.itemsize
        self._longest = nbytes + nbytes // 128 + 1024  # of a case that cannot be packed, with room
        self._tables: dict[int, np.ndarray] = {}  # shard -> (shard, 2) offset and length: 16 bytes per case

    def read(self, indices: np.ndarray) -> np.ndarray:
        """Cases at `indices`, in that order: (len(indices), ...)."""
        paths, starts, ends = [], [], []
        for index in indices:
            shard, within = divmod(int(index), self.shard)
            offset, length = self._table(shard)[within].tolist()
            paths.append(self._path(shard))
            check(offset != _ABSENT, f"{paths[-1]}: case {index} is missing from this shard", "missing")
            fits = length <= self._longest and offset <= 2**62
            expect(fits, paths[-1], f"at most {self._longest} packed bytes for case {index}", length, "damaged")
            starts.append(offset)
            ends.append(offset + length)
        with decoding(f"{self.root}/{self.name}", "whole shards", "a damaged one"):
            out = np.zeros((len(indices), *self.shape), self.dtype)
            chunks = self.fs.cat_ranges(paths, starts, ends, on_error="raise")
            for case, chunk in zip(out, chunks, strict=True):
                zstd.decompress(chunk, case)
        return out

    def _path(self, shard: int) -> str:
        return f"{self.root}/{shard_path(self.name, shard, 1 + len(self.shape))}"

    def _table(self, shard: int) -> np.ndarray:
        if shard not in self._tables:
            path, nbytes = self._path(shard), 16 * self.shard + 4
            if "file" in self.fs.protocol:
                expect_file(Path(path), "a shard of the store")
            with refusing((OSError, ValueError), path, "a shard of the store", "none that can be read"):
                raw = self.fs.cat_file(path, start=-nbytes)
            expect(len(raw) == nbytes, path, f"a shard with an index of {nbytes} bytes", len(raw), "damaged")
            whole = google_crc32c.value(raw[:-4]) == int.from_bytes(raw[-4:], "little")
            expect(whole, path, "a shard with a whole index", "one with another CRC-32C", "damaged")
            self._tables[shard] = np.frombuffer(raw[:-4], "<u8").reshape(self.shard, 2)
        return self._tables[shard]

"""The prepared store: a Zarr group of images and masks, a case table, and a manifest; in a folder or an object store.

images/      (N, C, *S)      uint8 or float32, one case per chunk, `shard` cases per file
masks/       (N, R, K, *S)   uint8 of 0 and 1; raters beyond a case's own count are zero
cases.csv    the case table
manifest.json

S are the spatial axes: (H, W) of slices, (Z, H, W) of volumes.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from berdiff import __version__
from berdiff.data import manifest as manifests
from berdiff.data import table as tables
from berdiff.data.case import SPLITS, Progress
from berdiff.data.describe import by, expect
from berdiff.data.limits import MAX_TEXT, check_size
from berdiff.data.manifest import Manifest
from berdiff.data.shards import ShardedArray
from berdiff.data.table import CaseTable
from berdiff.errors import InputError
from berdiff.remote import filesystem, speaking


class Store:
    """A store opened for reading. It may be sent to other processes: each opens the files for itself."""

    def __init__(self, address: str, manifest: Manifest, cases: CaseTable):
        self.address, self.manifest, self.cases = address, manifest, cases
        self.input_spec = spec = manifest.input_spec  # what its images look like, and those a model of them must see
        self.channels, self.targets, self.size, self.notes = spec.channels, spec.targets, spec.size, spec.notes
        self.raters = manifest.raters  # the largest number that a case has; `cases.raters` has the count of each
        self._opened: tuple[int, ShardedArray, ShardedArray] | None = None

    @classmethod
    def open(cls, address: str | Path) -> "Store":
        """Open the store at an address and check that its parts belong together."""
        address = str(address)
        fs, root = filesystem(address)
        manifest = manifests.parse(_text(fs, root, manifests.NAME, address), address)
        table = f"{address}/{tables.NAME}"
        cases = tables.parse_table(_text(fs, root, tables.NAME, address), table)
        count = manifest.counts["all"]["cases"]
        expect(len(cases) == count, table, f"{count} cases", len(cases), "damaged")
        spec = manifest.input_spec
        check_size(address, (len(spec.channels), *spec.size), np.dtype(manifest.dtype).itemsize)
        check_size(address, (manifest.raters, len(spec.targets), *spec.size), 1)
        return cls(address, manifest, cases)

    def __repr__(self) -> str:
        counts = self.manifest.counts
        cases = ", ".join(f"{name} {counts[name]['cases']}" for name in SPLITS if name in counts)
        raters = "one rater" if self.raters == 1 else f"up to {self.raters} raters"
        lines = [f"Store {self.address}: {len(self)} cases of {counts['all']['patients']} patients ({cases})"]
        lines.append(f"  {by(self.size)} pixels, channels {', '.join(self.channels)}")
        lines.append(f"  targets {', '.join(self.targets)}, {raters}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def __len__(self) -> int:
        return len(self.cases)

    def indices(self, split: str) -> np.ndarray:
        """Where the cases of a split are; "all" means every case."""
        if split == "all":
            return np.arange(len(self))
        expect(split in SPLITS, "split", f"one of {', '.join(SPLITS)} or all", f"{split!r}")
        return np.flatnonzero(self.cases.split == split)

    def read(self, indices: np.ndarray | list[int]) -> tuple[np.ndarray, np.ndarray]:
        """images (N, C, *S) float32 in [0, 1] and masks (N, R, K, *S) uint8 of the cases at `indices`."""
        images, masks = self.read_stored(indices)
        return as_unit(images), masks

    def read_stored(self, indices: np.ndarray | list[int]) -> tuple[np.ndarray, np.ndarray]:
        """As `read`, but the images as they are stored: uint8 or float32."""
        return self._read(indices, 0), self.read_masks(indices)

    def read_masks(self, indices: np.ndarray | list[int]) -> np.ndarray:
        """masks (N, R, K, *S) uint8 of the cases at `indices`, without their images."""
        return self._read(indices, 1)

    def _read(self, indices: np.ndarray | list[int], array: int) -> np.ndarray:
        indices = np.asarray(indices, dtype=np.int64).reshape(-1)
        if ((indices < 0) | (indices >= len(self))).any():
            raise IndexError(f"a case outside 0..{len(self) - 1}")
        with speaking(self.address, "a prepared store"):
            return self._arrays()[array].read(indices)

    def _arrays(self) -> tuple[ShardedArray, ShardedArray]:
        """Opened once per process: file handles and network sessions do not survive a fork."""
        if self._opened is None or self._opened[0] != os.getpid():
            fs, root = filesystem(self.address)
            dtype, shard = self.manifest.dtype, self.manifest.shard
            images = ShardedArray(fs, root, "images", (len(self.channels), *self.size), dtype, shard)
            masks = ShardedArray(fs, root, "masks", (self.raters, len(self.targets), *self.size), "uint8", shard)
            self._opened = os.getpid(), images, masks
        return self._opened[1:]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}


def as_unit(images: np.ndarray) -> np.ndarray:
    """Images as they are stored, uint8 or float32 in [0, 1] -> float32 in [0, 1]."""
    return images.astype(np.float32) / np.float32(255) if images.dtype == np.uint8 else images


def _text(fs: Any, root: str, name: str, address: str) -> str:
    try:
        with speaking(address, "a prepared store", missing=f"no readable {name} in it"):
            about = fs.info(f"{root}/{name}")  # not a FIFO, nor so large that it fills the memory
            place, size = f"{address}/{name}", about["size"] or 0
            expect(about["type"] == "file", place, "a file", about["type"], "kind")
            expect(size <= MAX_TEXT, place, f"at most {MAX_TEXT} bytes", size, "limit")
            return fs.cat_file(f"{root}/{name}").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{address}/{name}: expected UTF-8 text, found other bytes", "damaged") from error


def open_store(address: str | Path | None = None, progress: Progress = lambda done, total: None) -> Store:
    """The store at `address`; None: the embedded one, made on first use in BERDIFF_CACHE or ~/.cache/berdiff."""
    if address is not None:
        return Store.open(address)
    from berdiff.data.prepare import prepare_embedded  # writing needs zarr; reading does not

    return Store.open(prepare_embedded(cache_folder(), progress))


def cache_folder() -> Path:
    """Where data that is made on first use is kept."""
    return Path(os.environ.get("BERDIFF_CACHE") or Path.home() / ".cache" / "berdiff")


def embedded_path(cache: Path) -> Path:
    """Of the embedded data, whether it has been made or not."""
    return cache / f"lidc-readers-{__version__}-{manifests.FORMAT_VERSION}.zarr"

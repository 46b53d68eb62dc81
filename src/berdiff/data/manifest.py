"""The manifest of a store: where the data came from, what it holds, and a checksum of each of its files.

It is the last file written, so a store without one was never finished.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from typing import Any

from berdiff.errors import InputError

FORMAT = "berdiff-store"
FORMAT_VERSION = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    source: str  # the layout it was prepared from, e.g. "lidc-hdf5"
    options: dict[str, Any]  # the source's options, as given
    path: str  # the name (not the whole path) of the file or folder it was prepared from
    channels: list[str]
    targets: list[str]
    raters: int  # the most readers any case has; the others' masks are padded with zeros
    size: list[int]  # (H, W)
    dtype: str  # of the images: "uint8" or "float32"
    shard: int  # cases in one file
    notes: list[str]
    split: dict[str, Any]  # {"by": "source"} or {"by": "patient", "seed": ..., "val": ..., "test": ...}
    counts: dict[str, dict[str, int]]  # split (and "all") -> {"cases": n, "patients": m}
    files: dict[str, str]  # path inside the store -> SHA-256
    berdiff: str  # the version that wrote it
    format: str = FORMAT
    version: int = FORMAT_VERSION

    @property
    def cases(self) -> int:
        return self.counts["all"]["cases"]

    def text(self) -> str:
        """The file, byte for byte: the fields, and a checksum over them."""
        values = asdict(self)
        return json.dumps({**values, "checksum": _digest(values)}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def parse(text: str, address: str) -> Manifest:
    """The manifest of the store at `address`; every field is checked, since the file may come from anywhere."""
    what = f"{address}/{NAME}"
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what}: expected a JSON manifest, found something else ({error})") from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise InputError(f"{what}: expected the manifest of a berdiff store, found something else")
    if values.get("version") != FORMAT_VERSION:
        found = values.get("version")
        raise InputError(f"{what}: expected format version {FORMAT_VERSION}, found {found}; prepare the store again")
    checksum = values.pop("checksum", None)
    names = {field.name for field in fields(Manifest)}
    if set(values) != names:
        odd = ", ".join(sorted(set(values) ^ names))
        raise InputError(f"{what}: expected exactly the fields of format {FORMAT_VERSION}, found a difference in {odd}")
    if checksum != _digest(values):
        raise InputError(f"{what}: expected the checksum {_digest(values)}, found {checksum}; the file was altered")
    manifest = Manifest(**values)
    _check(manifest, what)
    return manifest


def _check(manifest: Manifest, what: str) -> None:
    """A manifest with a right checksum can still be a hostile one: sizes and paths must make sense."""
    numbers = [manifest.raters, manifest.shard, len(manifest.channels), len(manifest.targets), *manifest.size]
    if len(manifest.size) != 2 or not all(isinstance(n, int) and 0 < n < 2**20 for n in numbers):
        raise InputError(f"{what}: expected positive sizes, found {numbers}")
    if manifest.dtype not in ("uint8", "float32"):
        raise InputError(f"{what}: expected images of uint8 or float32, found {manifest.dtype}")
    if (
        not all(set(count) == {"cases", "patients"} for count in manifest.counts.values())
        or "all" not in manifest.counts
    ):
        raise InputError(f"{what}: expected counts of cases and patients, found {manifest.counts}")
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or "://" in name:
            raise InputError(f"{what}: expected files inside the store, found {name!r}, which leaves it")


def _digest(values: dict[str, Any]) -> str:
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()

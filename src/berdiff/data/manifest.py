"""The manifest of a store: where the data came from, what it holds, and checksums. It is written last."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from annotated_types import Ge, Lt

from berdiff import schema
from berdiff.data.describe import expect, refuse_older
from berdiff.data.input_spec import InputSpec
from berdiff.data.table import Counts
from berdiff.errors import InputError

FORMAT = "berdiff-store"
FORMAT_VERSION = 2
NAME = "manifest.json"


@dataclass(frozen=True)
class Manifest(schema.Settings):
    input_spec: InputSpec
    options: dict[str, Any]  # the source's options, as given
    path: str  # the name (not the whole path) of the file or folder it was prepared from
    raters: Annotated[int, Ge(1), Lt(2**20)]  # the largest number that a case has; masks of others: zeros
    dtype: Literal["uint8", "float32"]  # of the images
    shard: Annotated[int, Ge(1), Lt(2**20)]  # cases in one file
    split: dict[str, Any]  # {"by": "source"} or {"by": "patient", "seed": ..., "val": ..., "test": ...}
    counts: dict[str, Counts]  # split (and "all") -> {"cases": n, "patients": m}
    files: dict[str, str]  # path inside the store -> SHA-256
    berdiff: str  # the version that wrote it
    format: Literal["berdiff-store"] = FORMAT
    version: Literal[2] = FORMAT_VERSION

    @property
    def source(self) -> str:
        """The layout it was prepared from, e.g. "lidc-hdf5"."""
        return self.input_spec.source

    def text(self) -> str:
        """The file, byte for byte: the fields, and a checksum over them."""
        values = schema.plain(self)
        if self.input_spec.spacing is None:  # as in the stores of 0.2.0, to the byte
            del values["input_spec"]["spacing"]
        return canonical({**values, "checksum": checksum(values)})

    def check(self) -> None:
        whole = "all" in self.counts and all(len(count) == 2 for count in self.counts.values())
        expect(whole, "counts", "cases and patients of each split and of all", self.counts)
        for name in self.files:
            path = PurePosixPath(name)
            leaves = path.is_absolute() or ".." in path.parts or "\\" in name or "://" in name
            expect(not leaves, "files", "files inside the store", f"{name!r}, which leaves it", "place")


def canonical(values: dict[str, Any]) -> str:
    """The one text that a manifest with these values has, in any format."""
    return json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def parse(text: str, address: str) -> Manifest:
    """The manifest of the store at `address`; every field is checked, since the file may come from anywhere."""
    what = f"{address}/{NAME}"
    values = schema.loads(text, what, "a manifest")
    ours = isinstance(values, dict) and values.get("format") == FORMAT
    expect(ours, what, "the manifest of a berdiff store", "something else", "kind")
    refuse_older(values, "version", FORMAT_VERSION, what)
    version, found = values.get("version"), values.pop("checksum", None)
    expect(version == FORMAT_VERSION, what, f"format version {FORMAT_VERSION}", version, "version")
    expected = checksum(values)
    expect(found == expected, what, f"the checksum {expected}", f"{found}; the file was altered", "changed")
    try:
        return schema.parse(Manifest, values, lambda place: place)
    except InputError as error:
        raise InputError(f"{what}: expected the fields of format {version}; {error}", "damaged") from error


def checksum(values: dict[str, Any]) -> str:
    compact = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(compact.encode()).hexdigest()

"""What every source promises: cases that a store keeps, the same each time, and one sentence for bad files."""
# pyright: reportUnnecessaryIsInstance=false

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np

from berdiff import schema
from berdiff.data.case import SPLITS, Case, Reading
from berdiff.data.prepare import prepare
from berdiff.data.sources import find_source, purposes
from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.testing.contract import Contract, expect

MOST = 4  # files that are damaged, evenly spread over the folder


@dataclass(frozen=True)
class Source:
    name: str
    path: Path | None
    options: Any

    @property
    def module(self) -> ModuleType:
        return find_source(self.name)

    def read(self, path: Path | None = None) -> tuple[Reading, list[Case]]:
        reading: Reading = self.module.read(path or self.path, self.options)
        return reading, list(reading.cases)


contract = Contract[Source]()


def check_source(source: str, path: Path | str | None, options: Any = None) -> None:
    """ContractError unless a source keeps the promises of every source.

    `path`: a small data set in its layout (None for a source that reads no files); it is copied, damaged and read.
    """
    path = Path(path) if path is not None else None
    contract.run(f"source {source}", Source(source, path, options or find_source(source).Options()))


@contract
def its_options_are_settings_with_defaults(source: Source) -> None:
    kind = source.module.Options
    expect(is_dataclass(kind), "Options is no dataclass")
    expect(schema.check(kind(), kind, str) == kind(), "the defaults of Options do not survive JSON")
    expect(purposes()[source.name], "no line for the list of sources")


@contract
def its_cases_are_what_the_reading_says(source: Source) -> None:
    reading, cases = source.read()
    expect(isinstance(reading.cases, Iterator), "cases do not come one at a time")
    expect(reading.total in (None, len(cases)), f"{reading.total} cases are said, {len(cases)} come")
    expect(cases, "no cases come")
    most = max(len(case.masks) for case in cases)
    expect(most <= reading.raters, f"{reading.raters} raters are said, {most} come")
    for case in cases:
        shape = (len(reading.channels), *reading.size)
        expect(case.image.shape == shape, f"{case.name}: an image of {case.image.shape}, not {shape}")
        expect(case.image.dtype == reading.dtype, f"{case.name}: an image of {case.image.dtype}, not {reading.dtype}")
        expect(case.masks.shape[1:] == (len(reading.targets), *reading.size), f"{case.name}: {case.masks.shape}")
        expect(case.split in ("", *SPLITS), f"{case.name}: the split {case.split!r}")


@contract
def it_reads_the_same_twice(source: Source) -> None:
    for one, two in zip(source.read()[1], source.read()[1], strict=True):
        for field in fields(Case):
            a, b = getattr(one, field.name), getattr(two, field.name)
            expect(np.array_equal(a, b, equal_nan=isinstance(a, tuple)), f"{field.name} of {one.name} differs")


@contract
def a_store_keeps_every_case(source: Source) -> None:
    """It passes every check of `data prepare` on the way."""
    reading, cases = source.read()
    with TemporaryDirectory() as place:
        prepare(source.name, source.path, Path(place) / "store", source.options)
        store = Store.open(Path(place) / "store")
        images, masks = store.read_stored(np.arange(len(cases)))
        expect(store.cases.case.tolist() == [case.name for case in cases], "the names of its cases are others")
        for case, image, mask in zip(cases, images, masks, strict=True):
            expect(np.array_equal(image, case.image), f"the image of {case.name} differs")
            expect(np.array_equal(mask[: len(case.masks)], case.masks), f"the masks of {case.name} differ")
        spec = store.input_spec
        expect(
            (spec.channels, spec.targets) == (reading.channels, reading.targets), "the names of the store are others"
        )
        expect(
            (spec.intensity, spec.source) == (reading.intensity, source.name), "the store has another intensity rule"
        )


@contract
def a_path_without_data_is_one_sentence(source: Source) -> None:
    if source.path is None:
        return
    with TemporaryDirectory() as place:
        empty, text = Path(place) / "empty", Path(place) / "file.txt"
        empty.mkdir()
        text.write_text("no data")
        for path in (empty, text, Path(place) / "missing"):
            _one_sentence(lambda path=path: source.read(path), path.name, path)


@contract
def a_damaged_file_is_one_sentence(source: Source) -> None:
    """Cut in half, empty, or of other bytes: each is refused, or read where the source leaves that file aside."""
    if source.path is None:
        return
    with TemporaryDirectory() as place:
        copy = Path(place) / source.path.name
        (shutil.copytree if source.path.is_dir() else shutil.copy)(source.path, copy)
        files = sorted(file for file in copy.rglob("*") if file.is_file()) if copy.is_dir() else [copy]
        refused = 0
        for file in files[:: max(1, len(files) // MOST)]:
            good = file.read_bytes()
            for how, bad in {"cut": good[: len(good) // 2], "empty": b"", "other": b"other bytes " * 9}.items():
                file.write_bytes(bad)
                refused += _one_sentence(lambda: source.read(copy), f"{file.name}, {how}", None)
            file.write_bytes(good)
        expect(refused, f"none of {len(files)} damaged files is refused")


def _one_sentence(read: Callable[[], object], what: str, named: Path | None) -> bool:
    """Whether it is refused, and then in one printable line that names the path; no other error leaves a source."""
    try:
        read()
    except InputError as error:
        expect(str(error).isprintable(), f"{what}: the sentence is not one line")
        expect(named is None or str(named) in str(error), f"{what}: the sentence does not name it: {error}")
        return True
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} ({error}) and no InputError") from error
    expect(named is None, f"{what} is accepted")
    return False

"""What every output format promises: whole files, the same each time, and nothing of the patient if asked."""
# pyright: reportUnknownMemberType=false

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from berdiff.inference.result import Result
from berdiff.output.exports import write
from berdiff.output.formats import format_of, names
from berdiff.testing.contract import Contract, expect


@dataclass(frozen=True)
class Format:
    name: str
    result: Result
    identity: Sequence[str]

    def write(self, folder: str | Path, **options: Any) -> dict[str, Path]:
        """Name -> file."""
        return {
            path.relative_to(folder).as_posix(): path for path in write(self.result, folder, [self.name], **options)
        }


contract = Contract[Format]()


def check_format(format: str, result: Result, identity: Sequence[str] = ()) -> None:
    """ContractError unless an output format keeps the promises of every format.

    `result`: one that it can be written of. `identity`: words that anonymous files must not hold, such as the patient's
    name in the input.
    """
    contract.run(f"format {format}", Format(format, result, identity))


@contract
def it_is_listed_in_words(format: Format) -> None:
    listed = format.name in names() and format_of(format.name).what
    expect(listed, "it is not among the formats of --write, or says nothing of what it writes")


@contract
def its_files_are_whole_and_the_only_ones(format: Format) -> None:
    with TemporaryDirectory() as folder:
        files = format.write(folder)
        expect(files, "no file is written")
        there = {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}
        expect(there == set(files), f"files that are not returned, or not there: {sorted(there ^ set(files))}")
        expect(all(path.stat().st_size for path in files.values()), "one is empty")


@contract
def the_same_result_is_the_same_files(format: Format) -> None:
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        first, second = format.write(one), format.write(two)
        expect(list(first) == list(second), f"{list(first)} and {list(second)}")
        for name in first:
            expect(_content(first[name]) == _content(second[name]), f"{name} differs")


@contract
def writing_leaves_the_result_as_it_was(format: Format) -> None:
    result = format.result
    before = [np.array(array) for array in (result.pool, result.image)]
    with TemporaryDirectory() as folder:
        format.write(folder)
    after = (result.pool, result.image)
    expect(all(map(np.array_equal, before, after)), "its masks or its image changed")


@contract
def anonymous_files_hold_nothing_of_the_patient(format: Format) -> None:
    with TemporaryDirectory() as folder:
        for name, path in format.write(folder, anonymous=True).items():
            content = path.read_bytes()
            if path.suffix == ".gz":
                content = zlib.decompress(content, wbits=31)
            held = [word for word in format.identity if word in name or word.encode() in content]
            expect(not held, f"{name} holds {', '.join(held)}")


def _content(path: Path) -> object:
    """The bytes of a file, but for when it was written."""
    if path.suffix == ".dcm":
        import pydicom

        data = pydicom.dcmread(path)
        for element in list(data.iterall()):
            if element.VR in ("DA", "TM", "DT"):
                element.value = ""
        return data.to_json()
    return path.read_bytes()

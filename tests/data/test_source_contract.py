"""Every source keeps the contract of `berdiff.testing`, and the contract sees what a broken source does."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import layouts
import numpy as np
import pytest

from berdiff.data.case import Case, Reading
from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources import SOURCES, find_source
from berdiff.errors import InputError
from berdiff.testing import ContractError, check_source
from berdiff.testing.sources import contract
from golden.frozen import made_sources

# of the sources with several layouts the one with most of its own code; golden/ has them all
LAYOUTS = {"brats": "brats regions", "nnunet": "nnunet volumes", "folder": "folder of volumes", "hdf5": "hdf5 nested"}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, tuple]:
    """Source -> (its small data, its options)."""
    root = tmp_path_factory.mktemp("sources") / "made"
    every = {
        source: (path, find_source(source).Options(**options))
        for name, source, path, options in made_sources(root)
        if name == LAYOUTS.get(source, name) and name != "lidc-dicom at 1 mm"
    }
    for name in ("lidc-hdf5", "lidc-png"):  # which the source `stores` joins
        prepare(name, every[name][0], root / "out" / name)
    return every


@pytest.mark.parametrize("source", [name for name, module in SOURCES.ours.items() if module.startswith("berdiff.")])
def test_every_source_keeps_the_contract(source: str, made):
    check_source(source, *made[source])


# --- the contract can fail -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    target: str = "lesion"


def module(read) -> ModuleType:
    """A source of .npy files by its `read`."""
    found = ModuleType("A source of .npy files.")
    found.__doc__, found.Options, found.read = "Images and masks.", Options, read  # type: ignore[attr-defined]
    return found


def cases(path: Path):
    for number, file in enumerate(sorted(path.glob("*.npy"))):
        try:
            pixels = np.load(file)
        except (ValueError, EOFError, OSError) as error:
            raise InputError(f"{file}: expected an array, found none") from error
        yield Case(f"case {number}", f"patient {number}", pixels[:1], pixels[None, 1:] > 0)


def read(path: Path, options: Options) -> Reading:
    """What a source should do."""
    total = len(list(path.glob("*.npy"))) if path.is_dir() else 0
    if not total:
        raise InputError(f"{path}: expected .npy files, found none")
    as_uint8 = (replace(case, masks=case.masks.astype(np.uint8)) for case in cases(path))
    about = {"raters": 1, "size": (32, 32), "dtype": "uint8", "total": total, "cases": as_uint8}
    return Reading(channels=("image",), targets=(options.target,), intensity=Intensity(), **about)


def changed(change):
    return lambda path, options: change(read(path, options), path)


def without_a_look(reading, path):
    """Damaged files end in a traceback of numpy."""
    every = ((file.stem, np.load(file)) for file in sorted(path.glob("*.npy")))
    return replace(reading, cases=(Case(name, name, pixels[:1], pixels[None, 1:]) for name, pixels in every))


def reading_of_nothing(path: Path, options: Options) -> Reading:
    return replace(read(Path(GOOD[0]), options), cases=cases(path))


calls = iter(range(99))
GOOD: list[str] = []  # the folder of good files, for the fakes
BROKEN = [
    ("its options are settings with defaults", None),
    ("its cases are what the reading says", changed(lambda reading, path: replace(reading, total=9))),
    ("its cases are what the reading says", changed(lambda reading, path: replace(reading, cases=list(reading.cases)))),
    (
        "it reads the same twice",
        changed(
            lambda reading, path: replace(
                reading, cases=(replace(case, patient=f"{next(calls)}") for case in list(reading.cases))
            )
        ),
    ),
    (
        "a store keeps every case",
        changed(lambda reading, path: replace(reading, cases=(replace(c, masks=2 * c.masks) for c in reading.cases))),
    ),
    ("a path without data is one sentence", reading_of_nothing),
    ("a damaged file is one sentence", changed(without_a_look)),
]


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    images, masks = layouts.blobs(4, 1)
    for number, (image, (mask,)) in enumerate(zip(images, masks, strict=True)):
        np.save(tmp_path / f"{number}.npy", np.stack([image, mask]))
    monkeypatch.setitem(SOURCES.ours, "npy", f"{__name__}:SOURCE")
    monkeypatch.setitem(globals(), "SOURCE", module(read))
    GOOD[:] = [str(tmp_path)]
    return tmp_path


def test_a_source_of_twenty_lines_keeps_it(data):
    check_source("npy", data)


@pytest.mark.parametrize(("promise", "broken"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_source_that_breaks_it_is_named(promise: str, broken, data, monkeypatch):
    source = module(broken or read)
    if broken is None:
        source.__doc__ = ""  # no line for the list of sources
    monkeypatch.setitem(globals(), "SOURCE", source)
    with pytest.raises(ContractError) as caught:
        check_source("npy", data)
    assert f"\n- {promise}: " in str(caught.value)


def test_every_promise_has_a_source_that_breaks_it():
    assert {promise for promise, _ in BROKEN} == set(contract.checks)

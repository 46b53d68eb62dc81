"""prepare: bad cases are refused in one sentence, nothing half is left, and a killed run can be run again."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dicom_writer import write_slice
from layouts import as_source, make_cases, write_hdf5
from PIL import Image

from berdiff.data import prepare as preparing
from berdiff.data.input_spec import InputSpec
from berdiff.data.prepare import prepare
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.errors import InputError
from refusals import refused


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    """Make `prepare` read these cases."""

    def choose(cases, **fields):
        monkeypatch.setattr(preparing, "find_source", lambda name: as_source(cases, **fields))

    return choose


def good(i: int = 3, **changes):
    """Ten cases, the i-th with changes."""
    cases = make_cases(10)
    cases[i] = replace(cases[i], **changes)
    return cases


def some_nan() -> np.ndarray:
    image = np.zeros((1, 32, 32), np.float32)
    image[0, 5, 5] = np.nan
    return image


UNIT, MASK = (1, 32, 32), (1, 1, 32, 32)
BAD = {
    "mask of another size": (good(masks=np.zeros((1, 1, 31, 32), np.uint8)), {}, "shape"),
    "too many readers": (good(masks=np.zeros((5, 1, 32, 32), np.uint8)), {}, "shape"),
    "no reader": (good(masks=np.zeros((0, 1, 32, 32), np.uint8)), {}, "shape"),
    "mask of 0 and 255": (good(masks=np.full(MASK, 255, np.uint8)), {}, "value"),
    "float mask": (good(masks=np.zeros(MASK)), {}, "value"),
    "image of another size": (good(image=np.zeros((1, 32, 31), np.uint8)), {}, "shape"),
    "image of another type": (good(image=np.zeros(UNIT, np.uint16)), {}, "kind"),
    "NaN": ([replace(make_cases(1)[0], image=some_nan())], {"dtype": "float32"}, "value"),
    "out of range": (
        [replace(make_cases(1)[0], image=np.full(UNIT, 1.1, np.float32))],
        {"dtype": "float32"},
        "value",
    ),
    "duplicate": (good(name="case 0"), {}, "name"),
    "no name": (good(name=""), {}, "missing"),
    "no patient": (good(patient=""), {}, "missing"),
    "a name in bytes": (good(name="\udcff"), {}, "name"),
    "a patient in two splits": (
        [replace(case, split="train" if i < 7 else "test") for i, case in enumerate(make_cases(10))],
        {},
        "conflict",
    ),
    "a split for some": (good(split="train"), {}, "missing"),
    "an unknown split": (make_cases(10, split="training"), {}, "value"),
    "no case": ([], {}, "missing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_cases(use, tmp_path, name):
    cases, fields, code = BAD[name]
    use(cases, **fields)
    with refused(tmp_path / "in", code=code):
        prepare("made", tmp_path / "in", tmp_path / "out" / "s")
    assert list((tmp_path / "out").iterdir()) == []  # no half store, no lock


def test_bad_fractions_before_the_work(use, tmp_path):
    use([])
    with pytest.raises(InputError, match="--val and --test"):
        prepare("made", None, tmp_path / "s", val=0.9, test=0.2)


def test_an_existing_store_is_not_touched(use, tmp_path):
    use(make_cases(10))
    prepare("made", None, tmp_path / "s")
    before = (tmp_path / "s" / "manifest.json").stat().st_mtime_ns
    with pytest.raises(InputError, match="expected a new store, found something there already"):
        prepare("made", None, tmp_path / "s")
    assert (tmp_path / "s" / "manifest.json").stat().st_mtime_ns == before


def test_nowhere_to_write(use, tmp_path):
    use(make_cases(10))
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file", code="access"):
        prepare("made", None, tmp_path / "file" / "s")


def test_an_unknown_source(tmp_path):
    with pytest.raises(InputError, match=r"source: expected one of lidc-readers, .*, found 'lidc'"):
        prepare("lidc", None, tmp_path / "s")


def test_splits_are_kept_made_or_made_again(use, tmp_path):
    own = [replace(case, split="val" if case.patient == "patient 0" else "train") for case in make_cases(10)]
    use(own)
    prepare("made", None, tmp_path / "kept")
    assert list(Store.open(tmp_path / "kept").cases.split) == [case.split for case in own]
    prepare("made", None, tmp_path / "again", resplit=True, seed=1)
    use(make_cases(10))
    prepare("made", None, tmp_path / "made", seed=1)
    prepare("made", None, tmp_path / "other", seed=2)
    again, made, other = (Store.open(tmp_path / name) for name in ("again", "made", "other"))
    assert list(again.cases.split) == list(made.cases.split) != list(other.cases.split)
    assert made.manifest.split == {"by": "patient", "seed": 1, "val": 0.1, "test": 0.2}
    assert set(made.cases.split) == {"train", "val", "test"}


def test_no_new_split_where_patients_are_unknown(use, tmp_path):
    use(make_cases(10, split="train"), patients_known=False)
    with pytest.raises(InputError, match="--resplit: expected a source that names patients"):
        prepare("made", None, tmp_path / "s", resplit=True)


def test_progress_counts_every_case(use, tmp_path):
    use(make_cases(10))
    seen = []
    prepare("made", None, tmp_path / "s", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i, 10) for i in range(1, 11)]


def test_the_same_store_twice_is_the_same_bytes(use, tmp_path):
    use(make_cases(10))
    first, second = (prepare("made", None, tmp_path / name) for name in ("a", "b"))
    assert first == second


def test_two_writers_at_once(use, tmp_path):
    """One writes, the other waits and finds a store there; neither harms the other."""
    use(make_cases(10))
    outcomes: list[str] = []

    def write():
        try:
            prepare("made", None, tmp_path / "s")
            outcomes.append("written")
        except InputError as error:
            outcomes.append("found" if "already" in str(error) else str(error))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["found", "found", "written"]
    assert verify(tmp_path / "s") == []
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


KILLED = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite in the background of a shell ignores it
from pathlib import Path
from layouts import as_source, make_cases
from berdiff.data import prepare as preparing
from berdiff.data import shards

def slow():
    for i, case in enumerate(make_cases(10)):
        if i == 7:
            print("in the middle", flush=True)
            time.sleep(60)
        yield case

source = as_source([])
read = source.read
source.read = lambda path, options: __import__("dataclasses").replace(read(path, options), cases=slow())
preparing.find_source = lambda name: source
shards.MOST_CASES = 4
preparing.prepare("made", None, Path(sys.argv[1]))
"""


def test_killed_in_the_middle(use, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    use(make_cases(10))
    signals = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
    outs = [tmp_path / how.name / "s" for how in signals]
    command = [sys.executable, "-c", KILLED]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    children = [subprocess.Popen([*command, str(out)], env=environment, **streams) for out in outs]
    for how, out, child in zip(signals, outs, children, strict=True):
        assert child.stdout is not None
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(how)
        assert child.wait(20) != 0
        assert not out.exists()
        left = [path for path in out.parent.iterdir() if path.is_dir()]
        assert how == signal.SIGINT or len(left) == 1  # an interrupt can still tidy up; a kill cannot
        for part in left:
            with pytest.raises(InputError):
                verify(part)
        prepare("made", None, out)
        assert verify(out) == []
        assert [path.name for path in out.parent.iterdir()] == ["s"]


def test_sources_say_what_their_images_are(tmp_path):
    write_hdf5(tmp_path / "lidc.hdf5")
    rng = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (tmp_path / "pictures" / kind).mkdir(parents=True)
        Image.fromarray(rng.integers(0, 2, (8, 8)).astype(np.uint8)).save(tmp_path / "pictures" / kind / "a.png")
        write_slice(tmp_path / "mr" / kind / "a.dcm", np.eye(8, dtype=np.int16), Modality="MR", RescaleIntercept=0)
    for source, path, modality, crops in (
        ("lidc-hdf5", "lidc.hdf5", "ct", True),
        ("folder", "pictures", "picture", False),
        ("folder", "mr", "mr", False),
    ):
        spec = prepare(source, tmp_path / path, tmp_path / f"{path}.zarr").input_spec
        assert (spec.modality, spec.crops) == (modality, crops), path
        assert Store.open(tmp_path / f"{path}.zarr").input_spec == spec


def test_crops_have_to_be_pointed_at_and_patches_not():
    spec = InputSpec((16, 16), ("ct",), ("nodule",))
    assert not spec.cropped((16, 16)).crops
    assert spec.cropped((8, 8)).crops
    assert not spec.cropped((8, 8), patches=True).crops

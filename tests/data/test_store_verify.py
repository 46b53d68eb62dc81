"""verify finds every fault: one is put into a good store at a time."""

import csv
import hashlib
import io
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from layouts import as_source, make_cases

from berdiff.data import manifest as manifests
from berdiff.data import prepare as preparing
from berdiff.data import table as tables
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.errors import InputError


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten cases of float images, so that NaN is possible, in shards of 4."""
    cases = [replace(case, image=(case.image / 255).astype(np.float32)) for case in make_cases(10)]
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(cases, dtype="float32"))
    monkeypatch.setattr("berdiff.data.shards.MOST_CASES", 4)
    preparing.prepare("made", None, tmp_path / "s")
    return tmp_path / "s"


def faults(store: Path) -> list[str]:
    """What verify finds, whether it lists it or cannot even open the store."""
    try:
        return verify(store)
    except InputError as error:
        return [str(error)]


def resign(store: Path, **changes) -> None:
    """Give the store right checksums again, so that only the fault itself can be found."""
    manifest = Store.open(store).manifest
    files = {name: hashlib.sha256((store / name).read_bytes()).hexdigest() for name in manifest.files}
    (store / manifests.NAME).write_text(replace(manifest, files=files, **changes).text(), newline="")


def test_a_good_store_has_none(store):
    assert verify(store) == []


def test_any_flipped_byte(store):
    """The first, the last and some others of every file, one bit each."""
    rng = np.random.default_rng(0)
    files = [path for path in store.rglob("*") if path.is_file()]
    assert len(files) == 3 + 2 + 2 * 3  # three zarr.json, table and manifest, three shards of two arrays
    for path in files:
        good = path.read_bytes()
        for place in {0, len(good) - 1, *rng.integers(0, len(good), 6).tolist()}:
            bad = bytearray(good)
            bad[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(bad)
            assert faults(store), f"{path}, byte {place}"
        path.write_bytes(good)
    assert faults(store) == []


def test_any_missing_or_truncated_file(store):
    for path in [path for path in store.rglob("*") if path.is_file()]:
        good = path.read_bytes()
        path.unlink()
        assert faults(store), path
        path.write_bytes(good[:-1])
        assert faults(store), path
        path.write_bytes(good)


def test_a_shard_missing_from_manifest_and_disk(store):
    """Both agree that there is none, but the cases are there in the table."""
    name = "masks/c/1/0/0/0/0"
    (store / name).unlink()
    manifest = Store.open(store).manifest
    files = {key: value for key, value in manifest.files.items() if key != name}
    (store / manifests.NAME).write_text(replace(manifest, files=files).text(), newline="")
    assert faults(store) == [f"{store}/{name}: expected a file of the store, found none"]


def test_a_file_too_many(store):
    (store / "images/c/3").mkdir()
    shutil.copy(store / "images/c/0/0/0/0", store / "images/c/3/extra")
    assert "expected only files of the manifest, found one more" in faults(store)[0]


def change_table(store: Path, change: Callable[[list[list[str]]], None]) -> None:
    rows = list(csv.reader(io.StringIO((store / tables.NAME).read_text(), newline="")))
    change(rows)
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    (store / tables.NAME).write_text(text.getvalue())


def test_a_patient_in_two_splits(store):
    def move(rows):
        rows[1][6] = "val" if rows[1][6] != "val" else "test"

    change_table(store, move)
    resign(store, counts=tables.parse_table((store / tables.NAME).read_text(), "").counts())
    (fault,) = faults(store)
    assert "expected every patient in one split, found patient patient 0 in both" in fault


def test_a_wrong_table(store):
    files = {path: path.read_bytes() for path in (store / tables.NAME, store / manifests.NAME)}
    for row, column, value, sentence in (
        (1, 6, "holdout", "expected the splits train, val, test, found 'holdout'"),
        (1, 0, "case 1", "expected every case once"),
        (1, 7, "9", "expected 1 to 4 raters per case, found 1 to 9"),
        (1, 7, "0", "expected 1 to 4 raters per case, found 0 to"),
        (1, 7, "many", "expected a case table, found a damaged one"),
        (1, 3, "wide", "expected a case table, found a damaged one"),
        (0, 0, "name", "the columns name, patient"),
    ):
        change_table(store, lambda rows, row=row, column=column, value=value: rows[row].__setitem__(column, value))
        with suppress(InputError):  # a table that cannot be read cannot be signed either
            resign(store, counts=tables.parse_table((store / tables.NAME).read_text(), "").counts())
        assert any(sentence in fault for fault in faults(store)), faults(store)
        for path, content in files.items():
            path.write_bytes(content)


def test_wrong_counts(store):
    counts = Store.open(store).manifest.counts
    resign(store, counts={**counts, "val": {"cases": 0, "patients": 0}})
    assert "expected the counts" in faults(store)[0]
    resign(store, counts={**counts, "all": {"cases": 10**6, "patients": 5}})
    assert "expected 1000000 cases, found 10" in faults(store)[0]


def test_wrong_values(store):
    """Written by zarr and signed: only a look at the values finds them."""
    for array, index, value, sentence in (
        ("masks", (5, 0, 0, 3, 3), 2, "cases 4 to 7: expected masks of 0 and 1, found 2"),
        ("masks", (4, 3, 0, 3, 3), 1, "expected zeros beyond a case's own raters"),  # case 4 has one rater
        ("images", (9, 0, 3, 3), np.nan, "cases 8 to 9: expected images in [0, 1], found nan"),
        ("images", (0, 0, 3, 3), 1.5, "cases 0 to 3: expected images in [0, 1], found"),
    ):
        values = zarr.open_group(store, mode="r+")[array]
        good = values[index]
        values[index] = value
        resign(store)
        (fault,) = faults(store)
        assert sentence in fault
        values[index] = good


def test_a_half_store(store):
    (store / manifests.NAME).unlink()
    with pytest.raises(InputError, match=r"expected a prepared store, found no readable manifest\.json"):
        verify(store)


def test_links_and_spacings(store, tmp_path):
    """Bytes of elsewhere are not the store's own, and a spacing is a length."""
    shard = store / "images" / "c" / "0" / "0" / "0" / "0"
    shutil.move(shard, tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    assert any("expected a path inside" in fault for fault in faults(store))
    shard.unlink()
    shutil.move(tmp_path / "elsewhere", shard)
    assert faults(store) == []
    for wrong in ("-1.0", "inf", "0.0"):
        table = (store / tables.NAME).read_text()
        first = table.splitlines()[1].split(",")
        (store / tables.NAME).write_text(table.replace(",".join(first[:4]), ",".join([*first[:3], wrong]), 1))
        assert any("a spacing out of range" in fault for fault in faults(store))
        (store / tables.NAME).write_text(table)

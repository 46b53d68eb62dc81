"""The store: what was put in comes out, for zarr and for us, from any address and in any process."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from layouts import as_source, make_cases

from berdiff.data import manifest as manifests
from berdiff.data import prepare as preparing
from berdiff.data.manifest import Manifest
from berdiff.data.store import Store, open_store
from berdiff.data.verify import verify
from berdiff.errors import InputError
from refusals import refused


@pytest.fixture
def cases():
    return make_cases(10)


@pytest.fixture
def address(cases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten cases in shards of 3: the last is not full, and a place in a shard has now more, now fewer raters."""
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(cases))
    monkeypatch.setattr("berdiff.data.shards.MOST_CASES", 3)
    preparing.prepare("made", None, tmp_path / "s.zarr")
    return tmp_path / "s.zarr"


def test_reads_what_was_written(cases, address):
    store = Store.open(address)
    order = [7, 0, 9, 9, 3]  # any order, and the same twice
    images, masks = store.read(order)
    assert images.dtype == np.float32
    assert masks.dtype == np.uint8
    for image, readers, i in zip(images, masks, order, strict=True):
        np.testing.assert_allclose(image, cases[i].image / 255, atol=1e-7)
        np.testing.assert_array_equal(readers[: len(cases[i].masks)], cases[i].masks)
        assert not readers[len(cases[i].masks) :].any()
    assert len(store) == 10
    assert (store.raters, store.channels, store.targets, store.size) == (4, ("ct",), ("nodule",), (32, 32))
    assert store.notes == ("made for a test",)


def test_zarr_itself_reads_the_same(address):
    store, group = Store.open(address), zarr.open_group(address, mode="r")
    images, masks = store.read_stored(np.arange(10))
    np.testing.assert_array_equal(group["images"][:], images)
    np.testing.assert_array_equal(group["masks"][:], masks)


def test_table(cases, address):
    table = Store.open(address).cases
    assert list(table.case) == [case.name for case in cases]
    assert list(table.patient) == [case.patient for case in cases]
    assert list(table.volume) == [case.volume for case in cases]
    assert list(table.source) == [case.source for case in cases]
    assert list(table.raters) == [len(case.masks) for case in cases]
    np.testing.assert_array_equal(table.spacing, [[0.5, 0.7]] * 10)


def test_indices_part_the_store(address):
    store = Store.open(address)
    parts = [store.indices(split) for split in ("train", "val", "test")]
    assert sorted(np.concatenate(parts)) == list(range(10)) == list(store.indices("all"))
    with pytest.raises(InputError, match="expected one of train, val, test or all, found 'testing'"):
        store.indices("testing")


def test_odd_names_and_unknown_spacing_survive(tmp_path, monkeypatch):
    names = ['a,"b"', "line\nbreak", "ünïcode/↑", "carriage\rreturn"]
    cases = [replace(case, name=name) for case, name in zip(make_cases(4), names, strict=True)]
    cases[0] = replace(cases[0], spacing=(float("nan"), float("nan")))
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(cases))
    preparing.prepare("made", None, tmp_path / "s")
    table = Store.open(tmp_path / "s").cases
    assert list(table.case) == names
    assert np.isnan(table.spacing[0]).all()
    assert verify(tmp_path / "s") == []


def test_float_images_and_empty_ones(tmp_path, monkeypatch):
    """A chunk of zeros is not written at all: it must come back as zeros."""
    rng = np.random.default_rng(0)
    images = [rng.random((2, 32, 32), dtype=np.float32), np.zeros((2, 32, 32), np.float32)]
    zero = np.zeros((1, 1, 32, 32), np.uint8)
    cases = [replace(c, image=image, masks=zero) for c, image in zip(make_cases(2), images, strict=True)]
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(cases, dtype="float32", channels=("a", "b")))
    preparing.prepare("made", None, tmp_path / "s")
    got, masks = Store.open(tmp_path / "s").read([0, 1])
    np.testing.assert_array_equal(got, np.stack(images))
    assert not masks.any()
    assert verify(tmp_path / "s") == []


def test_from_memory_address(address):
    fs = fsspec.filesystem("memory")
    fs.put(str(address), "/copied", recursive=True)
    try:
        here, there = Store.open(address), Store.open("memory://copied")
        for ours, theirs in zip(here.read([2, 8]), there.read([2, 8]), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert verify("memory://copied") == []
    finally:
        fs.rm("/copied", recursive=True)


def _sum(store: Store, index: int) -> float:
    images, masks = store.read([index])
    return float(images.sum()) + float(masks.sum())


def test_many_processes(address):
    """Opened before, used here, then sent to processes that each read for themselves."""
    store = Store.open(address)
    expected = [_sum(store, i) for i in range(10)]
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
            assert list(pool.map(_sum, [store] * 10, range(10))) == expected


def test_a_fork_opens_the_files_again(address):
    """Network sessions of the parent must not be used in a child."""
    store = Store.open(address)
    store.read([0])
    parents = store._arrays()[0].fs
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=lambda: there.send((store._arrays()[0].fs is parents, _sum(store, 3))))
    child.start()
    assert here.recv() == (False, _sum(store, 3))
    child.join()
    assert store._arrays()[0].fs is parents


def test_many_threads(address):
    """The first reads race to open the store; all must see the same."""
    expected = [_sum(Store.open(address), i) for i in range(10)]
    for _ in range(5):
        store = Store.open(address)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(_sum, [store] * 40, list(range(10)) * 4)) == expected * 4


def test_a_flipped_byte_in_a_shards_index(address):
    """The index has a CRC-32C: without it, another place would be read as the case."""
    shard = address / "masks/c/0/0/0/0/0"
    whole = shard.read_bytes()
    for place in (-1, -4, -5, -20, -52):
        bad = bytearray(whole)
        bad[place] ^= 4
        shard.write_bytes(bad)
        with pytest.raises(InputError, match=r"masks/c/0/0/0/0/0: expected a shard with a whole index, found .* CRC"):
            Store.open(address).read([1])
    shard.write_bytes(whole)
    Store.open(address).read([1])


def test_an_index_outside_is_an_error(address):
    for index in (-1, 10):
        with pytest.raises(IndexError):
            Store.open(address).read([index])


def test_foreign_and_altered_manifests(address, tmp_path):
    file = address / manifests.NAME
    text = file.read_text()
    bad = {
        "not JSON": ("expected a manifest in JSON", "{"),
        "deep": ("expected a manifest in JSON", "[" * 100_000),
        "other": ("expected the manifest of a berdiff store", '{"zarr_format": 3}'),
        "version": ("expected format version 2, found 99", text.replace('"version": 2', '"version": 99')),
        "altered": ("expected the checksum", text.replace('"seed": 0', '"seed": 1')),
        "fields": ("expected the checksum", text.replace('"version": 2', '"version": 2, "extra": 1')),
    }
    for sentence, content in bad.values():
        file.write_text(content)
        with pytest.raises(InputError, match=sentence):
            Store.open(address)
    with pytest.raises(InputError, match=r"expected a prepared store, found no readable manifest.json"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"an address of s3, .* found the protocol 'nosuchprotocol'"):
        Store.open("nosuchprotocol://x")


def _rewritten(address: Path, manifest: Manifest, **changes) -> Path:
    """The store with other fields in its manifest and the right checksum over them, as an attacker would have it."""
    (address / manifests.NAME).write_text(replace(manifest, **changes).text(), newline="")
    return address


def test_a_manifest_cannot_lead_out_of_the_store(address):
    manifest = Store.open(address).manifest
    for name in ("../../etc/passwd", "/etc/passwd", "a/../../b", "file:///etc/passwd"):
        with pytest.raises(InputError, match="which leaves it"):
            Store.open(_rewritten(address, manifest, files={**manifest.files, name: "0" * 64}))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"raters": 0}, "raters"),
        ({"shard": 2**40}, "shard"),
        ({"dtype": "object"}, "dtype"),
        ({"counts": {"train": {"cases": 1, "patients": 1}}}, "counts"),
        ({"size": (-1, 5)}, "input_spec.size"),
        ({"size": (5,)}, "input_spec.size"),
        ({"channels": ()}, "channels"),
    ],
)
def test_hostile_sizes(address, changes, field):
    manifest = Store.open(address).manifest
    if field.startswith(("input_spec", "channels")):
        changes = {"input_spec": replace(manifest.input_spec, **changes)}
    with refused(f"{address}/manifest.json", field, code="damaged"):
        Store.open(_rewritten(address, manifest, **changes))


def test_a_store_of_0_1_0_names_the_version_that_reads_it(address):
    file = address / manifests.NAME
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 1}))
    with pytest.raises(InputError, match=r"manifest\.json: written before berdiff 0\.2\.0, which is the last"):
        Store.open(address)


def test_the_embedded_store_is_made_once(cases, tmp_path, monkeypatch):
    made = []

    def source(name: str):
        made.append(name)
        return as_source(cases)

    monkeypatch.setattr(preparing, "find_source", source)
    monkeypatch.setenv("BERDIFF_CACHE", str(tmp_path / "cache"))
    first, second = open_store(None), open_store()
    assert made == ["lidc-readers"]
    assert first.address == second.address
    assert Path(first.address).is_relative_to(tmp_path / "cache")
    assert len(open_store(first.address)) == 10

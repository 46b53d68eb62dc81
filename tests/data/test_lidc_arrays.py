"""LIDC v1: HDF5 in its several forms, and the pickle, which is read without ever being run."""

import io
import os
import pickle
import struct
from contextlib import suppress
from itertools import product
from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest
from layouts import blobs, refused, write_hdf5

from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources import lidc_hdf5, lidc_pickle
from berdiff.data.sources.plain_pickle import load_plain
from berdiff.data.split import leak
from berdiff.data.store import Store
from berdiff.errors import InputError

# HDF5


def test_hdf5_uint8_readers_last(tmp_path):
    made = write_hdf5(tmp_path / "a.hdf5")
    prepare("lidc-hdf5", tmp_path / "a.hdf5", tmp_path / "s")
    store = Store.open(tmp_path / "s")
    assert (store.size, store.raters, store.manifest.dtype) == ((32, 32), 4, "uint8")
    for split, (images, masks) in made.items():
        got, readers = store.read(store.indices(split))
        np.testing.assert_allclose(got[:, 0], images / 255, atol=1e-7)
        np.testing.assert_array_equal(readers[:, :, 0], masks)
    assert leak(store.cases.patient, store.cases.split) is None
    assert store.manifest.split == {"by": "source"}
    assert store.input_spec.intensity == Intensity("minmax", field=32)


def test_hdf5_readers_first(tmp_path):
    """CCDM's axis order gives the same store as PHiSeg's."""
    made = write_hdf5(tmp_path / "last.hdf5")
    first = {f"{split}_labels": masks for split, (_, masks) in made.items()}
    write_hdf5(tmp_path / "first.hdf5", **first)
    files = [prepare("lidc-hdf5", tmp_path / f"{name}.hdf5", tmp_path / name).files for name in ("last", "first")]
    assert files[0] == files[1]


def test_hdf5_floats(tmp_path):
    """[-0.5, 0.5] and [0, 1] are known by the whole file: here the first group leaves it open."""
    for low, (dtype, tolerance) in product((-0.5, 0.0), {"f4": 1e-6, "f8": 1e-6, "f2": 1e-3}.items()):
        values = {"train": 0.4 * np.ones((6, 32, 32)), "val": blobs(2)[0] / 255 + low, "test": blobs(3)[0] / 255 + low}
        values["train"][0, 0, 0] = 0.5
        path, out = tmp_path / "a.hdf5", tmp_path / f"{low} {dtype}"
        write_hdf5(path, **{f"{split}_images": images.astype(dtype) for split, images in values.items()})
        prepare("lidc-hdf5", path, out)
        store = Store.open(out)
        for split, images in values.items():
            np.testing.assert_allclose(store.read(store.indices(split))[0][:, 0], images - low, atol=tolerance)


def test_hdf5_names_of_nodules_and_slices(tmp_path):
    write_hdf5(tmp_path / "a.hdf5", {"train": 4})
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        file["train/nodules"], file["train/slices"] = [0, 0, 0, 1], [0, 1, 0, 0]
    names = [case.name for case in lidc_hdf5.read(tmp_path / "a.hdf5", lidc_hdf5.Options()).cases]
    assert names == [
        f"train-{i // 2}/nodule-{nodule}/slice-{z}" for i, (nodule, z) in enumerate([(0, 0), (0, 1), (0, 0), (1, 0)])
    ]


def nan_images() -> np.ndarray:
    images = np.zeros((6, 32, 32), np.float32)
    images[3, 3, 3] = np.nan
    return images


THREE = (("train", 6), ("val", 2), ("test", 3))
BAD_HDF5 = {  # beside what tests of `hdf5` see
    "label 3": ({"train_labels": np.full((6, 32, 32, 4), 3, np.uint8)}, "train/labels"),
    "mixed labels": ({"train_labels": np.arange(6 * 4096, dtype=np.uint8).reshape(6, 32, 32, 4)}, "train/labels"),
    "NaN": ({f"{split}_images": nan_images()[:n] for split, n in THREE}, "train/images"),
    "a range of its own": ({f"{split}_images": np.full((n, 32, 32), 300.0) for split, n in THREE}, "300"),
    "types that differ": ({"val_images": np.zeros((2, 32, 32))}, ""),
    "images in colour": ({"train_images": np.zeros((6, 32, 32, 3), np.uint8)}, "train/labels"),
}


def test_bad_hdf5(tmp_path):
    for name, (changes, named) in BAD_HDF5.items():
        write_hdf5(tmp_path / name, **changes)
        bad_file(lidc_hdf5, tmp_path / name, named)


def bad_file(module: ModuleType, path: Path, *named: str) -> None:
    """Refused, whether at once or while its cases are read."""
    refused(lambda: list(module.read(path, module.Options()).cases), str(path), *named)


def test_hdf5_of_other_content(tmp_path):
    for name, key in (("other.hdf5", "data"), ("flat.hdf5", "train")):
        with h5py.File(tmp_path / name, "w") as file:
            file[key] = [1]
        bad_file(lidc_hdf5, tmp_path / name, key)


def test_hdf5_with_damaged_data(tmp_path):
    """The structure is whole but a compressed block is not."""
    write_hdf5(tmp_path / "a.hdf5", {"train": 6}, train_images=None)
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        images = file.create_dataset("train/images", data=blobs(6)[0], compression="gzip", chunks=(1, 32, 32))
        place = images.id.get_chunk_info(2)
    with (tmp_path / "a.hdf5").open("r+b") as raw:
        raw.seek(place.byte_offset)
        raw.write(b"\xff" * place.size)
    bad_file(lidc_hdf5, tmp_path / "a.hdf5", "train/images")


def test_hdf5_does_not_leave_its_file(tmp_path):
    (tmp_path / "raw").write_bytes(bytes(6 * 32 * 32))
    write_hdf5(tmp_path / "raw.hdf5", {"train": 6}, train_images=None)
    with h5py.File(tmp_path / "raw.hdf5", "a") as file:
        file.create_dataset("train/images", (6, 32, 32), "u1", external=[("raw", 0, h5py.h5f.UNLIMITED)])
    bad_file(lidc_hdf5, tmp_path / "raw.hdf5", "train/images")


# pickle


def content(n: int = 5) -> dict:
    images, masks = blobs(n)
    return {
        f"slice{i}": {"image": images[i] / 255, "masks": list(masks[i]), "series_uid": f"1.2.{i // 2}"}
        for i in range(n)
    }


def test_pickle_of_every_protocol(tmp_path):
    path = tmp_path / "data_lidc.pickle"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(content(), protocol))
        prepare("lidc-pickle", path, tmp_path / str(protocol))
        store = Store.open(tmp_path / str(protocol))
        images, masks = blobs(5)
        got, raters = store.read(range(5))
        np.testing.assert_allclose(got[:, 0], images / 255, atol=1e-7)
        np.testing.assert_array_equal(raters[:, :, 0], masks)
        assert list(store.cases.patient) == ["1.2.0", "1.2.0", "1.2.1", "1.2.1", "1.2.2"]
        assert leak(store.cases.patient, store.cases.split) is None
    assert store.input_spec.intensity == Intensity()


def test_pickled_arrays_of_every_kind(tmp_path):
    """Byte order, Fortran order, an axis turned, a scalar: the unpickler's own arrays equal numpy's."""
    for dtype in ("?", "i1", ">i4", "<f4", ">f8"):
        array = (np.arange(24).reshape(4, 6) % 2).astype(dtype)
        variants = (array, np.asfortranarray(array), array.T, array[:, ::-1], array[::2])
        for variant, protocol in product(variants, (2, 4, 5)):
            (tmp_path / "a").write_bytes(pickle.dumps([variant, variant[0, 1]], protocol))
            got, scalar = load_plain(tmp_path / "a")
            np.testing.assert_array_equal(got.array, variant)
            assert scalar == variant[0, 1]


class Run:
    """What an attacker pickles: calls `function(*arguments)` when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path):
    mark = tmp_path / "ran"
    attacks = [
        Run(os.system, f"touch {mark}"),
        Run(eval, f"open({str(mark)!r}, 'w')"),
        Run(exec, f"open({str(mark)!r}, 'w')"),
        Run(os.mkdir, str(mark)),
        Run(io.open, str(mark), "w"),
        Run(getattr, "text", "upper"),
        Run(np.load, str(mark)),
        Run(np.array, [1]),
    ]
    for attack in attacks:
        for hidden in (attack, {**content(), "last": attack}, {"slice0": {"image": attack}}):
            (tmp_path / "a.pickle").write_bytes(pickle.dumps(hidden))
            bad_file(lidc_pickle, tmp_path / "a.pickle")
            assert not mark.exists()
    (tmp_path / "a.pickle").write_bytes(pickle.dumps(attacks[0]))
    with pytest.raises(InputError):
        prepare("lidc-pickle", tmp_path / "a.pickle", tmp_path / "s")
    pickle.loads(pickle.dumps(attacks[3]))
    assert mark.exists()  # the attack itself does work, on those who load it the usual way


def test_pickle_opcodes_by_hand(tmp_path):
    """Names through other opcodes: STACK_GLOBAL, INST, a dotted path, the extension registry."""
    attacks = [
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
        b"(S'id'\nios\nsystem\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__class__\x93.",
        b"\x80\x04\x8c\x05numpy\x8c\x10os.system\x93.",
        b"\x80\x02\x82\x01.",
        b"cnumpy\nndarray\n}S'__setstate__'\nI1\nsb.",
    ]
    for raw in attacks:
        (tmp_path / "a.pickle").write_bytes(raw)
        bad_file(lidc_pickle, tmp_path / "a.pickle")


def changed(**fields) -> dict:
    slices = content()
    slices["slice3"] = {**slices["slice3"], **fields}
    return slices


BAD_PICKLES = {
    "mask of another size": (changed(masks=[np.zeros((31, 32))] * 4), "mask 0"),
    "label 2": (changed(masks=[np.full((32, 32), 2)] * 4), "slice 'slice3': mask 0"),
    "NaN": (changed(image=np.full((32, 32), np.nan)), "slice3"),
    "Hounsfield units": (changed(image=np.full((32, 32), -900.0)), "-900"),
    "no masks": (changed(masks=[]), "slice3"),
    "masks in text": (changed(masks=["a"]), "mask 0"),
    "not an image": (changed(image=np.zeros((32, 32, 3))), "(32, 32, 3)"),
    "objects": (changed(image=np.array([None, 1])), ""),
    "no series": ({"a": {"image": np.zeros((2, 2)), "masks": []}}, "series_uid"),
    "a list": ([1, 2], "list"),
    "nothing": ({}, ""),
}


def test_bad_pickles(tmp_path):
    for name, (slices, named) in BAD_PICKLES.items():
        (tmp_path / name).write_bytes(pickle.dumps(slices))
        bad_file(lidc_pickle, tmp_path / name, named)


def test_damaged_pickles(tmp_path):
    whole = pickle.dumps(content(2))
    rng = np.random.default_rng(0)
    for _ in range(200):  # whatever the damage, it is reported in one sentence or does no harm
        bad = bytearray(whole)
        bad[int(rng.integers(len(bad)))] ^= int(rng.integers(1, 256))
        (tmp_path / "bad").write_bytes(bad)
        with suppress(InputError):
            list(lidc_pickle.read(tmp_path / "bad", lidc_pickle.Options()).cases)
    (tmp_path / "huge").write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".")
    bad_file(lidc_pickle, tmp_path / "huge")


# the real file


def test_real_hdf5_is_what_its_readme_says(shared_data):
    """13,786 slices of 785 patients; groups and patients as counted there. Only the names are read here."""
    reading = lidc_hdf5.read(shared_data / "lidc" / "data_lidc.hdf5", lidc_hdf5.Options())
    assert (reading.total, reading.raters, reading.size, reading.dtype) == (13786, 4, (128, 128), "uint8")
    case = next(reading.cases)
    assert case.split == "train"
    assert case.masks.shape == (4, 1, 128, 128)
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        patients = {split: set(file[split]["uids"][:]) for split in ("train", "val", "test")}
    assert {split: len(names) for split, names in patients.items()} == {"train": 625, "val": 60, "test": 100}
    assert not patients["train"] & patients["val"]
    assert not patients["test"] & (patients["train"] | patients["val"])

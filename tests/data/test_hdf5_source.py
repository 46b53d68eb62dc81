"""Anyone's HDF5 file: every layout gives the right pixels to the right rater and target, a defect is one sentence."""

import shlex
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
from layouts import blobs, refused, write_hdf5

from berdiff.cli.main import main
from berdiff.data.input_spec import Intensity
from berdiff.data.intensity import to_unit
from berdiff.data.prepare import prepare
from berdiff.data.sources import hdf5_file
from berdiff.data.sources.hdf5 import OWN_PATIENT, Options, read
from berdiff.data.store import Store
from berdiff.data.verify import verify

H, W, SEQUENCES = 12, 16, ("t1", "t1ce", "t2", "flair")
REGIONS = ("whole=1,2,4", "core=1,4", "enhancing=4")
CODES = ("necrosis=1", "edema=2", "enhancing=4")


def content(n=5, seed=0, patient="p"):
    """Images (n, 4, H, W), label maps of 0, 1, 2, 4, two slices per patient and their numbers."""
    rng = np.random.default_rng(seed)
    return {
        "images": rng.integers(0, 256, (n, 4, H, W), np.uint8),
        "labels": rng.choice(np.array([0, 1, 2, 4], np.uint8), (n, H, W)),
        "uids": np.array([f"{patient}{i // 2}".encode() for i in range(n)]),
        "slices": np.arange(80, 80 + n, dtype=np.int16),
    }


def write(path, groups=None, **changes):
    """One file of `groups` (default: the root alone); `changes` replace datasets, None leaves one out."""
    groups = groups or {"": content()}
    with h5py.File(path, "w") as file:
        for group, datasets in groups.items():
            for name, data in {**datasets, **changes}.items():
                if data is not None:
                    file[f"{group}/{name}"] = data
    return path


def write_raters(path, n=6, channels=5, last=True, **changes):
    """Images (n, H, W) with a channel per rater; image i has 1 + i % channels of them, and zeros after that."""
    images, masks = blobs(n, channels, 16)
    counts = 1 + np.arange(n) % channels
    masks[np.arange(channels) >= counts[:, None]] = 0
    labels = np.moveaxis(masks, 1, -1) if last else masks
    uids = np.array([f"cell{i}".encode() for i in range(n)])
    write(path, {"": {"images": images, "labels": labels, "uids": uids, "n_raters": counts}}, **changes)
    return masks, counts


def cases(path, **options):
    return list(read(path, Options(**options)).cases)


# --- layouts ---


def test_groups_are_splits(tmp_path):
    made = {split: content(n, i, split) for i, (split, n) in enumerate((("train", 5), ("val", 2), ("test", 3)))}
    options = Options(channels=SEQUENCES, labels=REGIONS, spacing=(1.5, 2.5))
    prepare("hdf5", write(tmp_path / "a.h5", made), tmp_path / "s", options)
    assert verify(tmp_path / "s") == []
    store = Store.open(tmp_path / "s")
    assert (store.channels, store.targets) == (SEQUENCES, ("whole", "core", "enhancing"))
    assert (store.input_spec.kind, store.size, store.raters) == ("nested", (H, W), 1)
    assert store.manifest.split == {"by": "source"}
    for split, datasets in made.items():
        indices = store.indices(split)
        images, masks = store.read_stored(indices)
        np.testing.assert_array_equal(images, datasets["images"])
        labels = datasets["labels"]
        np.testing.assert_array_equal(masks[:, 0, 0], labels > 0)
        np.testing.assert_array_equal(masks[:, 0, 1], (labels == 1) | (labels == 4))
        np.testing.assert_array_equal(masks[:, 0, 2], labels == 4)
        patients = [f"{split}{i // 2}" for i in range(len(labels))]
        assert list(store.cases.patient[indices]) == list(store.cases.volume[indices]) == patients
        assert list(store.cases.case[indices]) == [f"{p}_{80 + i:03d}" for i, p in enumerate(patients)]
        assert list(store.cases.source[indices]) == [f"{split}[{i}]" for i in range(len(labels))]
    np.testing.assert_array_equal(store.cases.spacing, [[1.5, 2.5]] * 10)


def test_which_groups_are_read(tmp_path):
    two = write(tmp_path / "two.h5", {"train": content(patient="a"), "other": content(patient="b")})
    for options, found in (
        ({}, [("train", "")]),  # one of them alone is no split
        ({"groups": ("train=train",)}, [("train", "train")]),
        ({"groups": ("test=other", "train=/train")}, [("other", "test"), ("train", "train")]),
        ({"groups": ("other",)}, [("other", "")]),
    ):
        listed = cases(two, labels=CODES, **options)
        assert [(case.source, case.split) for case in listed] == [(f"{g}[{i}]", s) for g, s in found for i in range(5)]
    root = write(tmp_path / "root.h5", slices=None)
    listed = cases(root, labels=CODES)
    assert [case.name for case in listed] == ["p0_000", "p0_001", "p1_000", "p1_001", "p2_000"]
    assert {case.split for case in listed} == {""}


def test_axes_of_images_and_labels(tmp_path):
    made = content()
    expected = cases(write(tmp_path / "a.h5"), labels=CODES)
    np.testing.assert_array_equal(np.stack([case.image for case in expected]), made["images"])
    for number, (options, changes) in enumerate(
        (
            ({"channels_last": True}, {"images": np.moveaxis(made["images"], 1, -1)}),
            ({"transpose": True}, {"images": made["images"].swapaxes(2, 3), "labels": made["labels"].swapaxes(1, 2)}),
            ({}, {"labels": made["labels"][:, None].astype(np.int64)}),
            ({}, {"labels": made["labels"][..., None]}),
        )
    ):
        found = cases(write(tmp_path / f"{number}.h5", **changes), labels=CODES, **options)
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_array_equal(a.image, b.image)
            np.testing.assert_array_equal(a.masks, b.masks)
    grey = read(write(tmp_path / "grey.h5", images=made["images"][:, 0]), Options(labels=CODES))
    assert (grey.channels, grey.total, grey.size) == (("image",), 5, (H, W))
    np.testing.assert_array_equal(next(grey.cases).image, made["images"][0, :1])


def test_other_names(tmp_path):
    made = content()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["data/x"], file["data/y"], file["data/z"] = made["images"], made["labels"], made["slices"]
        file["who"] = made["uids"].astype(object)  # texts of any length, at the root
    names = {"groups": ("data",), "images": "x", "masks": "y", "slices": "z", "uids": "/who"}
    found = cases(tmp_path / "a.h5", labels=CODES, **names)
    assert [case.name for case in found] == [case.name for case in cases(write(tmp_path / "b.h5"), labels=CODES)]
    reading = read(tmp_path / "a.h5", Options(labels=CODES, **{**names, "uids": None}))
    assert reading.notes == (OWN_PATIENT,)
    assert [case.patient for case in reading.cases] == [f"data-{i}" for i in range(5)]
    write(tmp_path / "c.h5", uids=np.array([7, 7, 12, 3, 3]))
    assert [case.patient for case in cases(tmp_path / "c.h5", labels=CODES)] == ["7", "7", "12", "3", "3"]


def test_the_same_as_the_source_for_lidc(tmp_path):
    """A file that `lidc-hdf5` reads gives the same bytes."""
    write_hdf5(tmp_path / "a.hdf5")
    one = prepare("lidc-hdf5", tmp_path / "a.hdf5", tmp_path / "lidc")
    options = Options(channels=("ct",), labels=("nodule=1",), scale="minmax", scaled=True)
    other = prepare("hdf5", tmp_path / "a.hdf5", tmp_path / "hdf5", options)
    assert one.input_spec.intensity == other.input_spec.intensity == Intensity("minmax", field=32)
    pixels = [{name: file for name, file in made.files.items() if "cases" not in name} for made in (one, other)]
    assert pixels[0] == pixels[1]


# --- raters ---


def test_a_channel_per_rater_and_their_count(tmp_path):
    for last in (True, False):
        path = tmp_path / f"{last}.h5"
        masks, counts = write_raters(path, last=last)
        reading = read(path, Options(counts="n_raters"))
        assert (reading.raters, reading.targets, reading.kind) == (5, ("mask",), "independent")
        for i, case in enumerate(reading.cases):
            assert (case.name, case.volume) == (f"cell{i}_000", f"cell{i}")
            np.testing.assert_array_equal(case.masks, masks[i, : counts[i], None])
        found = cases(path, labels=("cell=1",))  # without the count, empty channels are raters who marked nothing
        np.testing.assert_array_equal(np.stack([case.masks[:, 0] for case in found]), masks)


def test_raters_by_number_and_name(tmp_path):
    names = np.array([b"Ann", b"Bob", b"Cy", b"Di", b"Eve"])
    each = np.array([",".join(name.decode() for name in np.roll(names, i)).encode() for i in range(6)])
    path = tmp_path / "a.h5"
    masks, _ = write_raters(path, n_raters=None, names=names, each=each)
    np.testing.assert_array_equal([case.masks[:, 0] for case in cases(path, raters=("4", "1"))], masks[:, [4, 1]])
    found = cases(path, raters=("Eve", "Bob"), rater_names="names")
    np.testing.assert_array_equal([case.masks[:, 0] for case in found], masks[:, [4, 1]])
    found = cases(path, raters=("Eve", "Bob"), rater_names="each")  # in another order for each image
    for i, case in enumerate(found):
        np.testing.assert_array_equal(case.masks[:, 0], masks[i, [(4 + i) % 5, (1 + i) % 5]])
    masks, counts = write_raters(path, names=names)
    found = cases(path, raters=("Ann", "Di"), rater_names="names", counts="n_raters")
    assert [len(case.masks) for case in found] == [1 + (count > 3) for count in counts]
    assert "case 'cell0_000': expected a mask of Bob or Di (--raters), found none" in refused(
        lambda: cases(path, raters=("Bob", "Di"), rater_names="names", counts="n_raters")
    )


# --- values, size ---


def test_intensities(tmp_path):
    """The options choose the rule; what each does is tested in test_intensity.py."""
    rng = np.random.default_rng(1)
    floats = rng.normal(100, 30, (5, 4, H, W)) * (rng.random((5, 4, H, W)) > 0.4)
    wide = rng.integers(0, 2**16, (5, 4, H, W), np.uint16)
    for number, (images, options, rule) in enumerate(
        (
            (wide.astype(">u2"), {"scale": "dtype"}, Intensity("dtype")),
            (floats, {"window": (50.0, 150.0)}, Intensity("window", (50.0, 150.0))),
            (floats, {"scale": "percentiles", "tails": 5.0}, Intensity("percentiles", tails=5.0)),
            (floats, {"scale": "minmax"}, Intensity("minmax", field=W)),
            (floats, {"scale": "brain", "tails": 2.0}, Intensity("brain", tails=2.0)),
        )
    ):
        reading = read(write(tmp_path / f"{number}.h5", images=images), Options(labels=CODES, **options))
        assert (reading.dtype, reading.intensity) == ("float32", rule)
        for case, stored in zip(reading.cases, images.astype(images.dtype.newbyteorder("=")), strict=True):
            expected = to_unit(stored[:, None], rule, "x", planar=True, forced=True)
            np.testing.assert_allclose(case.image, expected[:, 0], atol=1e-5)
    for name, images, dtype in (("8", content()["images"], "uint8"), ("unit", rng.random((5, 4, H, W)), "float32")):
        reading = read(write(tmp_path / f"{name}.h5", images=images), Options(labels=CODES, scale="brain", scaled=True))
        np.testing.assert_allclose(next(reading.cases).image, images[0], atol=1e-6)  # stays as it is
        assert (reading.dtype, reading.intensity.rule) == (dtype, "brain")


def test_size_spacing_and_empty_images(tmp_path):
    labels = content()["labels"]
    labels[[1, 4]] = 0
    path = write(tmp_path / "a.h5", labels=labels)
    reading = read(path, Options(labels=CODES, drop_empty=True, size=(8, 8), spacing=(1.0, 1.0)))
    found = list(reading.cases)
    assert (reading.total, reading.size, len(found), found[0].spacing) == (None, (8, 8), 3, (1.0, 1.0))
    np.testing.assert_array_equal(found[1].image, content()["images"][2, :, 2:-2, 4:-4])
    np.testing.assert_array_equal(found[1].masks[0, 0], labels[2, 2:-2, 4:-4] == 1)
    (case, *_) = cases(path, labels=CODES, size=(24, 8), fit="resize", spacing=(1.0, 1.0))
    assert (case.image.shape, case.spacing) == ((4, 24, 8), (0.5, 2.0))
    np.testing.assert_array_equal(case.masks[0, 0, ::2, :], labels[0][:, 1::2] == 1)


def test_memory_does_not_grow_with_the_file(tmp_path):
    """650 MB by its headers, of which a small part is read at a time."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("images", "labels"):
            file.create_dataset(name, (5_000, 256, 256), np.uint8, chunks=(1, 256, 256), fillvalue=1)
    tracemalloc.start()
    reading = read(tmp_path / "a.h5", Options(uids=None))
    first = [next(reading.cases) for _ in range(300)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len({case.name for case in first}) == 300
    assert peak < 2**27


def test_blocks_change_nothing(tmp_path, monkeypatch):
    path = write(tmp_path / "a.h5")
    expected = cases(path, labels=REGIONS)
    monkeypatch.setattr(hdf5_file, "BLOCK", 4 * H * W * 2)  # two images
    for a, b in zip(expected, cases(path, labels=REGIONS), strict=True):
        assert a.name == b.name
        np.testing.assert_array_equal(a.image, b.image)
        np.testing.assert_array_equal(a.masks, b.masks)


# --- bad input ---


def nan_images():
    images = np.zeros((5, 4, H, W), np.float32)
    images[3, 2, 1, 0] = np.nan
    return images


def with_three():
    labels = content()["labels"]
    labels[2, 0, 0] = 3
    return labels


BAD = (  # what is changed in the file, the options, and what is named beside the file or option
    ({"labels": with_three()}, {}, "p1_082"),
    ({}, {"labels": ()}, "p0_080"),
    ({"labels": np.zeros((5, H, W + 1), int)}, {}, "labels"),
    ({"labels": np.zeros((4, H, W), int)}, {}, "labels"),
    ({"labels": np.zeros((5, H, W))}, {}, "float64"),
    ({"images": np.zeros((5, 12, 12)), "labels": np.zeros((5, 12, 12, 12), int)}, {}, "labels"),
    ({"images": np.zeros((5, H))}, {}, "images"),
    ({"images": np.zeros((5, H, W))}, {"channels_last": True}, "images"),
    ({"images": np.zeros((5, 4, H, W), "S3")}, {}, "S3"),
    ({"images": np.zeros((5, 0, H, W))}, {}, "images"),
    ({"images": nan_images()}, {"window": (0.0, 1.0)}, "p1_083"),
    ({"images": nan_images()}, {"scale": "dtype"}, "--scale dtype"),
    ({"images": np.zeros((5, 4, H, W), int)}, {"scaled": True}, "--scaled"),
    ({"images": None}, {}, "labels, slices, uids"),
    ({"uids": None}, {}, "uids"),
    ({"uids": np.array([b"a"])}, {}, "uids"),
    ({"uids": np.zeros(5)}, {}, "float64"),
    ({"slices": np.zeros((5, 2), int)}, {}, "slices"),
    ({}, {"slices": "z"}, "z"),
    ({}, {"groups": ("train=none",)}, "none/images"),
    ({}, {"groups": ("dev=a",)}, "dev=a"),
    ({}, {"groups": ("train=a", "b")}, "train=a b"),
    ({}, {"channels": ("t1", "t2")}, "t1 t2"),
    ({}, {"channels": ("a", "a", "b", "c")}, "--channels"),
    ({}, {"labels": ("a=1", "b")}, "--labels"),
)


def test_bad_files_and_options(tmp_path):
    for number, (changes, options, named) in enumerate(BAD):
        path = write(tmp_path / f"{number}.h5", **changes)
        found = refused(lambda path=path, options=options: cases(path, **{"labels": CODES, **options}), named)
        assert found.startswith((f"{path}: ", "--"))


def test_bad_raters(tmp_path):
    who, five = {"raters": ("a",), "rater_names": "who"}, [b"b", b"c", b"d", b"e", b"f"]
    bad = (
        ({"n_raters": [1, 2, 3, 4, 5, 9]}, {}, "cell5_000"),
        ({"n_raters": [0, 2, 3, 4, 5, 1]}, {}, "cell0_000"),
        ({"n_raters": [1, 2]}, {}, "n_raters"),
        ({"n_raters": [1] * 6}, {}, "case 'cell"),
        ({}, {"raters": ("5",)}, "--raters"),
        ({}, {"raters": ("Ann",)}, "--raters"),
        ({"who": [b"a", b"b"]}, who, "--rater-names"),
        ({"who": [b"a,b,c,d,e,f"] * 6}, who, "--rater-names"),
        ({"who": five}, who, "--raters"),
    )
    for number, (changes, options, named) in enumerate(bad):
        path = tmp_path / f"{number}.h5"
        write_raters(path, **changes)
        refused(lambda path=path, options=options: cases(path, counts="n_raters", **options), named)


def test_bad_settings(tmp_path):
    write(tmp_path / "a.h5")
    for options, named in (
        ({"window": (4.0, 4.0)}, "--window"),
        ({"window": (0.0, 4.0), "scale": "brain"}, "--scale brain"),
        ({"rater_names": "who"}, "--rater-names"),
        ({"raters": ("1", "1")}, "--raters"),
        ({"spacing": (0.0, 1.0)}, "--spacing"),
    ):
        made = Options(**options)
        refused(lambda made=made: prepare("hdf5", tmp_path / "a.h5", tmp_path / "s", made), named)


def test_commands_of_the_docs(tmp_path, monkeypatch, capsys):
    """Each command of docs/data.md, on small files of those names and layouts."""
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text().replace("\\\n", "")
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("berdiff data prepare hdf5 ")]
    monkeypatch.chdir(tmp_path)
    write("brats2021_human_128.h5", {split: content(2, patient=split) for split in ("train", "val", "test")})
    write("brats2021_silver_128.h5", {"train": content()})
    names = ",".join(f"Person{i}_{program}" for i in range(1, 6) for program in ("Amira", "ImageJ"))
    masks, _ = write_raters("bubil_d1_d3_128.h5", channels=10, n_raters=[10] * 6, raters=[names.encode()] * 6)
    for command in commands:
        assert main(command) == 0, capsys.readouterr().err
    stores = {command[4]: Store.open(command[4]) for command in commands}
    kinds = {name: (len(store.targets), store.input_spec.kind, store.raters) for name, store in stores.items()}
    assert kinds == {
        "whole.zarr": (1, "independent", 1),
        "regions.zarr": (3, "nested", 1),
        "labels.zarr": (3, "exclusive", 1),
        "silver.zarr": (1, "independent", 1),
        "cells.zarr": (1, "independent", 5),
    }
    assert set(stores["silver.zarr"].cases.split) == {"train"}
    found = {case: stores["cells.zarr"].read([i])[1][0, :, 0] for i, case in enumerate(stores["cells.zarr"].cases.case)}
    for i in range(6):
        np.testing.assert_array_equal(found[f"cell{i}_000"], masks[i, 1::2])


# --- the real files ---


def test_real_cells_of_five_people(shared_data):
    people = tuple(f"Person{i}_ImageJ" for i in range(1, 6))
    options = Options(counts="n_raters", rater_names="raters", raters=people, labels=("cell=1",))
    path = shared_data / "multirater" / "bubil_d1_d3_128.h5"
    reading = read(path, options)
    assert (reading.total, reading.raters, reading.channels, reading.dtype) == (82, 5, ("image",), "uint8")
    with h5py.File(path) as file:
        for case, labels in zip(reading.cases, file["labels"][:3], strict=False):
            np.testing.assert_array_equal(case.masks[:, 0], np.moveaxis(labels[..., 1::2], -1, 0) > 0)

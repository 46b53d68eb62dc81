"""LIDC in pictures: the v2 crops, the PNG tree, CIMD's JPG folders; made ones and the real ones."""

from pathlib import Path
from types import ModuleType

import h5py
import numpy as np
import pytest
from layouts import refused, save, write_crops, write_jpg_folders, write_png_tree

from berdiff.data.input_spec import Intensity
from berdiff.data.prepare import prepare
from berdiff.data.sources import lidc_crops, lidc_jpg, lidc_png
from berdiff.data.split import leak
from berdiff.data.store import Store
from berdiff.data.verify import verify


def prepared(source: str, path: Path, out: Path, options: object = None) -> Store:
    prepare(source, path, out, options)
    assert verify(out) == []
    store = Store.open(out)
    assert leak(store.cases.patient, store.cases.split) is None
    return store


def test_png_tree(tmp_path):
    images, masks = write_png_tree(tmp_path / "in")
    store = prepared("lidc-png", tmp_path / "in", tmp_path / "s")
    got, readers = store.read(range(12))
    np.testing.assert_allclose(got[:, 0], images / 255, atol=1e-7)
    np.testing.assert_array_equal(readers[:, :, 0], masks)
    assert store.input_spec.intensity == Intensity("minmax", field=32)
    assert store.cases.case[5] == "LIDC-IDRI-0001/nodule-0/slice-1"
    assert list(store.cases.patient[::4]) == ["LIDC-IDRI-0000", "LIDC-IDRI-0001", "LIDC-IDRI-0002"]
    inner = prepared("lidc-png", tmp_path / "in" / "LIDC-IDRI-slices", tmp_path / "inner")  # the folder within will do
    assert list(inner.cases.case) == list(store.cases.case)


def test_png_tree_in_the_order_of_numbers(tmp_path):
    for nodule in (10, 9, 0):
        for z in (11, 2):
            base = tmp_path / "p" / f"nodule-{nodule}"
            for folder in ("images", *(f"mask-{k}" for k in range(4))):
                save(base / folder / f"slice-{z}.png", np.zeros((8, 8), np.uint8))
    names = [case.name for case in lidc_png.read(tmp_path, lidc_png.Options()).cases]
    assert names == [f"p/nodule-{nodule}/slice-{z}" for nodule in (0, 9, 10) for z in (2, 11)]


def test_crops(tmp_path):
    made = write_crops(tmp_path / "in")
    store = prepared("lidc-crops", tmp_path / "in", tmp_path / "s", lidc_crops.Options(size=32))
    assert store.manifest.options == {"size": 32, "readers": 4, "fit": "crop"}
    for split, (images, masks) in made.items():
        got, readers = store.read(store.indices(split))
        np.testing.assert_allclose(got[:, 0], images[:, 6:-6, 6:-6] / 255, atol=1e-7)
        np.testing.assert_array_equal(readers[:, :, 0], masks[..., 6:-6, 6:-6])
    assert store.cases.case[0] == "LIDC-IDRI-0000/z-0.5_c0"
    np.testing.assert_array_equal(store.cases.spacing, 0.5)
    whole = prepared("lidc-crops", tmp_path / "in", tmp_path / "whole", lidc_crops.Options(size=44))
    np.testing.assert_allclose(whole.read(whole.indices("val"))[0][:, 0], made["val"][0] / 255, atol=1e-7)


def test_crops_of_180_give_the_centre_128_of_public_code(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (180, 180), dtype=np.uint8)
    save(tmp_path / "test/images/p/z-1_c0.png", image)
    for k in range(4):
        save(tmp_path / f"test/gt/p/z-1_c0_l{k}.png", np.zeros((180, 180), np.uint8))
    (case,) = lidc_crops.read(tmp_path, lidc_crops.Options()).cases
    np.testing.assert_array_equal(case.image[0], image[26:-26, 26:-26])


def test_crops_resized_keep_the_whole_crop(tmp_path):
    """As the paper does: 180 to 128. Masks stay of 0 and 1, and a pixel has other millimetres."""
    blob = np.zeros((180, 180), np.uint8)
    blob[40:120, 60:100] = 255
    save(tmp_path / "in/test/images/p/z-1_c0.png", blob)
    for k in range(4):
        save(tmp_path / f"in/test/gt/p/z-1_c0_l{k}.png", blob)
    store = prepared("lidc-crops", tmp_path / "in", tmp_path / "s", lidc_crops.Options(fit="resize"))
    image, masks = store.read([0])
    assert image.shape == (1, 1, 128, 128)
    np.testing.assert_array_equal(image[0, 0] > 0.5, masks[0, 0, 0])
    assert masks[0, 3, 0].sum() == pytest.approx(80 * 40 * (128 / 180) ** 2, rel=0.03)
    np.testing.assert_allclose(store.cases.spacing, 0.5 * 180 / 128)


def test_crops_larger_than_they_are(tmp_path):
    write_crops(tmp_path)
    bad(lidc_crops, tmp_path, "--size", "128")


def test_jpg_folders(tmp_path):
    made = write_jpg_folders(tmp_path / "in")
    store = prepared("lidc-jpg", tmp_path / "in", tmp_path / "s")
    for folder, split in (("training", "train"), ("testing", "test")):
        _, readers = store.read(store.indices(split))
        np.testing.assert_array_equal(readers[:, :, 0], made[folder][1])  # blurred by JPG, exact after the threshold
    assert "patients unknown" in store.notes[0]
    assert list(store.cases.case) == ["training/0", "training/1", "training/2", "testing/0", "testing/1"]
    wrong = lidc_jpg.Options(threshold=255)
    refused(lambda: prepare("lidc-jpg", tmp_path / "in", tmp_path / "t", wrong), "--threshold")


def test_bad_pictures(tmp_path):
    """One fault after the other in one picture of a good folder; the sentence names that picture."""
    write_png_tree(tmp_path)
    mask, image = (
        next(iter(sorted(tmp_path.glob(f"**/{place}")))) for place in ("mask-1/slice-0.png", "images/slice-1.png")
    )
    colours = np.zeros((32, 32, 3), np.uint8)
    colours[:16, :, 0] = 200
    small, grey = np.zeros((9, 9), np.uint8), np.full((32, 32), 7, np.uint8)
    for path, change in (
        (mask, lambda: save(mask, small)),
        (mask, mask.unlink),
        (mask, lambda: save(mask, grey)),
        (image, lambda: save(image, small)),
        (image, lambda: save(image, colours)),
    ):
        good = path.read_bytes()
        change()
        bad(lidc_png, tmp_path, str(path))
        path.write_bytes(good)
    assert len(list(lidc_png.read(tmp_path, lidc_png.Options()).cases)) > 4  # all is good again


def bad(module: ModuleType, root: Path, *named: str) -> None:
    refused(lambda: list(module.read(root, module.Options()).cases), *named)


def test_a_link_out_of_the_folder(tmp_path):
    write_png_tree(tmp_path / "data")
    for place in ("mask-1/slice-0.png", "images/slice-1.png"):
        path = next(iter(sorted(tmp_path.glob(f"data/**/{place}"))))
        path.rename(tmp_path / "elsewhere.png")
        path.symlink_to(tmp_path / "elsewhere.png")
        bad(lidc_png, tmp_path / "data", str(path), "elsewhere.png")
        (tmp_path / "elsewhere.png").replace(path)


def test_a_reader_too_many(tmp_path):
    write_png_tree(tmp_path)
    nodule = next(tmp_path.glob("*/*/nodule-1"))
    (nodule / "mask-4").mkdir()
    bad(lidc_png, tmp_path, str(nodule), "mask-4")


def test_two_images_in_a_jpg_folder(tmp_path):
    write_jpg_folders(tmp_path)
    save(tmp_path / "training/1/image_9.jpg", np.zeros((32, 32), np.uint8))
    bad(lidc_jpg, tmp_path, f"{tmp_path}/training/1")


def test_real_png_tree_equals_the_real_hdf5(shared_data, tmp_path):
    """Two public forms of the same patients, read by two sources: every slice must be the same in both."""
    store = prepared("lidc-png", shared_data / "layouts" / "lidc_png_tree", tmp_path / "s")
    assert len(set(store.cases.patient)) == 8
    images, masks = store.read_stored(np.arange(len(store)))
    place = {name: i for i, name in enumerate(store.cases.case)}
    found = 0
    with h5py.File(shared_data / "lidc" / "data_lidc.hdf5") as file:
        for group in file.values():
            for i in np.flatnonzero(np.isin(group["uids"][:].astype(str), store.cases.patient.astype(str))):
                name = f"{group['uids'][i].decode()}/nodule-{group['nodules'][i]}/slice-{group['slices'][i]}"
                np.testing.assert_array_equal(images[place[name], 0], group["images"][i])
                np.testing.assert_array_equal(masks[place[name], :, 0], np.moveaxis(group["labels"][i], -1, 0))
                found += 1
    assert found == len(store) == 145


def test_real_jpg_folders(shared_data, tmp_path):
    store = prepared("lidc-jpg", shared_data / "layouts" / "lidc_jpg_folders", tmp_path / "s")
    assert {name: count["cases"] for name, count in store.manifest.counts.items()} == {
        "all": 28,
        "train": 19,
        "val": 0,
        "test": 9,
    }
    _, masks = store.read(store.indices("all"))
    readers = masks.any(axis=(2, 3, 4)).sum(1)  # every slice has 1 to 4 readers who marked something
    assert readers.min() >= 1

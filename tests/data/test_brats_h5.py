"""Kaggle's BraTS 2020: the slices it keeps are those of `brats`, whichever way its masks are written."""

import h5py
import numpy as np
from brats_writer import SHAPE, case_folder, scan
from brats_writer import cases as brats_cases
from layouts import refused

from berdiff.data.input_spec import Intensity
from berdiff.data.intensity import to_unit
from berdiff.data.prepare import prepare
from berdiff.data.sources.brats_h5 import Options, read
from berdiff.data.store import Store
from berdiff.data.verify import verify

ORDER = ("flair", "t1", "t1ce", "t2")
FIRST = 79  # number of the lowest slice: one below those that are kept
SMALL = {"size": (16, 16)}
TABLE = "slice_path,target,volume,slice\n"


def slice_of(parts, z, regions=False):
    """What the files hold: NIfTI's x and y, each sequence with mean 0 and deviation 1, a channel per label."""
    images = np.stack([parts[name][z].T.astype(float) for name in ORDER], axis=-1)
    seg = parts["seg"][z].T
    sets = ((1, 2, 4), (1, 4), (4,)) if regions else ((1,), (2,), (4,))
    mask = np.stack([np.isin(seg, labels) for labels in sets], axis=-1).astype(np.uint8)
    return {"image": (images - images.mean((0, 1))) / images.std((0, 1)), "mask": mask}


def write(root, volumes=(1,), regions=False, table=True, **changes):
    """Each volume is another scan; `changes` replace a dataset of volume 1's slice 82, None leaves it out."""
    root.mkdir(parents=True, exist_ok=True)
    lines = ""
    for volume in volumes:
        parts = scan(volume)
        for z in range(SHAPE[0]):
            name = f"volume_{volume}_slice_{FIRST + z}.h5"
            content = slice_of(parts, z, regions) | (changes if name == "volume_1_slice_82.h5" else {})
            with h5py.File(root / name, "w") as file:
                for key, data in content.items():
                    if data is not None:
                        file[key] = data
            lines += f"/content/data/{name},{int(parts['seg'][z].any())},{volume},{FIRST + z}\n"
    if table:
        (root / "meta_data.csv").write_text(TABLE + lines)
    return root


def cases(root, **options):
    return list(read(root, Options(**{**SMALL, **options})).cases)


def test_the_same_slices_as_from_the_scan(tmp_path):
    root, scans = write(tmp_path / "h5"), case_folder(tmp_path / "nii", seed=1)
    for targets in ("whole", "regions", "labels"):
        found = cases(root, targets=targets)
        expected = brats_cases(scans, targets=targets, bottom=1, top=0)
        assert [case.name for case in found] == [f"volume_1_{number:03d}" for number in range(80, 85)]
        for a, b in zip(found, expected, strict=True):
            assert (a.patient, a.volume, a.split) == ("volume_1", "volume_1", "")
            assert a.spacing == b.spacing
            np.testing.assert_array_equal(a.masks, b.masks)
    reading = read(root, Options(sequences=("t2", "flair"), size=SHAPE[1:]))
    assert (reading.channels, reading.intensity) == (("t2", "flair"), Intensity("minmax", field=24))
    for z, case in enumerate(reading.cases, 1):
        raw = np.stack([scan(1)[name][None, z].astype(np.float32) for name in ("t2", "flair")])
        scaled = to_unit(raw, reading.intensity, "a scan in use", planar=False)
        np.testing.assert_allclose(case.image, scaled[:, 0], atol=1e-5)
        assert case.image.min() == 0
        assert case.image.max() == 1


def test_masks_as_regions_and_another_order(tmp_path):
    root = write(tmp_path / "labels")
    for a, b in zip(
        cases(root, targets="labels"),
        cases(write(tmp_path / "regions", regions=True), targets="labels", masks="regions"),
        strict=True,
    ):
        np.testing.assert_array_equal(a.masks, b.masks)
    swapped = cases(root, order=("t1", "flair", "t1ce", "t2"), sequences=("t1",))
    np.testing.assert_array_equal(swapped[0].image, cases(root, sequences=("flair",))[0].image)


def test_a_store_of_several_volumes(tmp_path):
    root = write(tmp_path / "archive" / "content", volumes=(2, 10, 1))
    (tmp_path / "t.csv").write_text("case,patient,split\nvolume_1,a,train\nvolume_2,a,train\nvolume_10,b,test\n")
    options = Options(targets="regions", table=tmp_path / "t.csv", keep_empty="train", **SMALL)
    prepare("brats-h5", root.parent, tmp_path / "s", options)
    assert verify(tmp_path / "s") == []
    store = Store.open(tmp_path / "s")
    assert (store.input_spec.kind, store.input_spec.notes) == ("nested", ("slices without tumour kept: train",))
    kept = {volume: sum(store.cases.volume == f"volume_{volume}") for volume in (1, 2, 10)}
    assert kept == {1: 5, 2: 5, 10: 3}  # two slices of every scan are without tumour
    assert list(dict.fromkeys(store.cases.volume)) == ["volume_1", "volume_2", "volume_10"]


def test_the_table_says_what_must_be_there(tmp_path):
    root = write(tmp_path / "a")
    with (root / "meta_data.csv").open("a") as file:
        file.writelines(f"x,0,{volume},80\n" for volume in (7, 8, 9))
    assert read(root, Options()).notes[0] == "3 volumes of the table are not in the folder"
    (root / "volume_1_slice_79.h5").unlink()  # not among the slices to keep
    assert len(cases(root)) == 5
    (root / "volume_1_slice_83.h5").unlink()
    expected = "meta_data.csv: expected every slice that it lists of volume 1 (or no such table)"
    assert f"{expected}, found no volume_1_slice_83.h5" in refused(lambda: cases(root))
    (root / "meta_data.csv").unlink()
    assert len(cases(root)) == 4
    for text in ("volume,number\n1,2\n", "volume,slice\n1\n", "volume,slice\none,2\n", "volume,slice\n\xe9,2\n"):
        (root / "BraTS20 Training Metadata.csv").write_bytes(text.encode("latin-1"))
        assert "Metadata.csv" in refused(lambda: cases(root))


def test_bad_slices(tmp_path):
    good = slice_of(scan(1), 3)
    both, outside = good["mask"].copy(), good["mask"] * 0
    both[2:5, 2:4, :2] = 1
    outside[3:5, 3, 2] = 1
    bad = (
        ({"image": None}, {}, "image"),
        ({"mask": None}, {}, "mask"),
        ({"image": good["image"][:-1]}, {}, "(23, 20, 4)"),
        ({"image": np.zeros((24, 20, 4), int)}, {}, "int64"),
        ({"mask": good["mask"][..., :2]}, {}, "(24, 20, 2)"),
        ({"mask": good["mask"] * 3}, {}, "0, 3"),
        ({"mask": both}, {}, "6 pixels of both"),
        ({"mask": outside}, {"masks": "regions"}, "2 pixels of enhancing_tumour outside tumour_core"),
    )
    for number, (changes, options, named) in enumerate(bad):
        root = write(tmp_path / str(number), regions=bool(options), **changes)
        refused(lambda root=root, options=options: cases(root, **options), "volume_1_slice_82.h5", named)
    with h5py.File(root / "volume_1_slice_80.h5", "w") as file:
        file.create_dataset("image", (2**20, 2**20, 4), "f8")  # its header alone
    refused(lambda: cases(root), "slice_80.h5", "--max-pixels")


def test_bad_folders_and_options(tmp_path):
    root = write(tmp_path / "a")
    refused(lambda: cases(root, bottom=90), "bottom 90")
    for options, named in (
        ({"order": ("t1", "t2")}, "--order"),
        ({"sequences": ("t1", "t1")}, "--sequences"),
        ({"keep_empty": "train"}, "--keep-empty train"),
    ):
        made = Options(**options)
        refused(lambda made=made: prepare("brats-h5", root, tmp_path / "s", made), named)
    assert not (tmp_path / "s").exists()

"""Sizes before bytes: a header that promises too much is refused before anything is unpacked."""

import gzip
import os
import pickle
import resource
import time

import h5py
import nibabel
import numpy as np
import pytest
import tifffile
from bombs import deflated, png_header
from dicom_writer import write_slice
from layouts import refused
from PIL import Image

from berdiff.cli.main import main
from berdiff.data import dicom
from berdiff.data.limits import Limits, using
from berdiff.data.reading import read_image
from berdiff.data.shards import cases_per_shard
from berdiff.data.sources import lidc_hdf5, lidc_pickle

SMALL = Limits(max_pixels=300, max_gigabytes=1e-6)


def peak() -> float:
    """Megabytes, the most that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def test_bombs_cost_nothing(tmp_path):
    tiff = tmp_path / "t.tif"
    tifffile.imwrite(tiff, np.zeros((64, 64), np.uint8), compression="deflate")
    with tifffile.TiffFile(tiff, mode="r+b") as file:
        for tag in ("ImageWidth", "ImageLength", "RowsPerStrip"):
            file.pages.first.tags[tag].overwrite(40000)
    nii = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.int16), np.eye(4))
    nii.header.set_data_shape((2000, 2000, 500))
    (tmp_path / "n.nii.gz").write_bytes(gzip.compress(nii.header.binaryblock + b"\0" * 2**20))
    nii.header.set_data_shape((8, 8, 8))
    nii.header["vox_offset"] = 2**31
    (tmp_path / "o.nii.gz").write_bytes(gzip.compress(nii.header.binaryblock + b"\0" * 2**20))
    np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "u1", (30000, 30000)).flush()
    before = peak()
    for path, sentence in (
        (png_header(tmp_path / "p.png", 40000, 40000), "at most 536870912 pixels (--max-pixels), found 1600000000"),
        (tiff, "(--max-pixels), found 1600000000 (40000x40000"),
        (tmp_path / "n.nii.gz", "(--max-pixels), found 2000000000 (2000x2000x500)"),
        (tmp_path / "o.nii.gz", "byte 2147483648"),
        (tmp_path / "a.npy", "(--max-pixels), found 900000000"),
        (deflated(tmp_path / "d.dcm", 1000), "expected at most 0.03125 GB when unpacked (--max-gigabytes)"),
    ):
        refused(lambda path=path: read_image(path), path.name, sentence)
    assert peak() - before < 100


def test_the_options_move_the_limits(tmp_path):
    picture = tmp_path / "p.png"
    Image.fromarray(np.zeros((20, 20), np.uint8)).save(picture)
    with using(SMALL):
        refused(lambda: read_image(picture), "expected at most 300 pixels (--max-pixels), found 400 (20x20x1)")
    with using(Limits(max_pixels=400)):
        assert read_image(picture).values.shape == (1, 1, 20, 20)
    slices = [write_slice(tmp_path / "s" / f"{z}.dcm", np.zeros((8, 8)), z).parent for z in range(9)]
    with using(SMALL):
        refused(lambda: dicom.read_series(slices[0]), "(--max-pixels), found 576 (9x8x8)")
    assert main(["segment", "lidc", str(picture), "--out", str(tmp_path / "o"), "--max-pixels", "0"]) == 2


def test_a_picture_is_taken_for_what_it_is(tmp_path):
    """Pillow would start Ghostscript for this one."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    refused(lambda: read_image(tmp_path / "a.png"), "expected a picture (PNG, JPG or TIFF), found something else")


@pytest.mark.parametrize("kind", ["key", "uid", "memo", "length"])
def test_small_pickles_stay_small(tmp_path, kind):
    """0.1.0 took for ever to hash the first, and gigabytes for the others."""
    nested: object = ()
    for _ in range(60):
        nested = (nested, nested)
    listed: object = []
    for _ in range(60):
        listed = [listed, listed]
    entry = {"image": np.zeros((4, 4)), "masks": [np.zeros((4, 4), np.uint8)], "series_uid": listed}
    programs = {
        "key": b"\x80\x04}" + pickle.dumps(nested, 4)[2:-1] + b"K\x01s.",
        "uid": pickle.dumps({"s": entry}, 4),
        "memo": b"\x80\x04Nr\xff\xff\xff\x7f.",
        "length": b"\x80\x05\x96" + (2**40).to_bytes(8, "little") + b".",
    }
    (tmp_path / "a.pickle").write_bytes(programs[kind])
    start = time.process_time()
    refused(lambda: lidc_pickle.read(tmp_path / "a.pickle", lidc_pickle.Options()), "a.pickle")
    assert time.process_time() - start < 2


def test_hdf5_promises_and_links(tmp_path):
    def read(name):
        return lambda: lidc_hdf5.read(tmp_path / name, lidc_hdf5.Options())

    with h5py.File(tmp_path / "huge.h5", "w") as file:
        file.create_dataset("train/images", (2, 40000, 40000), "u1", chunks=(1, 400, 400), compression="gzip")
        file.create_dataset("train/labels", (2, 40000, 40000, 4), "u1", chunks=(1, 400, 400, 1), compression="gzip")
        file["train/uids"] = np.array([b"a", b"b"])
    refused(read("huge.h5"), "train/images: expected at most 536870912 pixels (--max-pixels), found 1600000000")
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file.create_dataset("train/images", (2**40, 8, 8), "u1", chunks=(1, 8, 8))
    refused(read("many.h5"), "expected at most 16777216 images, found 1099511627776")
    os.mkfifo(tmp_path / "pipe")  # a link to it would wait for ever
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["out"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/")
        file["train"] = h5py.SoftLink("/out/train")
    refused(read("link.h5"), "expected data in this file, found a link to")
    with h5py.File(tmp_path / "circle.h5", "w") as file:
        file["train"] = h5py.SoftLink("/train")
    refused(read("circle.h5"), "expected data in this file, found links in a circle")


def test_large_cases_are_packed_a_few_to_a_file():
    """Memory follows bytes: two images of 6000x6000 with a mask each need no 34 GB."""
    assert (cases_per_shard(2 * 6000 * 6000), cases_per_shard(2**30), cases_per_shard(1)) == (3, 1, 256)


def test_a_file_of_empty_elements_takes_no_time(tmp_path):
    path = write_slice(tmp_path / "a.dcm", np.zeros((8, 8)))
    path.write_bytes(path.read_bytes() + b"\0" * 2**24)
    start = time.process_time()
    refused(lambda: dicom.read_pixels(path), "more than 50000 elements")
    assert time.process_time() - start < 5

"""Good inputs of every format and folder that is read, small: what the fuzzer damages."""

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import nibabel
import numpy as np
import tifffile
from brats_writer import case_folder
from dicom_writer import write_slice
from PIL import Image
from pydicom import dcmread
from pydicom.uid import DeflatedExplicitVRLittleEndian, RLELossless

from berdiff.data.prepare import prepare

SIDE = 24


def _values(dtype: str, shape: tuple[int, ...] = (SIDE, SIDE), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.random(shape).astype(dtype) if dtype[0] == "f" else rng.integers(0, 200, shape).astype(dtype)


def _mask(shape: tuple[int, ...] = (SIDE, SIDE)) -> np.ndarray:
    mask = np.zeros(shape, np.uint8)
    mask[..., 6:14, 8:16] = 255
    return mask


def _pictures(root: Path) -> None:
    Image.fromarray(_values("uint8")).save(root / "grey.png")
    Image.fromarray(_values("uint16")).save(root / "deep.png")
    Image.fromarray(np.repeat(_values("uint8")[..., None], 3, 2)).save(root / "colour.png")
    Image.fromarray(_values("uint8")).convert("P").save(root / "palette.png")
    Image.fromarray(_values("uint8")).save(root / "lossy.jpg")


def _tiffs(root: Path) -> None:
    for compression in ("deflate", None):
        tifffile.imwrite(root / f"{compression}.tif", _values("uint16"), compression=compression)
    tifffile.imwrite(root / "float.tif", _values("f4"), tile=(16, 16))
    Image.fromarray(_values("uint8")).save(root / "lzw.tif", compression="tiff_lzw")
    Image.fromarray(_values("uint8")).save(root / "packbits.tif", compression="packbits")


def _niftis(root: Path) -> None:
    affine = np.diag([-0.7, -0.7, 2.5, 1])
    volume = _values("int16", (SIDE, SIDE, 3))
    nibabel.save(nibabel.Nifti1Image(volume, affine), root / "volume.nii.gz")
    nibabel.save(nibabel.Nifti1Image(volume.astype("f4"), affine), root / "plain.nii")
    nibabel.save(nibabel.Nifti2Image(volume, affine), root / "second.nii")
    nibabel.save(nibabel.Nifti1Image(_values("f8"), affine), root / "plane.nii.gz")
    scaled = nibabel.Nifti1Image(volume, affine)
    scaled.header.set_slope_inter(0.5, -10)
    scaled.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"a comment"))
    nibabel.save(scaled, root / "scaled.nii")


def _dicoms(root: Path) -> None:
    for z in range(3):
        write_slice(root / "series" / f"{z}.dcm", _values("int16", seed=z), 2.5 * z)
    one = write_slice(root / "one" / "1.dcm", _values("int16"))
    data = dcmread(one)
    data.compress(RLELossless)
    (root / "rle").mkdir()
    data.save_as(root / "rle" / "1.dcm")
    data = dcmread(one)
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    (root / "deflated").mkdir()
    data.save_as(root / "deflated" / "1.dcm")


def _npys(root: Path) -> None:
    for dtype in ("uint8", "f8", "int32", "f2"):
        np.save(root / f"{dtype}.npy", _values(dtype))
    np.save(root / "stack.npy", _values("uint16", (3, SIDE, SIDE)))


def _folder(root: Path) -> None:
    for name in ("a", "b", "c"):
        for part, values in (("images", _values("uint8")), ("masks", _mask())):
            (root / part).mkdir(exist_ok=True)
            Image.fromarray(values).save(root / part / f"{name}.png")
    (root / "table.csv").write_text("case,patient,split\na,1,train\nb,2,val\nc,3,test\n")


def _nnunet(root: Path) -> None:
    for part in ("imagesTr", "labelsTr"):
        (root / part).mkdir()
    affine = np.diag([-1, -1, 2, 1])
    for name in ("a", "b"):
        image = nibabel.Nifti1Image(_values("int16", (SIDE, SIDE, 2)), affine)
        nibabel.save(image, root / "imagesTr" / f"{name}_0000.nii.gz")
        labels = np.moveaxis(_mask((2, SIDE, SIDE)) // 255, 0, -1)
        nibabel.save(nibabel.Nifti1Image(labels, affine), root / "labelsTr" / f"{name}.nii.gz")
    described = '{"channel_names": {"0": "CT"}, "labels": {"background": 0, "tumour": 1}, "file_ending": ".nii.gz"'
    (root / "dataset.json").write_text(described + ', "numTraining": 2}')


def _hdf5(root: Path) -> None:
    with h5py.File(root / "data.h5", "w") as file:
        for split, n in (("train", 3), ("val", 1), ("test", 1)):
            file[f"{split}/images"] = _values("f4", (n, SIDE, SIDE))
            packed = {"compression": "gzip", "chunks": (1, SIDE, SIDE, 4)}
            file.create_dataset(f"{split}/labels", data=np.zeros((n, SIDE, SIDE, 4), np.uint8), **packed)
            file[f"{split}/uids"] = np.array([f"{split}{i}".encode() for i in range(n)])


def _brats_h5(root: Path) -> None:
    for number in (80, 81):
        with h5py.File(root / f"volume_1_slice_{number}.h5", "w") as file:
            file["image"], file["mask"] = _values("f8", (SIDE, SIDE, 4)), np.zeros((SIDE, SIDE, 3), np.uint8)
    (root / "meta_data.csv").write_text("slice_path,target,volume,slice\nx,0,1,80\nx,0,1,81\n")


def _pickle(root: Path) -> None:
    for protocol in (2, 4, 5):
        masks = [_mask() // 255 for _ in range(4)]
        slices = {f"s{i}": {"image": _values("f8"), "masks": masks, "series_uid": f"u{i}"} for i in range(3)}
        (root / f"{protocol}.pickle").write_bytes(pickle.dumps(slices, protocol))


def _store(root: Path) -> None:
    source = root / "source"
    source.mkdir()
    _folder(source)
    prepare("folder", source, root / "store")
    shutil.rmtree(source)


def _centers(root: Path) -> None:
    (root / "centers.csv").write_text("case,z,y,x,finding\nscan,,12,12,one\nscan,,6,6,two\n")
    Image.fromarray(_values("uint8")).save(root / "scan.png")


def _brats(root: Path) -> None:
    case_folder(root)


SEEDS: dict[str, Callable[[Path], None]] = {
    "pictures": _pictures,
    "tiff": _tiffs,
    "nifti": _niftis,
    "dicom": _dicoms,
    "npy": _npys,
    "folder": _folder,
    "nnunet": _nnunet,
    "hdf5": _hdf5,
    "brats-h5": _brats_h5,
    "pickle": _pickle,
    "store": _store,
    "centers": _centers,
    "brats": _brats,
}

"""Damage to files and folders: bytes anywhere, and the places of each format where a value decides how much is read."""

import contextlib
import gzip
import io
import json
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import nibabel
import numpy as np
from pydicom import dcmread

from berdiff.data.manifest import canonical, checksum

Rng = np.random.Generator
SIZES = (0, 1, -1, 2, 7, 127, 255, 256, 2**15, 2**16 - 1, 2**20, 40000, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1)
VALUES = (None, True, -1, 0, 1, 2**31, 2**70, 1e400, -1e308, 1e-320, float("nan"), "", "x" * 5000, "$\\frac{$", "[red]")
VALUES += (
    "../../x", "s3://nowhere/x", "http://127.0.0.1:9/x", "reference::x", [], {}, [[]], "\x1b[31m", "\x00", "1e400",
)  # fmt: skip
CELLS = (
    "", "nan", "inf", "-1", "1e999", "9" * 400, '"', "a,b,c,d,e,f,g", "\x00", "../..", "é", "\ud800", "$x$",
    "a\nb",
)  # fmt: skip


def damage(rng: Rng, root: Path) -> str:
    """Damage one file of a folder, or what it is; what was done, in words."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    path = files[rng.integers(len(files))]
    ways = [*_BYTES] * 2 + [*_BY_SUFFIX.get(_suffix(path), ())] * 4 + [*_ODD]
    done = []
    for _ in range(1 + int(rng.random() < 0.3)):
        way: Callable[[Rng, Path], None] = ways[rng.integers(len(ways))]
        if path.is_file() and path.stat().st_size < 50_000:  # no bomb of before
            with contextlib.suppress(Exception):  # what was damaged before may not be read by who damages it again
                way(rng, path)
            done.append(way.__name__.strip("_"))
    return f"{' + '.join(done)} of {path.relative_to(root)}"


def _suffix(path: Path) -> str:
    return ".nii.gz" if path.name.endswith(".nii.gz") else path.suffix


# --- bytes anywhere --------------------------------------------------------------------------------------------------


def _flip(rng: Rng, path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.choice([1, 2, 8, 64]))):
        if content:
            content[rng.integers(len(content))] = rng.integers(256)
    path.write_bytes(content)


def _cut(rng: Rng, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.integers(len(content) + 1)])


def _insert(rng: Rng, path: Path) -> None:
    content = path.read_bytes()
    at = int(rng.integers(len(content) + 1))
    path.write_bytes(content[:at] + rng.bytes(int(rng.choice([1, 4, 100, 5000]))) + content[at:])


def _repeat(rng: Rng, path: Path) -> None:
    content = path.read_bytes()
    first, last = sorted(rng.integers(len(content) + 1, size=2).tolist())
    path.write_bytes(content[:last] + content[first:last] * int(rng.integers(1, 5)) + content[last:])


def _size(rng: Rng, path: Path) -> None:
    """A number of interest somewhere, mostly near the beginning, where headers are."""
    content = bytearray(path.read_bytes())
    width = int(rng.choice([1, 2, 4, 8]))
    near = len(content) if rng.random() < 0.3 else min(len(content), 600)
    if near > width:
        at = int(rng.integers(near - width))
        number = int(rng.choice(np.array(SIZES, dtype=object))) % 256**width
        content[at : at + width] = number.to_bytes(width, str(rng.choice(["little", "big"])))  # type: ignore[arg-type]
    path.write_bytes(content)


_BYTES = (_flip, _cut, _insert, _repeat, _size)


# --- what a path is --------------------------------------------------------------------------------------------------


def _fifo(rng: Rng, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _socket(rng: Rng, path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as end:
        here = os.getcwd()
        os.chdir(path.parent)  # the address of a socket is short
        try:
            end.bind(path.name[-90:])
        finally:
            os.chdir(here)


def _link(rng: Rng, path: Path) -> None:
    path.unlink()
    to = ("nowhere", path.name, "/dev/zero", "/etc/passwd", "..", "/dev/stdin", "/proc/self/mem")
    path.symlink_to(to[rng.integers(len(to))])


def _folder(rng: Rng, path: Path) -> None:
    path.unlink()
    path.mkdir()


def _gone(rng: Rng, path: Path) -> None:
    path.unlink()


def _renamed(rng: Rng, path: Path) -> None:
    names = (b"\xff\xfe", b"n" * 230, b"[red]$x$ ", b"new\nline\x1b[31m", b"-out", b"\xe2\x80\xae", b"a b", b".h")
    name = names[rng.integers(len(names))] + os.fsencode(path.suffix if rng.random() < 0.8 else ".exe")
    os.rename(path, os.path.join(os.fsencode(path.parent), name))


def _other(rng: Rng, path: Path) -> None:
    """The content of another format under this name."""
    others = (b"", b"\0" * 4096, b"PK\3\4", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", b"GIF89a", b"<svg/>")
    path.write_bytes(others[rng.integers(len(others))] + rng.bytes(200))


_ODD = (_fifo, _socket, _link, _folder, _gone, _renamed, _other)


# --- by format -------------------------------------------------------------------------------------------------------


def _png_header(rng: Rng, path: Path) -> None:
    content = bytearray(path.read_bytes())
    if len(content) > 33:
        fields = [int(rng.choice([8, 24, 5000, 40000, 2**31 - 1])), int(rng.choice([0, 24, 40000, 2**31 - 1]))]
        content[16:29] = struct.pack(">IIBBBBB", *fields, *rng.choice([0, 1, 2, 3, 4, 6, 8, 16], 2).tolist(), 0, 0, 0)
        content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)


def _nifti_header(rng: Rng, path: Path) -> None:
    packed = path.name.endswith(".gz")
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    kind = nibabel.Nifti1Header if content[:4] == (348).to_bytes(4, "little") else nibabel.Nifti2Header
    length = kind.template_dtype.itemsize
    if len(content) < length:
        return
    header = kind(content[:length], check=False)
    names = [name for name in list(header.keys()) if header[name].dtype.kind in "iuf"]
    for _ in range(int(rng.integers(1, 4))):
        name = names[rng.integers(len(names))]
        field = header.structarr[name]
        odd = [*SIZES, np.nan, np.inf, 1e30, -1e-30] if field.dtype.kind == "f" else SIZES
        with np.errstate(all="ignore"):
            value = np.array(odd, dtype=object)[rng.integers(len(odd))]
            if field.dtype.kind in "iu":
                bounds = np.iinfo(field.dtype)
                value = int(np.clip(float(value), bounds.min, bounds.max // 2 + bounds.max // 2))
            if field.ndim:
                field[rng.integers(len(field))] = value
            else:
                header.structarr[name] = value
    content = header.binaryblock + content[length:]
    path.write_bytes(gzip.compress(content, 1) if packed else content)


def _unpacked(rng: Rng, path: Path) -> None:
    """Bytes anywhere, inside the compression."""
    path.write_bytes(gzip.decompress(path.read_bytes()))
    _BYTES[rng.integers(len(_BYTES))](rng, path)
    path.write_bytes(gzip.compress(path.read_bytes(), 1))


def _gz_bomb(rng: Rng, path: Path) -> None:
    image = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.int16), np.eye(4))
    image.header.set_data_shape((2000, 2000, 500))
    image.header["vox_offset"] = rng.choice([352.0, 2.0**31])
    path.write_bytes(gzip.compress(image.header.binaryblock + b"\0" * 2**22, 9))


def _dicom_tag(rng: Rng, path: Path) -> None:
    odd = (
        "", "0", "-1", "1e300", "nan", "inf", "99999", "x" * 100, "1\\2", "0\\0", "1\\0\\0\\0\\1\\0", "$x$[red]",
        "é",
    )  # fmt: skip
    tags = ("PixelSpacing", "ImagePositionPatient", "ImageOrientationPatient", "SliceThickness", "RescaleSlope")
    tags += (
        "RescaleIntercept", "InstanceNumber", "NumberOfFrames", "SeriesInstanceUID", "StudyInstanceUID",
        "PatientID",
    )  # fmt: skip
    tags += (
        "PatientName", "SpecificCharacterSet", "SOPClassUID", "SOPInstanceUID", "Modality", "StudyDate",
        "PatientSex",
    )  # fmt: skip
    numbers = ("Rows", "Columns", "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "SamplesPerPixel")
    data = dcmread(path, force=True)
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.4:
            setattr(data, numbers[rng.integers(len(numbers))], int(rng.choice([0, 1, 3, 7, 8, 12, 32, 64, 512, 65535])))
        elif rng.random() < 0.3:
            tag = [*tags, *numbers][rng.integers(len(tags) + len(numbers))]
            if tag in data:
                delattr(data, tag)
        else:
            data[tags[rng.integers(len(tags))]] = data.data_element(tags[0]).__class__(
                tags[rng.integers(len(tags))], "LO", odd[rng.integers(len(odd))]
            )
    data.save_as(path)


def _deflate_bomb(rng: Rng, path: Path) -> None:
    data = dcmread(path, force=True, stop_before_pixels=True)
    head = io.BytesIO()
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1.99"
    data.save_as(head)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    megabyte = packer.compress(b"\0" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)  # may be repeated as it is
    bomb = megabyte * int(rng.choice([100, 3000]))
    whole = head.getvalue()
    start = 132 + 12 + int.from_bytes(whole[140:144], "little")
    path.write_bytes(whole[:start] + bomb + packer.flush())


def _npy_header(rng: Rng, path: Path) -> None:
    content = path.read_bytes()
    shapes = (
        "(40000, 40000)", "(99999999999, 9)", "(-1, 24)", "()", "(24,)", "(24, 24, 24, 24)", "(" * 60, "[]",
        "(2**9)",
    )  # fmt: skip
    types = ("|O", "<f8", "<U9", "|V9999999999", "<f16", ">u2", "<M8[s]", "<c8")
    text = f"{{'descr': '{types[rng.integers(len(types))]}', 'fortran_order': {rng.choice(['False', '1', 'x'])}, "
    text += f"'shape': {shapes[rng.integers(len(shapes))]}, }}"
    text = text.ljust(int(rng.choice([117, 5000]))) + "\n"
    path.write_bytes(content[:8] + len(text).to_bytes(2, "little") + text.encode() + content[-1152:])


def _json_value(rng: Rng, path: Path) -> None:
    values = json.loads(path.read_text())
    place = values
    while isinstance(place, dict) and place:
        key = list(place)[rng.integers(len(place))]
        if not isinstance(place[key], dict) or rng.random() < 0.4:
            if rng.random() < 0.2:
                del place[key]
            else:
                place[key] = VALUES[rng.integers(len(VALUES))]
            break
        place = place[key]
    if rng.random() < 0.1:
        path.write_text('{"a":' * 20000)
    elif path.name == "manifest.json":  # a stranger can count checksums too
        values.pop("checksum", None)
        try:
            text = canonical({**values, "checksum": checksum(values)})
        except ValueError:
            text = json.dumps(values)
        path.write_text(text, errors="surrogatepass")
    else:
        path.write_text(json.dumps(values))


def _csv_cell(rng: Rng, path: Path) -> None:
    lines = [line.split(",") for line in path.read_text().splitlines()]
    for _ in range(int(rng.integers(1, 4))):
        line = lines[rng.integers(len(lines))]
        line[rng.integers(len(line))] = CELLS[rng.integers(len(CELLS))]
    if rng.random() < 0.2:
        lines *= 300
    path.write_text("\n".join(map(",".join, lines)), errors="surrogatepass")


def _hdf5_object(rng: Rng, path: Path) -> None:
    with h5py.File(path, "a") as file:
        names: list[str] = []
        file.visit(names.append)
        name = names[rng.integers(len(names))]
        length = len(file[name]) if isinstance(file[name], h5py.Dataset) else 3
        del file[name]
        kind = rng.integers(8)
        if kind == 0:
            file[name] = h5py.ExternalLink("/dev/zero", "/x")
        elif kind == 1:
            file[name] = h5py.SoftLink(f"/{name}")
        elif kind == 2:
            file.create_dataset(name, (length, 40000, 40000), "u1", chunks=(1, 400, 400), compression="gzip")
        elif kind == 3:
            file.create_dataset(name, (2**40,), "u1", chunks=(2**20,))
        elif kind == 4:
            file[name] = np.full((length, 24, 24), rng.choice([np.nan, 1e300, -1.0]))
        elif kind == 5:
            file.create_dataset(name, data=np.arange(length))
        elif kind == 6:
            file.create_dataset(name, data=h5py.Empty("f4"))
        else:
            file.create_dataset(name, (length, 24, 24), "f4", external=[("/etc/passwd", 0, 100)])


def _pickle_steps(rng: Rng, path: Path) -> None:
    nested = b"\x80\x04)" + b"\x94h\x00\x86" + b"".join(b"\x94h" + bytes([i]) + b"\x86" for i in range(1, 60))
    keys = b"\x80\x04}" + nested[2:] + b"K\x01s."
    lists = b"\x80\x04]\x94" + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"e\x94" for i in range(60)) + b"."
    programs = (nested + b".", keys, lists, b"\x80\x04Nr\xff\xff\xff\x7f.", b"\x80\x05\x96" + b"\xff" * 7 + b"\x00.")
    programs += (b"cos\nsystem\n(S'true'\ntR.", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x00.", b"(" * 100000 + b".")
    path.write_bytes(programs[rng.integers(len(programs))])


_BY_SUFFIX: dict[str, tuple[Callable[[Rng, Path], None], ...]] = {
    ".png": (_png_header,),
    ".nii": (_nifti_header,),
    ".nii.gz": (_nifti_header, _unpacked, _gz_bomb),
    ".dcm": (_dicom_tag, _dicom_tag, _deflate_bomb),
    ".npy": (_npy_header,),
    ".json": (_json_value,),
    ".csv": (_csv_cell,),
    ".h5": (_hdf5_object,),
    ".pickle": (_pickle_steps,),
}

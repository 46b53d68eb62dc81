"""Small files that promise, or unpack to, far more than they are; nothing of berdiff, as any version may meet them."""

import gzip
import pickle
import struct
import zlib
from pathlib import Path

import nibabel
import numpy as np
from dicom_writer import write_slice
from PIL import Image
from pydicom import dcmread


def png_header(path: Path, width: int, height: int) -> Path:
    """A small picture whose header claims another size, with the right checksum."""
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(path)
    content = bytearray(path.read_bytes())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    path.write_bytes(content)
    return path


def deflated(path: Path, megabytes: int) -> Path:
    """A small DICOM file that inflates to so many megabytes."""
    data = dcmread(write_slice(path, np.zeros((8, 8))), stop_before_pixels=True)
    data.file_meta.TransferSyntaxUID = "1.2.840.10008.1.2.1.99"
    data.save_as(path)
    whole = path.read_bytes()
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    block = packer.compress(b"\0" * 2**20) + packer.flush(zlib.Z_FULL_FLUSH)
    start = 144 + int.from_bytes(whole[140:144], "little")
    path.write_bytes(whole[:start] + block * megabytes + packer.flush())
    return path


def compressed_tiff(path: Path, side: int, strips: int = 100) -> Path:
    """side x side pixels of 0, in strips that all are the same few kilobytes."""
    rows = side // strips
    packed = zlib.compress(bytes(side * rows), 9)
    lists = 8 + len(packed)  # behind the packed strip: where each strip is, and how long
    tags = [(256, 4, 1, side), (257, 4, 1, side), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 1)]
    tags += [(273, 4, strips, lists), (278, 4, 1, rows), (279, 4, strips, lists + 4 * strips)]
    place = lists + 8 * strips
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    content = struct.pack("<2sHI", b"II", 42, place) + packed
    content += struct.pack(f"<{2 * strips}I", *[8] * strips, *[len(packed)] * strips)
    path.write_bytes(content + struct.pack("<H", len(tags)) + entries + bytes(4))
    return path


def compressed_nifti(path: Path, shape: tuple[int, int, int]) -> Path:
    """A volume of 0 in 16 bits, of as many equal gzip members as it takes."""
    header = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.int16), np.eye(4)).header
    header.set_data_shape(shape)
    members, rest = divmod(2 * int(np.prod(shape)), 2**26)
    block = gzip.compress(bytes(2**26), 9)
    path.write_bytes(gzip.compress(header.binaryblock + bytes(4)) + block * members + gzip.compress(bytes(rest)))
    return path


def nested_pickle(path: Path) -> Path:
    """A dict whose key is a tuple of twice the same tuple of twice the same ..., 60 deep: hashing it takes for ever."""
    nested: object = ()
    for _ in range(60):
        nested = (nested, nested)
    path.write_bytes(b"\x80\x04}" + pickle.dumps(nested, 4)[2:-1] + b"K\x01s.")
    return path

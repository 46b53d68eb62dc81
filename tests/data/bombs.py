"""Small files that promise, or unpack to, far more than they are; nothing of berdiff, as any version may meet them."""

import zlib
from pathlib import Path

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

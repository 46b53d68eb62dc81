"""Arrays as text: gzip and base64; masks as one bit per voxel."""

import base64
import gzip

import numpy as np


def pack(array: np.ndarray, level: int = 6) -> str:
    """The bytes in C order, little-endian."""
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return base64.b64encode(gzip.compress(array.data, level, mtime=0)).decode("ascii")


def unpack(text: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(gzip.decompress(base64.b64decode(text)), np.dtype(dtype).newbyteorder("<")).reshape(shape)


def bits(masks: np.ndarray) -> np.ndarray:
    """(m, K, [Z,] H, W) of 0 and 1 -> (m, K, B) uint8, the highest bit of a byte first: each mask has whole bytes."""
    return np.packbits(masks.reshape(*masks.shape[:2], -1).astype(bool), axis=-1)


def from_bits(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(m, K, B) -> (m, K, *shape) uint8."""
    return np.unpackbits(packed, axis=-1, count=int(np.prod(shape))).reshape(*packed.shape[:2], *shape)

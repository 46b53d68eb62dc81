"""Random numbers by name: they depend on a key, such as a seed and a case's name, and on nothing else."""

import hashlib

import numpy as np


def digest(*key: object) -> bytes:
    """32 bytes that look random."""
    return hashlib.sha256("|".join(map(str, key)).encode()).digest()


def seed_of(*key: object, length: int = 8) -> int:
    """A seed of so many bytes."""
    return int.from_bytes(digest(*key)[:length], "big")


def rng_of(*key: object) -> np.random.Generator:
    """A generator that depends on the key alone, not on the batch that a case comes in."""
    return np.random.default_rng(seed_of(*key))

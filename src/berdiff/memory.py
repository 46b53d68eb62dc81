"""Memory on the CPU: what the C library does with freed tensors."""

import ctypes
import sys


def keep_freed_memory() -> bool:
    """Tell glibc to reuse freed tensors instead of handing them back to the system and mapping fresh ones.

    A fresh mapping is paid for by a page fault every 4 kB, at each large tensor of each step on the CPU. Commands
    that run a network call this once; a library must not, for it changes the whole process.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent in other C libraries than glibc
    M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
    return mallopt is not None and mallopt(M_MMAP_MAX, 0) == 1 and mallopt(M_TRIM_THRESHOLD, 2**31 - 1) == 1

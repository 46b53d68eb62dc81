"""Which device a command runs on."""

import torch

from berdiff.errors import InputError


def choose_device(name: str = "auto") -> str:
    """`auto` takes CUDA, then MPS, then the CPU; any other name must be a device of this machine."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # torch asserts where it was built without CUDA
        reason = str(error).splitlines()[0]
        raise InputError(f"--device: expected auto or a device of this machine, found {name!r} ({reason})") from error
    return name

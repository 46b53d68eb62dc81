"""Which device a command runs on."""

from typing import Literal

import torch

from berdiff.errors import InputError


def choose_device(name: str = "auto") -> str:
    """`auto` takes CUDA, then MPS, then the CPU; any other name must be a device of this machine."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).add(1).item()  # some names stand for devices that hold no numbers
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:  # what torch raises without CUDA
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"--device: expected auto or a device of this machine, found {name!r} ({reason})") from error
    return name


def share_devices(name: str, number: int) -> str:
    """The device of the worker with this number, where several share a machine with several GPUs."""
    count = torch.cuda.device_count() if name in ("auto", "cuda") and torch.cuda.is_available() else 0
    return f"cuda:{number % count}" if count > 1 else name


def choose_precision(device: str, precision: Literal["fp32", "bf16"]) -> Literal["fp32", "bf16"]:
    """The same, if the device can; whether it gains by bf16 is the machine's affair (docs/many-machines.md)."""
    if precision == "fp32":
        return precision
    lacks = device.startswith("cuda") and not torch.cuda.is_bf16_supported()
    try:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            pass
    except RuntimeError:
        lacks = True
    if lacks:
        raise InputError(f"--precision: expected fp32 on this {device}, which has no bf16, found {precision}")
    return precision

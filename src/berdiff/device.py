"""Which device a command runs on."""

import signal
import subprocess
import sys
from functools import cache
from typing import Literal

import torch

from berdiff.errors import InputError

BF16_TRIAL = """
import torch
a = torch.ones(64, 64, dtype=torch.bfloat16)
torch.conv2d((a @ a).view(1, 16, 16, 16), a[:36].view(16, 16, 3, 3))
"""
BF16_REMEDY = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16"


def choose_device(name: str = "auto") -> str:
    """`auto` takes CUDA, then MPS, then the CPU; any other name must be a device of this machine."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).add(1).item()  # some names stand for devices that hold no numbers
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:  # what torch raises without CUDA
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"--device: expected auto or a device of this machine, found {name!r} ({reason})", "unsupported"
        ) from error
    return name


def share_devices(name: str, number: int) -> str:
    """The device of the worker with this number, where several share a machine with several GPUs."""
    count = torch.cuda.device_count() if name in ("auto", "cuda") and torch.cuda.is_available() else 0
    return f"cuda:{number % count}" if count > 1 else name


def choose_precision(
    device: str, precision: Literal["fp32", "bf16"], asked: str = "--precision"
) -> Literal["fp32", "bf16"]:
    """The same, if the device can; whether it gains by bf16 is the machine's affair (docs/many-machines.md). `asked` is
    the option or evaluation that a misfit is reported of."""
    if precision == "fp32":
        return precision
    lacks = device.startswith("cuda") and not torch.cuda.is_bf16_supported()
    try:
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            pass
    except RuntimeError:
        lacks = True
    if lacks:
        raise InputError(
            f"{asked}: expected fp32 on this {device}, which has no bf16, found {precision}", "unsupported"
        )
    if torch.device(device).type == "cpu":
        expect_bf16(asked)
    return precision


def expect_bf16(option: str) -> None:
    """InputError where bf16 would end this process without a word."""
    if ended_by := bf16_ends_by():
        raise InputError(
            f"{option}: expected a processor that can compute in bf16, found one where a product in bf16 ends the "
            f"process by {ended_by}; set {BF16_REMEDY} in the environment, which leaves AMX out, or stay with 32 bits",
            "unsupported",
        )


@cache
def bf16_ends_by() -> str:
    """The signal that a small product and convolution in bf16 end a process by on this machine's CPU, or nothing.

    Some virtual machines announce AMX and cannot do it, and no flag of the processor says so: only a try in a process
    that may be lost.
    """
    done = subprocess.run(
        [sys.executable, "-c", BF16_TRIAL], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return signal.Signals(-done.returncode).name if done.returncode < 0 else ""

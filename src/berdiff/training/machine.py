"""The machine a session runs on: what is needed to repeat it, and its memory."""

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("berdiff", "torch", "lightning-fabric", "monai", "numpy", "zarr", "safetensors")


def environment() -> dict[str, Any]:
    """What one needs to know to repeat a session."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),  # AVX2, AVX512, ...: what a CPU minute is worth
        "threads": torch.get_num_threads(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def git_commit() -> str | None:
    """The commit of the checkout this code is in, with `+` where files were changed since; None outside one."""
    command, here = "git describe --always --exclude=* --abbrev=40 --dirty=+", Path(__file__).parent
    try:
        return subprocess.check_output(command.split(), cwd=here, stderr=subprocess.DEVNULL, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def used_memory(device: torch.device) -> float:
    """Bytes in use: of the accelerator at its peak, else of this process now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # macOS: no current figure without another package, but the peak, in bytes

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def free_memory(device: torch.device) -> float:
    """Bytes that this process could still take: of the accelerator, else of the machine or its container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if not meminfo.is_file():  # macOS: all of it
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    available = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable"))
    free = [int(available.split()[1]) * 1024]
    group = Path("/sys/fs/cgroup")
    if (group / "memory.max").is_file() and (limit := (group / "memory.max").read_text().strip()).isdigit():
        free.append(int(limit) - int((group / "memory.current").read_text()))
    return min(free)

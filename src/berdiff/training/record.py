"""Writing a run folder (what is in it: see runs.py)."""

import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from berdiff.files import write_text
from berdiff.training.config import TrainConfig, dump
from berdiff.training.runs import Row, read_rows

PACKAGES = ("berdiff", "torch", "lightning-fabric", "monai", "numpy", "zarr", "safetensors")


class Record:
    """The texts, figures and curves of one run. `step` is where this session starts: what an earlier session wrote
    about later steps, before it was killed, is dropped, so that each step is told once."""

    def __init__(self, folder: Path, config: TrainConfig, step: int, device: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "config.json", dump(config))
        self._add_session(config.seed, device, step)
        stats = folder / "stats.jsonl"
        rows = [row for row in read_rows(stats) if row["step"] <= step and row["kind"] != "end"]
        write_text(stats, "".join(json.dumps(row) + "\n" for row in rows))
        self._stats = stats.open("a", encoding="utf-8")
        self._log = (folder / "log.txt").open("a", encoding="utf-8")
        from torch.utils.tensorboard import SummaryWriter  # a second to import

        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def close(self) -> None:
        for each in (self._stats, self._log, self._board):
            each.close()

    def log(self, line: str) -> None:
        self._log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")
        self._log.flush()

    def add(self, row: Row) -> None:
        """A line of stats.jsonl, and its figures to TensorBoard."""
        self._stats.write(json.dumps(row) + "\n")
        self._stats.flush()
        for name, value in row.items():
            if name not in ("kind", "step") and isinstance(value, int | float):
                self._board.add_scalar(f"{row['kind']}/{name}", value, row["step"])
        self._board.flush()

    def _add_session(self, seed: int, device: str, step: int) -> None:
        path = self.folder / "environment.json"
        sessions = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        sessions.append({"from_step": step, "seed": seed, "device": device, **environment()})
        write_text(path, json.dumps(sessions, indent=2) + "\n")


def environment() -> dict[str, Any]:
    """What one needs to know to repeat a session."""
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "git_commit": git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def git_commit() -> str | None:
    """The commit of the checkout this code is in, with `+` where files were changed since; None outside one."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def memory_mb(device: torch.device) -> float:
    """Memory in use: of the accelerator at its peak, else of this process now."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    statm = Path("/proc/self/statm")
    if statm.is_file():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    import resource  # macOS: no current figure without another package, but the peak, in bytes

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

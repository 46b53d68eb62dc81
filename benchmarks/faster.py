"""What `--precision bf16`, `--compile` and `--workers 2` gain on this machine, each beside the plain way."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from berdiff.inference.model import load
from berdiff.memory import keep_freed_memory
from reproduce.side_by_side import durations, see_every_mask

INPUTS = 96  # whole batches for each process, in the half of them too


def precision_and_compile() -> dict[str, float]:
    """16 masks of a 64x64 image by the bundled `lidc`; above 1 is faster than fp32, not compiled."""
    keep_freed_memory()
    plain, half = _job(), _job(precision="bf16")
    compiled = _job(compile=True)
    started = time.perf_counter()
    compiled()  # the first call compiles
    first = time.perf_counter() - started
    one, other, third = durations(plain, half, compiled)
    return {"bf16_speedup": one / other, "compile_speedup": one / third, "compile_seconds": first}


def workers() -> dict[str, float]:
    """The rate of two processes over that of one, of one thread each, both without their start; goal: at least 1.7."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        for i in range(INPUTS):
            (folder / f"in{i % 2}").mkdir(exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (64, 64), dtype=np.uint8)).save(folder / f"in{i % 2}" / f"{i}.png")
        one = _seconds(folder, ["in0"], 1), _seconds(folder, ["in0", "in1"], 1)
        two = _seconds(folder, ["in0"], 2), _seconds(folder, ["in0", "in1"], 2)
    return {"workers2_vs_1": (one[1] - one[0]) / (two[1] - two[0])}


def _job(**how: object) -> Callable[[], object]:
    segmenter = load("lidc", "cpu", **how).segmenter  # type: ignore[arg-type]
    image = torch.rand(1, 1, 64, 64)
    return lambda: segmenter.sample(image, 16, torch.Generator().manual_seed(0), callback=see_every_mask)


def _seconds(folder: Path, inputs: list[str], workers: int) -> float:
    out = folder / f"out-{len(inputs)}-{workers}"
    command = [
        sys.executable,
        "-m",
        "berdiff.cli.main",
        "segment",
        "lidc-unet",
        *(str(folder / name) for name in inputs),
    ]
    command += [
        "--out",
        str(out),
        "--samples",
        "4",
        "--steps",
        "2",
        "--batch-size",
        "4",
        "--workers",
        str(workers),
        "--device",
        "cpu",
    ]
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return time.perf_counter() - started

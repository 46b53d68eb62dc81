"""What a command spends before its work, in CPU seconds of its process, as ratios to what it cannot do without."""

import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

PROGRAM = ("-m", "berdiff.cli.main")
FEW = "from berdiff.data.held_out import HeldOut; HeldOut().read(range(6))"
WHOLE = "import sys; from berdiff.data.prepare import prepare; prepare('lidc-readers', None, sys.argv[1])"


def cpu_seconds(*arguments: str) -> float:
    """Of one process of Python and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands() -> dict[str, float]:
    """`berdiff segment` of one picture against importing torch; the least of three, for a loaded machine only adds."""
    with TemporaryDirectory() as name:
        picture = Path(name, "scan.png")
        Image.fromarray(np.full((64, 64), 90, np.uint8)).save(picture)
        segment = (*PROGRAM, "segment", "lidc", str(picture), "--out")
        ours = min(cpu_seconds(*segment, str(Path(name, str(i)))) for i in range(3))
    torch = min(cpu_seconds("-c", "import torch") for _ in range(3))
    helps = min(cpu_seconds(*PROGRAM, "--help") for _ in range(3))
    return {"help_cpu_s": helps, "segment_cpu_s": ours, "segment_vs_import_torch": ours / torch}


def embedded() -> dict[str, float]:
    """Six held-out cases, as the demo shows, against making all of the embedded data."""
    with TemporaryDirectory() as name:
        return {
            "demo_data_vs_embedded": cpu_seconds("-c", FEW) / cpu_seconds("-c", WHOLE, str(Path(name, "whole.zarr")))
        }

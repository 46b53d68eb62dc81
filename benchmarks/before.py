"""`python -m benchmarks.before OTHER/src`: the ordinary commands by this code over the same by another checkout's.

Each command runs in turns by both, on the same random slices and a whole CT, with the bundled `lidc-unet`, which both
must have. Ratios of CPU seconds and of peak memory; below 1 this code is better. Other work adds noise, not bias.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import h5py
import nibabel
import numpy as np
from skimage.io import imsave

import berdiff

REPEATS, SLICES, PICTURES, SCAN = 3, 2000, 48, (512, 512, 300)
BRIEF = ("--samples", "2", "--steps", "2", "--seed", "0")  # little of the network, so that what is around it shows


def jobs(folder: Path) -> dict[str, tuple[str, ...]]:
    """Name to command; {out} is new in each run, {store} was prepared by the code that is measured."""
    pictures = str(folder / "pictures")
    train = ("--max-steps", "12", "--engine.devices", "1", "--validation.every", "0", "--loop.checkpoint-every", "6")
    return {
        "prepare": ("data", "prepare", "lidc-hdf5", str(folder / "data.hdf5"), "{out}"),
        "segment": ("segment", "lidc-unet", pictures, "--out", "{out}", *BRIEF),
        "evaluate": ("evaluate", "lidc-unet", "--data", "{store}", "--limit", "64", "--out", "{out}", *BRIEF),
        "scan": (
            "segment",
            "lidc-unet",
            str(folder / "ct.nii"),
            "--center",
            "150",
            "250",
            "310",
            "--out",
            "{out}",
            *BRIEF,
        ),
        "train": ("train", "lidc-cpu-paper", "--data", "{store}", "--out", "{out}", *train),
    }


def make_data(folder: Path) -> None:
    """Slices of LIDC's size and layout, of which the test split has enough to evaluate, pictures and a whole CT."""
    rng = np.random.default_rng(0)
    ct = rng.normal(-850, 60, SCAN).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(ct, np.diag([-0.7, -0.7, 1.0, 1.0])), folder / "ct.nii")
    with h5py.File(folder / "data.hdf5", "w") as file:
        for split, count in (("train", SLICES), ("val", 2), ("test", 64)):
            group = file.create_group(split)
            group["images"] = rng.integers(0, 256, (count, 128, 128), dtype=np.uint8)
            labels = np.zeros((count, 128, 128, 4), np.uint8)
            labels[:, 50:70, 50:70] = 1
            group["labels"] = labels
            group["uids"] = [f"{split}-{number}".encode() for number in range(count)]
    (folder / "pictures").mkdir()
    for number in range(PICTURES):
        imsave(folder / "pictures" / f"{number}.png", rng.integers(0, 256, (64, 64), dtype=np.uint8))


def run(source: Path, command: Sequence[str]) -> tuple[float, float]:
    """(CPU seconds, peak megabytes) of a command by the code in `source`, in one thread."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "berdiff.cli.main", *command], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"before: expected exit code 0 of berdiff {' '.join(command)}, found {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main(other: Path) -> None:
    here = Path(berdiff.__file__).parents[1]
    print(f"{'command':<10}{'CPU seconds':>22}{'ratio':>8}{'peak MB':>22}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_data(folder)
        for name, command in jobs(folder).items():
            found: dict[Path, list[tuple[float, float]]] = {other: [], here: []}
            for turn in range(REPEATS):
                for place, source in enumerate(found):
                    names = {"out": folder / f"{name}-{turn}-{place}", "store": folder / f"prepare-0-{place}"}
                    found[source].append(run(source, [part.format(**names) for part in command]))
            (old_cpu, old_mb), (cpu, mb) = ([median(one) for one in zip(*found[at], strict=True)] for at in found)
            seconds, memory = f"{old_cpu:.1f} -> {cpu:.1f}", f"{old_mb:.0f} -> {mb:.0f}"
            print(f"{name:<10}{seconds:>22}{cpu / old_cpu:>8.2f}{memory:>22}{mb / old_mb:>8.2f}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

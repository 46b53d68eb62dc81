"""Is the data ever waited for? A loader against what training `small` consumes; and the preparation of all of LIDC."""

import os
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import torch

from berdiff.data.batches import Batches
from berdiff.data.dataset import CaseDataset
from berdiff.data.prepare import prepare
from berdiff.data.sources import lidc_readers
from berdiff.data.store import Store
from berdiff.networks.build import make_network
from reproduce.side_by_side import durations

BATCH, CROP = 32, 64
LOADED, TRAINED = 100, 2  # batches in one measurement: loading is much the faster


def loader_vs_training() -> dict[str, float]:
    """Slices/s of the loader that training uses, augmenting, over slices/s of forward + backward.

    The network's pass alone is the most that training can consume: whole steps take longer.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepare("lidc-readers", None, Path(folder) / "s.zarr", lidc_readers.Options(patients=40))
        dataset = CaseDataset(Store.open(Path(folder) / "s.zarr"), "train", crop=CROP, augment=True)
        network = make_network("small")
        image, y_t = torch.rand(BATCH, 1, CROP, CROP), torch.randint(2, (BATCH, 1, 1, CROP, CROP)).float()
        t = torch.randint(1, 1001, (BATCH, 1))

        def load() -> None:
            for _ in islice(Batches(dataset, BATCH).after(0), LOADED):
                pass

        def train() -> None:
            for _ in range(TRAINED):
                network.zero_grad(set_to_none=True)
                network.denoise(y_t, t, network.encode(image)).mean().backward()

        loading, training = durations(load, train)
    loaded, trained = LOADED * BATCH / loading, TRAINED * BATCH / training
    return {"loader_slices_per_s": loaded, "loader_vs_training": loaded / trained}


def preparing() -> dict[str, float]:
    """All 13,786 slices of the shared HDF5 by the command line: seconds, and megabytes at the most. {} without it."""
    root = Path(__file__).parents[1]
    data = Path(os.environ.get("BERDIFF_SHARED_DATA", root.parent / "shared" / "data")) / "lidc" / "data_lidc.hdf5"
    if not data.is_file():
        print(f"no real data at {data}: preparing is not measured")
        return {}
    code = (
        "import sys, time; start = time.perf_counter(); from berdiff.cli.main import main\n"
        "assert main(['data', 'prepare', 'lidc-hdf5', *sys.argv[1:]]) == 0\n"
        # not ru_maxrss: a process inherits the peak of the one that started it
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))\n"
        "print(time.perf_counter() - start, int(peak.split()[1]) / 1024)"
    )
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code, str(data), str(Path(folder) / "s.zarr")]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    seconds, megabytes = map(float, printed.split())
    return {"prepare_lidc_seconds": seconds, "prepare_lidc_megabytes": megabytes}

"""`make bench`: every ratio by name, printed as a table and written to benchmarks/results.json.

`python -m benchmarks.run core metrics` runs only those. Run nothing else meanwhile.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import core, faster, loader, methods, metrics, sampling, start, training
from berdiff.files import write_text

BENCHMARKS: dict[str, tuple[Callable[[], dict[str, float]], ...]] = {
    "core": (core.training_step, core.sampling),
    "faster": (faster.precision_and_compile, faster.workers),
    "loader": (loader.loader_vs_training, loader.preparing),
    "methods": (methods.lidc_masks_vs_paper_pass, methods.brats_masks_vs_paper_pass),
    "metrics": (metrics.metrics_vs_loops,),
    "sampling": (sampling.sample16_vs_paper_pass, sampling.sample16_vs_small_unet),
    "start": (start.commands, start.embedded),
    "training": (training.train_efficiency, training.allocator),
}
RESULTS = Path(__file__).with_name("results.json")


def main(names: list[str]) -> None:
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        sys.exit(f"benchmarks: expected some of {', '.join(BENCHMARKS)}, found {', '.join(unknown)}")
    results: dict[str, float] = json.loads(RESULTS.read_text()) if names and RESULTS.exists() else {}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads\n\n{'name':<34}{'value':>10}")
    for name in names or BENCHMARKS:
        for benchmark in BENCHMARKS[name]:
            measured = benchmark()
            results |= measured
            for key, value in measured.items():
                print(f"{key:<34}{value:>10.3g}", flush=True)
            write_text(RESULTS, json.dumps(results, indent=2, sort_keys=True) + "\n")
    print(f"\nwritten to {RESULTS.name}")


if __name__ == "__main__":
    main(sys.argv[1:])

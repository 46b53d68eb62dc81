"""berdiff demo: held-out cases with the bundled weights, as one page to look at."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import tyro

from berdiff.cli.progress import progress
from berdiff.memory import keep_freed_memory

NEXT = """\
your own data:
  berdiff segment lidc IMAGES --center Y X --out out/mine --write report samples   (PNG, NIfTI, DICOM, .npy, folders)
  berdiff data prepare folder FOLDER my.zarr                                       (images and masks of your own)
  berdiff train lidc-cpu --data my.zarr --out runs/mine                            (then: berdiff segment runs/mine ...)
"""


def demo(
    out: Path = Path("out/demo"),
    model: str = "lidc-readers",
    cases: int = 6,
    samples: int = 16,
    steps: tuple[int, ...] | None = None,
    seed: int = 0,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Segment held-out cases of the embedded data, score them beside the floor, and write a page to look at.

    Args:
        out: folder for report.html
        model: the name of bundled weights, a model folder or the folder of a run
        cases: how many, each of another patient and marked by two readers or more
        samples: masks drawn for each case
        steps: of the sampler: how many, or the steps themselves; default: the model's own
        seed: of the choice and of the samples
        json_: print the scores as JSON
    """
    from berdiff.data.store import open_store
    from berdiff.experiments.demo import plain, run_demo
    from berdiff.inference.draw import Settings
    from berdiff.inference.model import load
    from berdiff.methods.sampler import choose_sampler

    keep_freed_memory()
    loaded = load(model)
    print("opening the embedded data (made on first use) ...", file=sys.stderr, flush=True)
    store = open_store()
    with progress("segmenting") as update:
        settings = Settings(samples, choose_sampler(loaded.segmenter, steps), seed)
        done = run_demo(loaded, store, out, cases, settings, update)
    if json_:
        print(json.dumps(plain(done), indent=2))
        return
    _print(done)
    address = done.report.resolve()
    print(f"\nreport: {done.report}\n        {address.as_uri()}\n\n{NEXT}", end="")
    print("For research; not for clinical use.")


def _print(done: Any) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    n = done.samples
    table = Table(Column("case", overflow="fold"), f"GED ({n})", "floor", f"HM-IoU ({n})", "of a perfect sampler")
    for of in (*done.cases, done.mean):
        values = (of.ged, of.ged_floor, of.hm_iou, of.hm_iou_perfect)
        table.add_row(of.case, *(f"{value:.3f}" for value in values), end_section=of is done.cases[-1])
    Console().print(table)


def command(argv: list[str]) -> None:
    tyro.cli(demo, args=argv, prog="berdiff demo")

"""berdiff evaluate RUN_OR_MODEL: GED, HM-IoU, Dice and calibration of a model on a split, with reference points."""

import json
from pathlib import Path
from typing import Annotated, Literal

import tyro

from berdiff.cli.progress import progress
from berdiff.memory import keep_freed_memory


def evaluate(
    run_or_model: Annotated[Path, tyro.conf.Positional],
    out: Path,
    data: str | None = None,
    split: str = "test",
    samples: int = 16,
    steps: tuple[int, ...] | None = None,
    sampler: Literal["ddim", "ddpm"] | None = None,
    posterior: Literal["soft", "marginal"] | None = None,
    sigma: float | None = None,
    spacing: Literal["uniform", "quadratic"] | None = None,
    last_step: Literal["threshold", "sample"] | None = None,
    latent: Literal["pixel", "shared"] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    crop: int | None = None,
    limit: int | None = None,
    device: str = "cpu",
    save_samples: bool = False,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Evaluate a model on a split of a store. Interrupted, the same command goes on where it was.

    Args:
        run_or_model: the folder of a run of `berdiff train`, or a model folder
        out: folder for metrics.json, per_case.csv and table.md
        data: a prepared store; default: what the run was trained on, else the embedded one
        split: train, val, test or all
        samples: masks drawn for each image
        steps: of the sampler: how many, or the steps themselves, falling; default, as for the next six: the model's
            own
        sampler: whose rule a step follows
        posterior: of ddpm's rule: the paper's soft form, or the exact marginal
        sigma: of ddim's rule: as a share of its largest value
        spacing: of the steps
        last_step: threshold the last estimate (paper) or draw from it
        latent: draw each pixel by itself (paper), or all of a mask by one level: for few steps
        seed: of the samples, of the subset and of the bootstrap
        batch_size: images drawn together
        crop: centre crop in pixels; default: what the run was trained with, else none
        limit: only so many cases: the first of one seeded order, so smaller subsets lie in larger ones
        device: cpu, cuda, cuda:1, ...
        save_samples: keep the masks, eight pixels a byte, in OUT/samples
        json_: print metrics.json instead of tables
    """
    from rich.console import Console

    from berdiff.data.store import open_store
    from berdiff.evaluation import tables
    from berdiff.evaluation.evaluate import Settings
    from berdiff.evaluation.evaluate import evaluate as run
    from berdiff.evaluation.models import open_model
    from berdiff.methods.sampler import choose_sampler

    keep_freed_memory()
    opened = open_model(run_or_model, device)
    asked = {"posterior": posterior, "sigma": sigma, "spacing": spacing, "last_step": last_step, "latent": latent}
    chosen = choose_sampler(opened.segmenter, steps, rule=sampler, **asked)
    store = open_store(data if data is not None else opened.store)
    crop = opened.crop if crop is None else crop
    settings = Settings(split, samples, chosen, seed, batch_size, crop, limit, save_samples, device)
    with progress(f"evaluating {opened.name}") as step:
        result = run(opened.segmenter, store, out, settings, opened.name, step)
    if json_:
        print(json.dumps(result, indent=2))
        return
    console = Console()
    for header, body in tables.for_terminal(result):
        console.print(tables.rich_table(header, body), "")
    for line in tables.captions(result):
        console.print(line, markup=False, highlight=False)
    console.print(f"written to {out}: metrics.json, per_case.csv, table.md", markup=False, highlight=False)


def command(argv: list[str]) -> None:
    tyro.cli(evaluate, args=argv, prog="berdiff evaluate")

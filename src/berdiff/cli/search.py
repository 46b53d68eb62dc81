"""berdiff search RUN_OR_MODEL --out DIR"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import tyro

from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory


def search(
    run_or_model: Annotated[Path, tyro.conf.Positional],
    out: Path,
    data: str | None = None,
    split: str = "val",
    counts: tuple[int, ...] = (3, 5, 10),
    samples: int = 16,
    limit: int | None = 128,
    crop: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    keep: int | None = None,
    json_: Annotated[bool, tyro.conf.arg(name="json")] = False,
) -> None:
    """Find the sampler that suits a trained model: which steps, how the last one ends, one latent or many, sigma.

    Tried one after the other on a validation split, by unbiased GED. Interrupted, the same command goes on.

    Args:
        run_or_model: the folder of a run of `berdiff train`, or a model folder
        out: folder for search.md and an evaluation of each sampler
        data: a prepared store; default: what the run was trained on, else the embedded one
        split: to choose on; never the one you report
        counts: numbers of steps, searched one by one
        samples: masks drawn for each image
        limit: only so many cases: the first of one seeded order
        crop: centre crop in pixels; default: what the run was trained with
        seed: of the samples and of the subset
        device: cpu, cuda, ...
        keep: make the best of so many steps the model's own sampler
        json_: print all that was tried as JSON
    """
    from berdiff.data.store import open_store
    from berdiff.evaluation.evaluate import Settings
    from berdiff.evaluation.models import open_model
    from berdiff.evaluation.search import search as run
    from berdiff.methods import folder

    if keep is not None and keep not in counts:
        raise InputError(f"--keep: expected one of --counts, {', '.join(map(str, counts))}, found {keep}")
    model = folder.resolve(run_or_model)
    if keep is not None and model.is_relative_to(folder.WEIGHTS):
        raise InputError(f"--keep: expected a model of your own to write to, found the bundled {model.name}")
    keep_freed_memory()
    opened = open_model(run_or_model, device)
    store = open_store(data if data is not None else opened.store)
    settings = Settings(
        split, samples, seed=seed, crop=opened.crop if crop is None else crop, limit=limit, device=device
    )
    found = run(opened.segmenter, store, out, settings, counts, lambda line: print(line, file=sys.stderr, flush=True))
    if json_:
        print(json.dumps({count: [asdict(t) for t in tried] for count, tried in found.items()}, indent=2))
    else:
        print((out / "search.md").read_text(encoding="utf-8"), end="")
    if keep is not None:
        opened.segmenter.sampler = found[keep][0].sampler  # type: ignore[attr-defined]
        folder.save(opened.segmenter, model)
        print(f"{model}: samples so by default now", file=sys.stderr)


def command(argv: list[str]) -> None:
    tyro.cli(search, args=argv, prog="berdiff search")

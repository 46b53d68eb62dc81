"""What a table will do, before it does it: `berdiff table NAME --dry-run`. Nothing is written."""

from pathlib import Path
from typing import Any

from berdiff.data.store import Store
from berdiff.evaluation.evaluate import choose
from berdiff.evaluation.models import open_model
from berdiff.experiments.tables.figures import budget
from berdiff.experiments.tables.row import Row, Table
from berdiff.experiments.tables.run import check_request
from berdiff.experiments.tables.scale import Scale
from berdiff.training.config import check
from berdiff.training.session import make_segmenter


def plan(table: Table, scale: Scale, store: Store, out: Path, seeds: int, model: str | None = None) -> list[dict]:
    """One entry a row and seed, after every check that can be made without training: settings, sizes, splits."""
    check_request(table, seeds, model)
    if model is not None:
        open_model(model)
    parameters: dict[str, int] = {}
    return [_entry(row(scale), seed, store, out, model, parameters) for row in table.rows for seed in range(seeds)]


def _entry(
    row: Row, seed: int, store: Store, out: Path, model: str | None, parameters: dict[str, int]
) -> dict[str, Any]:
    config, settings = check(row.config), row.settings
    slices = len(choose(store, settings))
    steps = settings.sampler.steps if isinstance(settings.sampler.steps, int) else len(settings.sampler.steps)
    passes = slices if config.model.method == "unet" else slices * settings.samples * steps
    entry: dict[str, Any] = {"row": row.name, "what": ", ".join(row.label), "seed": seed}
    if model is None:
        key = f"{config.model.method} {config.model.preset}"
        if key not in parameters:  # a network is made once, and only to see that it fits
            crop = config.data.crop
            made = make_segmenter(config, store, store.size if crop is None else (crop, crop))
            parameters[key] = sum(p.numel() for p in made.parameters())
        entry |= {
            "run": f"{row.run}-seed-{seed}",
            "method": config.model.method,
            "network": config.model.preset,
            "parameters": parameters[key],
            "training": budget(config.loop),
            "batch": config.loop.batch_size,
        }
    name = f"{row.name}-seed-{seed}"
    judged = (out / "evaluations" / name / "metrics.json").is_file()
    trained = model is not None or (out / "models" / row.kept(seed)).is_dir()
    sampler = "one pass" if config.model.method == "unet" else f"{settings.sampler.rule}, {steps} steps"
    state = "done" if judged else "trained" if trained else "to do"
    return entry | {"sampler": sampler, "slices": slices, "network_passes": passes, "state": state}

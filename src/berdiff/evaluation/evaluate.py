"""The evaluation: every case of a split, batch after batch, into a folder that can be continued."""

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from berdiff import __version__
from berdiff.data.augment import window
from berdiff.data.store import Store
from berdiff.diffusion.sampling import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.bootstrap import LEVEL, RESAMPLES, PatientBootstrap
from berdiff.evaluation.core import score_cases
from berdiff.evaluation.paper import paper_row
from berdiff.evaluation.record import FORMAT, Record, References, flat
from berdiff.evaluation.scores import reference_scores
from berdiff.evaluation.summary import TIME, Columns, summarise, take
from berdiff.evaluation.tables import markdown
from berdiff.methods.segmenter import Segmenter

Progress = Callable[[int, int], None]  # cases done, cases in all
HASHES = ("weights_sha256", "data_sha256")


@dataclass(frozen=True)
class Settings:
    """What is asked. The same settings, model and data give the same figures, in one go or in ten."""

    split: str = "test"
    samples: int = 16
    sampler: Sampler = field(default_factory=Sampler)
    seed: int = 0
    batch_size: int = 16
    crop: int | None = None  # centre crop, as the model was trained
    limit: int | None = None  # the first so many of one seeded order of the split: smaller subsets lie in larger ones
    save_samples: bool = False
    device: str = "cpu"


def evaluate(
    segmenter: Segmenter,
    store: Store,
    out: str | Path,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    name: str = "model",
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Evaluate into the folder `out` and return what its metrics.json holds."""
    chosen = choose(store, settings)
    what = identity(segmenter, store, settings, name)
    record = Record(out, what)
    if (finished := record.result()) is not None:
        progress(len(chosen), len(chosen))
        return finished
    batches = [chosen[i : i + settings.batch_size] for i in range(0, len(chosen), settings.batch_size)]
    pending = [number for number in range(len(batches)) if not record.has(number)]
    done = len(chosen) - sum(len(batches[number]) for number in pending)
    progress(done, len(chosen))
    for number in pending:
        record.add(number, *_one_batch(segmenter, store, batches[number], settings))
        done += len(batches[number])
        progress(done, len(chosen))
    columns, references = record.gathered(len(batches))
    result = _result(columns, references, store, what)
    record.finish(columns, markdown(result), result)
    return result


def choose(store: Store, settings: Settings) -> np.ndarray:
    """The places in the store of the cases to evaluate, in the store's order."""
    for option, value in (("samples", settings.samples), ("batch-size", settings.batch_size)):
        if value < 1:
            raise InputError(f"--{option}: expected at least 1, found {value}")
    if settings.crop is not None and not 1 <= settings.crop <= min(store.size):
        raise InputError(f"--crop: expected 1 to {min(store.size)}, the size of the images, found {settings.crop}")
    indices = store.indices(settings.split)
    if not len(indices):
        raise InputError(f"{store.address}: expected cases in the split {settings.split!r}, found none")
    if int(store.cases.raters[indices].min()) < 1:
        bare = store.cases.case[indices][store.cases.raters[indices] < 1][0]
        raise InputError(f"{store.address}: expected at least one rater for every case, found none for {bare}")
    if settings.limit is None:
        return indices
    if settings.limit < 1:
        raise InputError(f"--limit: expected at least 1 case, found {settings.limit}")
    order = np.random.default_rng(settings.seed).permutation(len(indices))
    return np.sort(indices[order[: settings.limit]])


def _one_batch(
    segmenter: Segmenter, store: Store, indices: np.ndarray, settings: Settings
) -> tuple[Columns, References, torch.Tensor | None]:
    images, masks = store.read(indices)
    size = store.size if settings.crop is None else (settings.crop, settings.crop)
    image = torch.from_numpy(np.ascontiguousarray(window(images, size)))
    mask = torch.from_numpy(np.ascontiguousarray(window(masks, size)))
    cases = store.cases
    raters, names = torch.from_numpy(cases.raters[indices]), cases.case[indices].tolist()
    n, seed = settings.samples, settings.seed
    scored = score_cases(segmenter, image, mask, raters, names, n, settings.sampler, seed, settings.device)
    targets = len(store.targets)
    of_case = {"case": cases.case, "patient": cases.patient, "volume": cases.volume, "raters": cases.raters}
    columns: Columns = {column: np.repeat(values[indices], targets) for column, values in of_case.items()}
    columns["target"] = np.array([*store.targets] * len(indices), dtype=object)
    columns |= flat(scored.scores)
    columns[TIME] = np.full(len(indices) * targets, scored.seconds)
    references = {kind: flat(s) for kind, s in reference_scores(mask, raters, names, n, seed).items()}
    return columns, references, scored.samples if settings.save_samples else None


def identity(segmenter: Segmenter, store: Store, settings: Settings, name: str) -> dict[str, Any]:
    """What must be the same for an evaluation to go on, in plain JSON types."""
    weights = hashlib.sha256()
    for key, value in sorted(segmenter.state_dict().items()):  # type: ignore[attr-defined]
        weights.update(key.encode())
        weights.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    data = hashlib.sha256(repr(sorted(store.manifest.files.items())).encode())
    plain = asdict(settings)
    steps = plain["sampler"]["steps"]
    plain["sampler"]["steps"] = list(steps) if isinstance(steps, tuple) else steps
    hashes = zip(HASHES, (weights.hexdigest(), data.hexdigest()), strict=True)
    return {"model": name, **dict(hashes), **plain}


def _result(columns: Columns, references: References, store: Store, identity: dict[str, Any]) -> dict[str, Any]:
    """What metrics.json holds."""
    settings = {name: value for name, value in identity.items() if name not in ("model", *HASHES)}
    bootstrap = PatientBootstrap(columns["patient"], settings["seed"])
    figures = {metric: e.plain() for metric, e in summarise(columns, bootstrap).items()}
    by_target = {}
    if len(store.targets) > 1:
        for target in store.targets:
            of_target = take(columns, columns["target"] == target)
            by_target[target] = {metric: e.plain() for metric, e in summarise(of_target, bootstrap).items()}
    patients = columns["patient"]
    return {
        "format": FORMAT,
        "berdiff": __version__,
        "torch": torch.__version__,
        "model": identity["model"],
        **{name: identity[name] for name in HASHES},
        "settings": settings,
        "data": {
            "source": store.manifest.source,
            "cases": len(columns["case"]) // len(store.targets),
            "patients": len(bootstrap.patients),
            "targets": list(store.targets),
            "notes": list(store.notes),
        },
        "interval": {"level": LEVEL, "over": "patients", "resamples": RESAMPLES},
        "metrics": figures,
        "by_target": by_target,
        "references": {
            kind: {_shown(metric): bootstrap.estimate(values, patients).plain() for metric, values in scores.items()}
            for kind, scores in references.items()
        },
        "paper": paper_row(store.manifest.source),
    }


def _shown(metric: str) -> str:
    """A reference point's Dice is by slice: it has no volumes of its own."""
    return "dice_slice" if metric == "dice" else metric

"""The evaluation: every case of a split, batch after batch, into a folder in which a killed one resumes."""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from berdiff import __version__, schema
from berdiff.data.case import Progress
from berdiff.data.describe import by, expect
from berdiff.data.input_spec import size_of
from berdiff.data.store import Store
from berdiff.data.subset import choose_cases, choose_volumes
from berdiff.diffusion.along_z import correlation
from berdiff.evaluation.bootstrap import LEVEL, RESAMPLES, Figure, PatientBootstrap
from berdiff.evaluation.core import sample_cases
from berdiff.evaluation.evaluation_folder import LAST, EvaluationFolder, References
from berdiff.evaluation.over_cases import finding_figures, marked, rater_parity, size_spread
from berdiff.evaluation.per_case import TIME, Columns, by_target, summarise
from berdiff.evaluation.published import paper_row
from berdiff.evaluation.references import reference_scores
from berdiff.evaluation.report import markdown
from berdiff.evaluation.result_file import FORMAT, Asked, ResultFile
from berdiff.evaluation.scores import SIZE_GAPS, choose_sets, score
from berdiff.evaluation.settings import OF_VOLUMES, EvaluationSettings
from berdiff.inference.model import Model
from berdiff.inference.settings import COHERENCE, NEIGHBOURS
from berdiff.metrics import Compared
from berdiff.metrics.registry import PLUGINS, Values
from berdiff.targets.targets import Targets

SECONDS_BETWEEN_LOOKS = 0.5  # at batches that other processes have claimed
Part = tuple[Columns, References, torch.Tensor | None]
NOT_SETTINGS = ("job", "model", "weights_sha256", "data_sha256")


def evaluate(
    model: Model,
    store: Store,
    out: str | Path,
    settings: EvaluationSettings = EvaluationSettings(),  # noqa: B008 (frozen)
    progress: Progress = lambda done, total: None,
) -> ResultFile:
    """Evaluate into the folder `out` and return what its metrics.json holds."""
    settings = completed(settings, model, store)
    batches = _batches(store, settings)
    total = sum(map(len, batches))
    folder = EvaluationFolder(out, identity(model, store, settings), "evaluation")
    with folder:
        if (finished := folder.result()) is not None:
            progress(total, total)
            return finished
        left = {number: batch for number, batch in enumerate(batches) if not folder.has(number)}
        while left:  # what other processes have claimed comes last: by then they have done it, or died
            before = len(left)
            for number, batch in list(left.items()):
                progress(total - sum(map(len, left.values())), total)
                if _settled(folder, number, lambda batch=batch: _one_batch(model, store, batch, settings)):
                    del left[number]
            if len(left) == before:
                time.sleep(SECONDS_BETWEEN_LOOKS)
        progress(total, total)
        with folder.alone(LAST):
            if (finished := folder.result()) is not None:
                return finished
            columns, references = folder.gathered(len(batches))
            result = _result(columns, references, store, folder.settings)
            folder.finish(columns, markdown(result), result)
    return result


def _settled(folder: EvaluationFolder, number: int, make: Callable[[], Part]) -> bool:
    """Whether a batch is done now, by this process or before; False where another process is at it."""
    if folder.has(number):
        return True
    made = None if folder.begun else make()  # what does not fit leaves nothing behind, not even a folder
    claim = folder.claim(number)
    if claim is None:
        return folder.result() is not None  # then nobody needs it any more
    try:
        if not folder.has(number) and folder.result() is None:
            folder.add(number, *(made or make()))
    finally:
        claim.release()
    return True


def _batches(store: Store, settings: EvaluationSettings) -> list[np.ndarray]:
    """Places in the store: of slices that are sampled together, or of one volume."""
    if settings.by == "volume" and len(store.size) == 2:
        return choose_volumes(store, settings.split, settings.limit, settings.seed, settings.least_slices or 1)
    chosen = choose_cases(store, settings.split, settings.limit, settings.seed)
    return [chosen[start : start + settings.batch_size] for start in range(0, len(chosen), settings.batch_size)]


def completed(settings: EvaluationSettings, model: Model, store: Store) -> EvaluationSettings:
    """The settings, checked, with the model's own sampler and crop where none are given, its device and the pool."""
    settings = replace(
        settings,
        pool=settings.drawn,
        sampler=settings.sampler or model.segmenter.sampler,
        crop=model.crop if settings.crop is None else settings.crop,
        device=model.device,
        by="volume" if len(store.size) == 3 else settings.by,
    )
    if settings.by == "volume" and settings.coherence is None and len(store.size) == 2:
        settings = replace(settings, coherence=COHERENCE)
    schema.check(settings, EvaluationSettings, lambda name: f"--{name.replace('_', '-')}")
    own, known = store.targets, model.input_spec.targets
    same = len(own) == 1 or len(own) != len(known) or own == known  # one may be called otherwise
    expect(same, store.address, f"the targets of the model, {', '.join(known)}", ", ".join(own), "kind")
    axes = len(model.input_spec.size)
    right = len(store.size) == axes
    expect(right, store.address, f"images of {axes} axes, as the model has them", by(store.size), "shape")
    if settings.crop is not None:
        crop = size_of(settings.crop, axes, "--crop")
        fits = all(side <= most for side, most in zip(crop, store.size, strict=True))
        expect(fits, "--crop", f"at most {by(store.size)}, the size of the images", by(crop), "shape")
    return settings


def data_sha256(store: Store) -> str:
    """Which data it is, wherever it lies."""
    return hashlib.sha256(repr(sorted(store.manifest.files.items())).encode()).hexdigest()


def identity(model: Model, store: Store, settings: EvaluationSettings) -> dict[str, Any]:
    """What must be the same for an evaluation to resume, in plain JSON types."""
    hashes = {"weights_sha256": model.segmenter.weights_sha256, "data_sha256": data_sha256(store)}
    asked = schema.plain(settings)
    if settings.by == "slice":  # as before there were volumes
        asked = {name: value for name, value in asked.items() if name not in ("by", *OF_VOLUMES)}
    joined = {"metrics": names} if (names := PLUGINS.names()) else {}
    return {"model": model.name, **hashes, **asked, **joined, **model.rounding()}


def _one_batch(model: Model, store: Store, indices: np.ndarray, settings: EvaluationSettings) -> Part:
    image, mask = (torch.from_numpy(array) for array in store.read(indices))
    cases = {name: getattr(store.cases, name)[indices] for name in ("case", "patient", "volume", "raters")}
    raters, names = torch.from_numpy(cases["raters"]), cases["case"].tolist()
    n, rule, seed = settings.samples, settings.set, settings.seed
    crop = None if settings.crop is None else size_of(settings.crop, len(store.size), "--crop")
    rho = correlation(NEIGHBOURS, settings.coherence or 0.0) or None if settings.by == "volume" else None
    started = time.perf_counter()
    pool = sample_cases(
        model.segmenter, image, names, settings.pool, settings.sampler, seed, settings.device, crop, rho
    )
    seconds = (time.perf_counter() - started) / len(indices)
    if settings.by == "volume" and len(store.size) == 2:
        raters, cases = _of_volume(raters, cases, store.address)
        pool, mask = (slices.movedim(0, 2)[None] for slices in (pool, mask))
        names = cases["case"].tolist()
    compared = Compared(pool, mask, raters)
    sets = choose_sets(compared, n, rule, names, seed)
    columns: Columns = {name: np.repeat(values, len(store.targets)) for name, values in cases.items()}
    columns["target"] = np.array([*store.targets] * len(names), dtype=object)
    if settings.by == "volume":
        columns |= _flat(dict(zip(SIZE_GAPS, compared.pairs.size_gaps(), strict=True)))
    kind = Targets(store.targets, store.input_spec.kind).kind
    same = kind == Targets(store.targets, model.input_spec.kind).kind
    columns |= _flat(score(compared, sets, kind if same else "independent"))
    columns[TIME] = np.full(len(columns["case"]), seconds)
    references = reference_scores(mask, raters, names, n, seed, rule, settings.pool)
    kept = pool[torch.arange(len(pool))[:, None], torch.from_numpy(sets[n])] if settings.save_samples else None
    return columns, {kind: _flat(scores) for kind, scores in references.items()}, kept


def _of_volume(raters: torch.Tensor, cases: Columns, what: str) -> tuple[torch.Tensor, Columns]:
    """What is said of all slices of a volume, said once; its name is its case's."""
    expected = f"the same number of raters in all slices of {cases['volume'][0]}"
    expect(len(raters.unique()) == 1, what, expected, f"{int(raters.min())} to {int(raters.max())}", "shape")
    first = {name: values[:1] for name, values in cases.items()}
    return raters[:1], first | {"case": first["volume"]}


def _flat(scores: Values) -> Columns:
    """(B, K) per metric -> one entry per case and target, case by case."""
    return {name: values.reshape(-1) for name, values in scores.items()}


def _result(columns: Columns, references: References, store: Store, asked: dict[str, Any]) -> ResultFile:
    """What metrics.json holds."""
    targets = columns["target"]
    bootstrap = PatientBootstrap(columns["patient"], asked["seed"])
    of_target = by_target(columns)
    several = of_target if len(of_target) > 1 else {}
    unit = asked.get("by", "slice")

    def points(rows: np.ndarray) -> dict[str, dict[str, Figure]]:
        """The reference points of some cases and targets; their Dice is by case: they have no volumes."""
        return {
            kind: {
                f"dice_{unit}" if name == "dice" else name: bootstrap.estimate(values[rows], columns["patient"][rows])
                for name, values in scores.items()
                if not np.isnan(values[rows]).all()
            }
            for kind, scores in references.items()
        }

    result: ResultFile = {
        "format": FORMAT,
        "berdiff": __version__,
        "torch": torch.__version__,
        "model": asked["model"],
        "weights_sha256": asked["weights_sha256"],
        "data_sha256": asked["data_sha256"],
        "settings": cast(Asked, {name: value for name, value in asked.items() if name not in NOT_SETTINGS}),
        "data": {
            "source": store.manifest.source,
            "size": list(store.size),
            "cases": len(targets) // len(store.targets),
            "cases_of_several_raters": int((columns["raters"] > 1).sum()) // len(store.targets),
            "patients": len(bootstrap.patients),
            "targets": list(store.targets),
            "kind": store.input_spec.kind,
            "marked": {name: marked(own) for name, own in of_target.items()},
            "notes": list(store.notes),
        },
        "interval": {"level": LEVEL, "over": "patients", "resamples": RESAMPLES},
        "metrics": summarise(columns, bootstrap),
        "by_target": {name: summarise(own, bootstrap) for name, own in several.items()},
        "rater_parity": rater_parity(columns, bootstrap),
        "finding": {name: finding_figures(own, bootstrap) for name, own in of_target.items()},
        "references": points(np.ones(len(targets), bool)),
        "references_by_target": {name: points(targets == name) for name in several},
        "paper": paper_row(store.manifest.source) if unit == "slice" else None,
    }
    if spread := size_spread(columns, bootstrap):
        result["size_spread"] = spread
    return result

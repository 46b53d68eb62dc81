"""What `import berdiff` offers: prepare, train, evaluate, compare, segment, load, models.

Each calls what the command of its name calls, and takes its settings as keywords: what is wrong with one is an
`InputError` that names the keyword.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, overload

from berdiff import schema
from berdiff.data.store import Store, open_store
from berdiff.diffusion.sampler import Sampler
from berdiff.display import note, progress
from berdiff.errors import InputError, as_keywords
from berdiff.inference.model import Model, load
from berdiff.inference.region import Region, plain
from berdiff.inference.settings import SegmentSettings
from berdiff.memory import keep_freed_memory
from berdiff.methods import folder
from berdiff.methods.sampling import SamplerOptions, choose_sampler
from berdiff.remote import typed_only

if TYPE_CHECKING:
    from berdiff.evaluation.compare import Comparison, Evaluation
    from berdiff.inference.result import Result
    from berdiff.jobs.run import Outcome
    from berdiff.training.config import AnyConfig
    from berdiff.training.run_folder import TrainingRun

__all__ = ["compare", "evaluate", "load", "models", "prepare", "segment", "train"]

# settings of a training that have a keyword of their own
KEYWORDS = {
    "data.store": "data",
    "seed": "seed",
    "loop.max_steps": "max_steps",
    "loop.max_minutes": "max_minutes",
    "engine.devices": "devices",
}


def models() -> dict[str, str]:
    """The bundled models: the name of each, and what it knows."""
    found: dict[str, str] = {}
    for name in folder.bundled():
        card = (folder.BUNDLED / name / "README.md").read_text(encoding="utf-8")
        found[name] = card.partition("- **Knows**: ")[2].partition("\n")[0].partition(";")[0].rstrip(".")
    return found


@as_keywords()
def prepare(
    source: str,
    path: str | Path | None,
    out: str | Path,
    *,
    seed: int = 0,
    val: float = 0.1,
    test: float = 0.2,
    resplit: bool = False,
    **options: Any,
) -> Store:
    """Read data in the layout `source` (a name of `berdiff data prepare`) and write the store `out`.

    `path` is the file or folder to read; None for a source that reads none. A split that the source brings is kept,
    unless `resplit`; otherwise patients are split by `seed`, `val` and `test`. `options` are those of the source, such
    as `patient=r"^(p\\d+)"` of `folder`: `berdiff data prepare SOURCE --help` lists them. What is written is checked on
    its way in; `berdiff data verify` checks it again.
    """
    from berdiff.data.prepare import prepare as write
    from berdiff.data.sources import find_source

    module = find_source(source)
    _known(options, [field.name for field in fields(module.Options)], "options of this source")
    if (path is None) == getattr(module, "NEEDS_PATH", True):
        raise InputError(f"path: expected {'a file or folder' if path is None else 'None'} for {source}, found {path}")
    if seed < 0:
        raise InputError(f"seed: expected at least 0, found {seed}")
    place = None if path is None else Path(path)
    split: dict[str, Any] = {"seed": seed, "val": val, "test": test, "resplit": resplit}
    with progress(f"preparing {out}") as step:
        write(source, place, out, module.Options(**options), **split, progress=step)
    return Store.open(out)


@as_keywords()
def train(
    recipe: str,
    data: Store | str | Path | None = None,
    *,
    out: str | Path,
    max_steps: int | None = None,
    max_minutes: float | None = None,
    seed: int | None = None,
    method: str | None = None,
    devices: int = 1,
    overrides: Mapping[str, Any] | None = None,
) -> "TrainingRun":
    """Begin a run in the folder `out`, or resume it, and return it when it has ended.

    `recipe` is a name of `berdiff train --list`, `data` a store or its address (None: the embedded data), `method`
    trains another one with the recipe. `overrides` are any other settings by their dotted names:
    `{"loop.batch_size": 4, "validation.every": 0}`.

    It trains in this process, on one device. With more `devices` the program that calls this is started once for each
    of them, and all but the first end with the training; that does not work in a notebook. Interrupted, it saves, and
    raises KeyboardInterrupt.
    """
    import torch

    from berdiff.recipes import FIRST_STAGES, first_stage
    from berdiff.training import session
    from berdiff.training.run_folder import is_finished, read_run

    given = {"data.store": data.address if isinstance(data, Store) else data, "seed": seed}
    given |= {"loop.max_steps": max_steps, "loop.max_minutes": max_minutes}
    asked = {name: value for name, value in given.items() if value is not None}
    config, run = _configuration(recipe, method, devices, {**asked, **(overrides or {})}), Path(out)
    two_stages = config.init is None and config.recipe in FIRST_STAGES
    if _rank() is not None:
        raise InputError("train: this program has trained on several devices before; start another one", "conflict")
    if config.engine.devices != "1":
        _refuse_where_no_program_is(config.engine.devices)
        if two_stages:
            raise InputError(
                f"devices: {recipe} trains in two stages, from Python on 1 device; `berdiff train` takes more",
                "unsupported",
            )
    threads = torch.get_num_threads()
    try:
        if two_stages:
            first, before = first_stage(config, run)
            if not is_finished(before):
                _unless_interrupted(session.train(first, before))
            config = replace(config, init=str(before))
        _unless_interrupted(session.train(config, run))
    finally:
        torch.set_num_threads(threads)
    if _rank():
        raise SystemExit(0)
    return read_run(run)


def _configuration(recipe: str, method: str | None, devices: int, settings: Mapping[str, Any]) -> "AnyConfig":
    """The recipe's, with the settings; errors name the keyword, or the dotted name."""
    from berdiff.recipes import configuration, nearest
    from berdiff.training.config import TrainConfig

    config = configuration(recipe, method)
    if devices == 1:  # threads: a recipe's are those of one process of several
        engine = replace(config.engine, devices="1", num_nodes=1, strategy="auto", threads=None)
    else:
        engine = replace(config.engine, devices=str(devices))
    left_open = (name for name in config.left_open if name not in settings and not name.startswith("engine."))
    config = replace(config, engine=engine, left_open=tuple(left_open))
    names = [name for name, _ in schema.flatten(config) if name != "left_open"]
    content = schema.plain(config)
    for name, value in settings.items():
        if name not in names:
            known = f"{nearest(name, names)}; `train RECIPE --help` has all"
            raise InputError(f"overrides: no setting {name!r}; {known}", "name")
        *groups, last = name.split(".")
        inner = content
        for group in groups:
            inner = inner[group]
        inner[last] = schema.plain(value)
    return schema.parse(TrainConfig[type(config.model)], content, lambda place: KEYWORDS.get(place, place))


def _refuse_where_no_program_is(devices: str) -> None:
    """Several devices need a program that can be started once more for each of them."""
    if hasattr(sys, "ps1") or not Path(sys.argv[0]).is_file():
        raise InputError(f"devices: expected 1 in a notebook or an interactive session, found {devices}", "unsupported")


def _rank() -> int | None:
    """Which of several processes that have trained together this one is; None where there are none."""
    from torch import distributed

    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None


def _unless_interrupted(reason: str) -> None:
    """What was to follow a training that was stopped does not."""
    if reason.endswith(signal.SIGINT.name):
        raise KeyboardInterrupt(reason)
    if reason.endswith(signal.SIGTERM.name):
        raise SystemExit(128 + signal.SIGTERM)


@as_keywords()
def evaluate(
    model: Model | str | Path,
    data: Store | str | Path | None = None,
    *,
    out: str | Path | None = None,
    split: str = "test",
    samples: int = 16,
    limit: int | None = None,
    seed: int = 0,
    sampler: Mapping[str, Any] | None = None,
    device: str = "auto",
    **settings: Any,
) -> "Evaluation":
    """GED, HM-IoU, Dice and calibration on a split of a store, with intervals and reference points.

    `model` is a model or what `load` takes; without `data` it is evaluated on what its run was trained on, or on the
    embedded data. `limit` takes the first cases of one seeded order. `sampler` has options of `Sampler` that replace
    the model's own, `settings` the others of `EvaluationSettings`, such as `by="volume"`. With `out` everything is kept
    in that folder, and the same call resumes there. `device` is of a model that is opened here.
    """
    from berdiff.evaluation.compare import load as open_evaluation
    from berdiff.evaluation.evaluate import evaluate as run
    from berdiff.evaluation.settings import EvaluationSettings

    own = {"split": split, "samples": samples, "limit": limit, "seed": seed}
    known = [field.name for field in fields(EvaluationSettings) if field.name not in (*own, "sampler", "device")]
    _known(settings, known, "settings of an evaluation")
    keep_freed_memory()
    opened = _opened(model, device)
    store = _store(typed_only(opened.store, f"the run of {opened.name}", "data") if data is None else data)
    chosen = choose_sampler(opened.segmenter, sampler or {})
    asked = EvaluationSettings(**own, sampler=chosen, device=opened.device, **settings)
    with TemporaryDirectory(prefix="berdiff-") as temporary:
        place = Path(out) if out is not None else Path(temporary) / "evaluation"
        with progress(f"evaluating {opened.name}") as step:
            run(opened, store, place, asked, step)
        return open_evaluation(place, opened.name if out is None else place.resolve().name)


@as_keywords()
def compare(first: "Evaluation | str | Path", *others: "Evaluation | str | Path", seed: int = 0) -> "Comparison":
    """The first evaluation, or its folder, against each of the others, on the cases that all have: differences with
    paired intervals over patients."""
    from berdiff.evaluation.compare import Comparison, Evaluation, compare_evaluations
    from berdiff.evaluation.compare import load as open_evaluation

    if not others:
        raise InputError("compare: expected at least two evaluations, found one")
    if seed < 0:
        raise InputError(f"seed: expected at least 0, found {seed}")
    given = [
        one if isinstance(one, Evaluation) else open_evaluation(Path(one), Path(one).resolve().name)
        for one in (first, *others)
    ]
    names = [one.name for one in given]
    if len({*names}) < len(names):
        given = [replace(one, name=f"{one.name} ({number})") for number, one in enumerate(given, 1)]
    return Comparison(compare_evaluations(given, seed))


@overload
def segment(model: Model | str | Path, image: Any, n: int = 16, *, out: None = None, **options: Any) -> "Result": ...
@overload
def segment(
    model: Model | str | Path,
    image: str | Path | Sequence[str | Path],
    n: int = 16,
    *,
    out: str | Path,
    write: Sequence[str] = (),
    **options: Any,
) -> "Outcome": ...
@as_keywords(samples="n")
def segment(
    model: Model | str | Path,
    image: Any,
    n: int = 16,
    *,
    out: str | Path | None = None,
    write: Sequence[str] = (),
    **options: Any,
) -> "Result | Outcome":
    """n masks of one image or volume, as `Model.segment` has it, with its options.

    With `out`, as `berdiff segment` does it: `image` may be a file, a folder, a glob, a store or a list of them, and
    each input gets a folder in `out` with the kinds of files in `write`. The same call resumes. What became of each is
    in the outcome; one that cannot be read fails alone, and raises only where none is left.
    """
    opened = _opened(model)
    if out is None:
        if write:
            raise InputError(
                "write: expected out beside it, found none; result.save(...) writes one result", "conflict"
            )
        return opened.segment(image, n, **options)
    from berdiff.inference.inputs import find_inputs
    from berdiff.jobs.run import SegmentationJob
    from berdiff.output.formats import OutputSettings

    given = [image] if isinstance(image, str | Path) else image
    inputs = find_inputs(given, opened.input_spec.channels, note=note)
    output = OutputSettings(out if isinstance(out, Path) or "://" in out else Path(out), tuple(write) or None)
    with progress(f"segmenting with {opened.name}") as step:
        outcome = SegmentationJob(opened, _segment_settings(n, options), output, step, note).segment(inputs)
    if outcome.failed and not (outcome.done or outcome.skipped):
        raise InputError(next(iter(outcome.failed.values())))
    return outcome


def _segment_settings(n: int, options: Mapping[str, Any]) -> SegmentSettings:
    """The keywords of `Model.segment` as settings, but those of arrays alone."""
    region, sampler = ({field.name for field in fields(kind)} for kind in (Region, Sampler))
    own = {field.name for field in fields(SegmentSettings)} - {"samples", "sampler", "region"}
    _known(options, [*own, *region, *sampler], "options of a segmentation into a folder")
    places = {name: value for name, value in options.items() if name in region}
    places |= {name: plain(places[name], name) for name in ("center", "box") if places.get(name) is not None}
    if isinstance(slices := places.get("slices"), tuple):
        places["slices"] = ":".join("" if end is None else str(end) for end in slices)
    steps = SamplerOptions(**{name: value for name, value in options.items() if name in sampler})
    others = {name: value for name, value in options.items() if name in own}
    return SegmentSettings(samples=n, sampler=steps, region=Region(**places), **others)


def _known(given: Mapping[str, Any], names: Sequence[str], what: str) -> None:
    if unknown := sorted(given.keys() - {*names}):
        raise InputError(f"{unknown[0]}: not one of the {what}, which are {', '.join(sorted(names)) or 'none'}", "name")


def _opened(model: Model | str | Path, device: str = "auto") -> Model:
    return model if isinstance(model, Model) else load(model, device)


def _store(data: Store | str | Path | None) -> Store:
    """As it is called; without one, the embedded data, which are made on first use."""
    if isinstance(data, Store):
        return data
    with progress("making the embedded data, once") as step:
        return open_store(None if data is None else str(data), step)

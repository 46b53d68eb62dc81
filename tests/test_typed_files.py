"""Every file of ours that is read again, wrong in every place: an InputError of one sentence, or it was still right."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from berdiff import schema
from berdiff.data import manifest
from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.evaluation.compare import compare, comparison_tables
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.evaluation_folder import EvaluationFolder, read_result
from berdiff.evaluation.report import markdown
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.inputs import find_inputs
from berdiff.inference.model import Model, load
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.case_files import case_done
from berdiff.jobs.cohort import write_cohort
from berdiff.jobs.findings import Centers
from berdiff.jobs.run import SegmentationJob
from berdiff.jobs.store import ResultFiles, ResultStore
from berdiff.methods import folder as model_folder
from berdiff.output.formats import OutputSettings
from berdiff.training import checkpoint
from berdiff.training import config as train_config
from berdiff.training.learning_curves import write_validations
from berdiff.training.run_folder import find_runs, run_summary
from berdiff.training.session import train
from berdiff_viewer.server.results import saved_results
from fakes import Blur, MemoryStore, bright_model, make_spec, make_store
from mutations import of_csv, of_json, of_lines, some
from reproduce.tables.kept import read_trained, write_trained
from training.small import small_config

FEW = 20
FEWER = {"statistics": 8, "metrics": 6, "cases": 6, "done": 6, "model": 12, "configuration": 12}  # they take longer


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of each: a store, a model folder, a run, an evaluation, segmentations with and without findings."""
    base = tmp_path_factory.mktemp("made")
    store = make_store(base, train=4, val=2)
    config = small_config(store, max_steps=2, checkpoint_every=2, log_every=1)
    config = replace(config, validation=replace(config.validation, every=2, cases=2, samples=2))
    train(config, base / "table" / "runs" / "run")
    write_trained(base / "table", 2, config)
    model_folder.save(Blur().build(make_spec()), base / "model")
    memory = MemoryStore(6)
    blur = Model(Blur().build(memory.input_spec), "blur", memory.input_spec, memory.size)
    settings = EvaluationSettings(samples=2, batch_size=3, crop=12)
    evaluate(blur, memory, base / "evaluation", settings)  # type: ignore[arg-type]
    evaluate(blur, memory, base / "other", replace(settings, seed=1))  # type: ignore[arg-type]
    kept: list[str] = []
    add = EvaluationFolder.add

    def keep(self, *args, **kwargs) -> None:
        add(self, *args, **kwargs)
        kept.append(self._part(0).read_text())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvaluationFolder, "add", keep)
        evaluate(blur, memory, base / "third", settings)  # type: ignore[arg-type]
    (base / "parts").mkdir()
    (base / "parts" / "00000.json").write_text(kept[0])
    (base / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(2):
        Image.fromarray(rng.integers(0, 256, (20, 20), dtype=np.uint8)).save(base / "pictures" / f"p{i}.png")
    inputs = find_inputs([base / "pictures"])
    (base / "centers.csv").write_text("case,z,y,x,finding\np0,,9,9,one\np0,,3,4,two\np1,,5,5,\n")
    for name, findings in (("segmented", None), ("found", Centers(base / "centers.csv", mm=False))):
        output = OutputSettings(base / name, ("samples", "json"))
        SegmentationJob(bright_model(), SegmentSettings(samples=2), output, findings=findings).segment(inputs)
    return base


def _store(base: Path) -> None:
    Store.open(base / "store.zarr")


def _manifest(base: Path) -> None:
    """With the checksum of what is in it now, so that its fields are looked at."""
    file = base / "store.zarr" / "manifest.json"
    try:
        content = json.loads(file.read_text())
        content.pop("checksum", None)
        file.write_text(manifest.canonical({**content, "checksum": manifest.checksum(content)}))
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    _store(base)


def _run(base: Path) -> None:
    for run in find_runs(base / "table" / "runs"):
        run_summary(run)
    train_config.load(base / "table/runs/run/config.json")


def _statistics(base: Path) -> None:
    for run in find_runs(base / "table" / "runs"):
        json.dumps(run_summary(run))
    write_validations(find_runs(base / "table/runs"), base / "curves.csv")


def _checkpoint(base: Path) -> None:
    """With the checksum of what is in it now."""
    file = base / "table/runs/run/checkpoints/step-00000002/state.json"
    try:
        content = json.loads(file.read_text())
        content["checksum"] = checkpoint._checksum(content["state"], content["sha256"])
        file.write_text(json.dumps(content))
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    try:
        newest, _ = checkpoint.read_newest(file.parents[1])
        assert newest is not None
        schema.parse(checkpoint.Counters, newest.state, str)
    finally:
        pass


def _part(base: Path) -> None:
    work = EvaluationFolder(base, {}, "evaluation")
    work.has(0)
    work._read(0)


def _evaluation(base: Path) -> None:
    markdown(read_result(base / "evaluation"))
    comparison_tables(compare([base / "evaluation", base / "other"]))


def _segmented(base: Path) -> None:
    """A damaged result is made again; the table is of those that are whole."""
    write_cohort(ResultFiles(base / "segmented"))
    job = SegmentationJob(
        bright_model(), SegmentSettings(samples=2), OutputSettings(base / "segmented", ("samples", "json"))
    )
    outcome = job.segment(find_inputs([base / "pictures"]))
    assert len(outcome.done) + len(outcome.skipped) + len(outcome.failed) == 2
    for saved in saved_results(base / "segmented"):
        assert saved.facts or saved.source.error


def _findings(base: Path) -> None:
    case_done(ResultFiles(base / "found"), {"name": "p0", "sources": [], "asked": {}}, failed=False)


def _settings(base: Path) -> None:
    ResultStore(base / "evaluation", {}, "evaluation")


FILES: dict[str, tuple[str, Callable, Callable[[Path], object]]] = {
    "manifest": ("store.zarr/manifest.json", of_json, _manifest),
    "manifest, as it is": ("store.zarr/manifest.json", of_json, _store),
    "case table": ("store.zarr/cases.csv", of_csv, _store),
    "model": ("model/config.json", of_json, lambda base: load(base / "model")),
    "configuration": ("table/runs/run/config.json", of_json, _run),
    "statistics": ("table/runs/run/stats.jsonl", of_lines, _statistics),
    "state": ("table/runs/run/checkpoints/step-00000002/state.json", of_json, _checkpoint),
    "trained": ("table/trained.json", of_json, lambda base: read_trained(base / "table")),
    "part": ("parts/00000.json", of_json, _part),
    "metrics": ("evaluation/metrics.json", of_json, _evaluation),
    "cases": ("evaluation/per_case.csv", of_csv, _evaluation),
    "settings": ("evaluation/settings.json", of_json, _settings),
    "done": ("segmented/p0/done.json", of_json, _segmented),
    "result": ("segmented/p0/result.json", of_json, lambda base: saved_results(base / "segmented")),
    "findings": ("found/p0/findings.json", of_json, _findings),
    "centres": ("centers.csv", of_csv, lambda base: Centers(base / "centers.csv", mm=False)),
}


def check(made: Path, tmp_path: Path, name: str, count: int | None) -> None:
    relative, mutate, use = FILES[name]
    text = (made / relative).read_text()
    refused = 0
    top = Path(relative).parts[0]
    needs = [
        path for path in made.iterdir() if path.name not in ("store.zarr", "table", "segmented") or path.name == top
    ]
    for number, mutant in enumerate(some(mutate(text), count)):
        base = tmp_path / str(number)
        base.mkdir()
        for path in needs:
            if path.name == top or name in ("metrics", "cases", "done"):
                shutil.copytree(path, base / path.name) if path.is_dir() else shutil.copy(path, base)
        (base / relative).write_bytes(mutant)
        try:
            use(base)
        except InputError as error:
            refused += 1
            if not re.search(r".: .+", str(error), re.DOTALL):  # where, and what is wrong
                raise AssertionError(f"{name}: {mutant[:200]!r}: {str(error)[:2000]}") from error
        except BaseException as error:
            raise AssertionError(f"{name}: {mutant[:3000]!r}: {type(error).__name__}: {error}") from error
        shutil.rmtree(base)
    assert refused or name in ("done", "result", "settings", "findings"), "nothing was found wrong"


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_file_is_a_sentence(made: Path, tmp_path: Path, name: str) -> None:
    check(made, tmp_path, name, FEWER.get(name, FEW))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_wrong_file_is_a_sentence(made: Path, tmp_path: Path, name: str) -> None:
    check(made, tmp_path, name, None)


def test_only_a_regular_file_of_a_sensible_size_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "large").write_text("[" + "1," * 500_000 + "1]")
    monkeypatch.setattr(schema, "MAX_BYTES", 2**19)
    for name, found in (
        ("fifo", "no regular file"),
        ("loop", "no readable file"),
        ("large", "at most 0 MB"),
        ("none", "no readable"),
    ):
        with pytest.raises(InputError, match=f"{name}: expected settings.*{found}"):
            schema.read_json(tmp_path / name, "settings")

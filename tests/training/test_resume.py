"""A run killed at any moment and resumed is, bit for bit, the run that was not."""

import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from berdiff.data.batches import Batch, Batches
from berdiff.methods import folder as model_folder
from berdiff.methods.mose import MoSE
from berdiff.methods.mose.network import PRESETS
from berdiff.training.run_folder import read_rows
from berdiff.training.session import train

from .small import small_config, weight_files

# Children are forked: they have torch already, so a kill point costs a fraction of a second.
fork = multiprocessing.get_context("fork")


def _run(store: Path, out: Path, kill_at: int | None, slowly: bool) -> None:
    """In a child: train; with `kill_at`, die like a power cut just before the n-th call that changes the disk."""
    if slowly:  # at least half a second for the 24 steps, so that a kill within that time does come
        make = Batches.make
        Batches.make = lambda self, step: (time.sleep(0.02), make(self, step))[1]
    if kill_at is not None:
        left = iter(range(kill_at, -1, -1))

        def or_die(call):
            def wrapped(*args, **kwargs):
                if next(left) == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return wrapped

        os.fsync, os.replace, shutil.rmtree = map(or_die, (os.fsync, os.replace, shutil.rmtree))
    train(small_config(store), out)


def _child(store: Path, out: Path, kill_at: int | None = None, slowly: bool = False) -> multiprocessing.Process:
    process = fork.Process(target=_run, args=(store, out, kill_at, slowly))
    process.start()
    return process  # type: ignore[return-value]


def _finish(store: Path, out: Path) -> None:
    process = _child(store, out)
    process.join(60)
    assert process.exitcode == 0


def _counters(run: Path) -> list[dict]:
    states = [json.loads((path / "state.json").read_text())["state"] for path in sorted(run.glob("checkpoints/step-*"))]
    return [{name: value for name, value in state.items() if "minutes" not in name} for state in states]


def _figures(run: Path) -> list[dict]:
    timed = {"minutes", "cpu_minutes", "images_per_s", "memory_mb", "seconds"}
    return [{k: v for k, v in row.items() if k not in timed} for row in read_rows(run / "stats.jsonl")]


def _assert_same(run: Path, whole: Path) -> None:
    assert weight_files(run) == weight_files(whole)
    assert _counters(run) == _counters(whole)
    assert _figures(run) == _figures(whole)
    assert not list(run.rglob(".*")), "something half-written, or a lock, was left behind"


@pytest.fixture(scope="module")
def whole(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The uninterrupted run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    _finish(store, out)
    assert len(weight_files(out)) == 2 * 3 + 2
    return out


# A checkpoint makes seven such calls, a model folder five, the whole run about 95.
KILLS = (
    (0, ".config.json"),
    (5, ".stats.jsonl"),
    (7, "checkpoints/.step-00000004"),
    (11, "checkpoints/.step-00000004"),
    (14, ".model"),
    (17, ".model"),
    (22, ".best"),
    (26, "checkpoints/.step-00000008"),
    (30, "checkpoints/.step-00000008"),
    (37, ".model"),  # the older one, after the new one has taken its place
    (41, "checkpoints/.step-00000012"),
    (50, ".model"),
    (56, ".best"),
)


@pytest.mark.parametrize("kills", [KILLS[::2], pytest.param(KILLS[1::2], marks=pytest.mark.slow)])
def test_killed_while_writing(store: Path, whole: Path, tmp_path: Path, kills) -> None:
    for kill_at, left in kills:
        run = tmp_path / str(kill_at)
        process = _child(store, run, kill_at)
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        (leftover,) = run.rglob(".*.part")
        assert str(leftover.relative_to(run)).startswith(left), "the kill fell elsewhere than this case is meant for"
        for model in ("model", "best"):
            if (run / model).exists():
                model_folder.load(run / model)  # weights and configuration of one moment, whenever the kill came
        _finish(store, run)
        _assert_same(run, whole)


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_a_random_moment(store: Path, whole: Path, tmp_path: Path, seed: int) -> None:
    """Eight times, in as many runs as that takes; each comes through in the end."""
    rng, kills, number = random.Random(seed), 0, 0
    while kills < 8:
        run, number = tmp_path / str(number), number + 1
        while True:
            process = _child(store, run, slowly=True)
            process.join(rng.uniform(0.1, 0.5) if kills < 8 else 60)
            if not process.is_alive():
                break
            os.kill(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
            process.join()
            kills += 1
        assert process.exitcode == 0
        _assert_same(run, whole)


def test_interrupted_politely_and_resumed(store: Path, whole: Path, tmp_path: Path) -> None:
    """SIGTERM between two checkpoints: saved at that very step, nothing is done twice, and the end is the same."""
    out = tmp_path / "run"
    process = _child(store, out, slowly=True)
    while process.is_alive() and not (out / "checkpoints" / "step-00000004").exists():
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGTERM)  # type: ignore[arg-type]
    process.join(60)
    assert process.exitcode == 0
    rows = read_rows(out / "stats.jsonl")
    assert rows[-1]["kind"] == "end"
    assert rows[-1]["reason"] == "stopped by SIGTERM"
    assert (out / "checkpoints" / f"step-{rows[-1]['step']:08d}").exists()
    _finish(store, out)
    last = "step-00000024"
    same = [name for name in weight_files(whole) if last in name or name.startswith("model/")]
    assert len(same) == 4
    for name in same:
        assert weight_files(out)[name] == weight_files(whole)[name]


@pytest.mark.parametrize("bad", [None, 3, 4])
def test_batch_norms_statistics_resume_too(store: Path, tmp_path: Path, monkeypatch, bad: int | None) -> None:
    """They move in `loss`, not in `after_step`, and their averages beside them: MoSE's and SSN's presets have them.

    A bad step, before a checkpoint or just at it, leaves nothing behind in them.
    """
    monkeypatch.setitem(PRESETS, "tiny", replace(PRESETS["tiny"], norm="batch"))
    make = Batches.make

    def spoilt(self: Batches, step: int) -> list[Batch]:  # from 0
        return [replace(p, image=p.image * (math.nan if step + 1 == bad else 1)) for p in make(self, step)]

    monkeypatch.setattr(Batches, "make", spoilt)
    for out, stops in (("whole", [8]), ("resumed", [4, 8])):
        for steps in stops:
            train(small_config(store, MoSE("tiny", samples_per_expert=1), max_steps=steps), tmp_path / out)
    model = load_file(tmp_path / "whole/model/model.safetensors")
    assert any(name.endswith("running_mean") and bool(tensor.any()) for name, tensor in model.items())
    assert all(bool(tensor.isfinite().all()) for tensor in model.values())
    assert _counters(tmp_path / "whole")[-1]["skipped"] == (bad is not None)
    assert weight_files(tmp_path / "resumed") == weight_files(tmp_path / "whole")

"""Several processes train the model that one process trains with the whole batch."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from berdiff.data.batches import Batch, Batches
from berdiff.files import lock
from berdiff.methods.mose import MoSE
from berdiff.methods.mose.network import PRESETS
from berdiff.training import checkpoint
from berdiff.training.run_folder import read_rows
from berdiff.training.session import FIRST_PROCESS, train

from .small import small_config

fork = multiprocessing.get_context("fork")
LAST = "checkpoints/step-00000024"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _process(store: Path, run: Path, strategy: str, rank: int, port: int, max_steps: int) -> None:
    """One of two processes, with the variables that torchrun sets."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
    config = small_config(store, max_steps=max_steps)
    train(replace(config, engine=replace(config.engine, devices="2", strategy=strategy)), run)


def _two_processes(store: Path, run: Path, strategy: str, max_steps: int = 24, codes=(0, 0)) -> None:
    port = _free_port()
    both = [
        fork.Process(target=_process, args=(store, run, strategy, rank, port, max_steps), daemon=True)
        for rank in range(2)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [*codes]


@pytest.fixture(scope="module")
def one(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process with the whole batch of 4."""
    run = tmp_path_factory.mktemp("one") / "run"
    train(small_config(store), run)
    return run


def _assert_alike(run: Path, one: Path) -> None:
    ours, theirs = checkpoint.read(run / LAST), checkpoint.read(one / LAST)
    for part in checkpoint.PARTS:
        assert ours.tensors[part].keys() == theirs.tensors[part].keys()
        for name, value in ours.tensors[part].items():
            torch.testing.assert_close(value, theirs.tensors[part][name], rtol=1e-3, atol=1e-5)
    for a, b in zip(read_rows(run / "stats.jsonl"), read_rows(one / "stats.jsonl"), strict=True):
        assert a.keys() == b.keys()
        for name in {"loss", "grad_norm", "ged", "hm_iou"} & b.keys():
            assert a[name] == pytest.approx(b[name], rel=1e-3), name


def test_a_training_says_nothing_to_those_that_are_begun_after_it(one: Path) -> None:
    """Its process is not the parent of what `torchrun` begins from here, whose processes ended themselves."""
    assert FIRST_PROCESS not in os.environ


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_train_the_model_of_one_with_the_double_batch(
    store: Path, one: Path, tmp_path: Path, strategy: str
) -> None:
    _two_processes(store, tmp_path / "run", strategy)
    _assert_alike(tmp_path / "run", one)


def test_a_run_resumes_with_other_processes_than_it_was_begun_with(store: Path, one: Path, tmp_path: Path) -> None:
    """Eight steps sharded over two, eight more copied over two, the rest alone."""
    run = tmp_path / "run"
    _two_processes(store, run, "fsdp", max_steps=8)
    _two_processes(store, run, "ddp", max_steps=16)
    train(small_config(store), run)
    ours, theirs = checkpoint.read(run / LAST), checkpoint.read(one / LAST)
    for part in checkpoint.PARTS:
        for name, value in ours.tensors[part].items():
            torch.testing.assert_close(value, theirs.tensors[part][name], rtol=1e-3, atol=1e-5)


def test_a_step_that_is_bad_in_one_process_leaves_nothing_behind_in_the_other(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's forward pass was good and moved its BatchNorm, whose statistics are those that are saved."""
    make = Batches.make

    def spoilt(self: Batches, step: int) -> list[Batch]:
        factor = float("nan") if (self.rank, step) == (1, 2) else 1
        return [replace(part, image=part.image * factor) for part in make(self, step)]

    monkeypatch.setattr(Batches, "make", spoilt)
    monkeypatch.setitem(PRESETS, "tiny", replace(PRESETS["tiny"], norm="batch"))
    monkeypatch.setitem(globals(), "small_config", partial(small_config, model=MoSE("tiny", samples_per_expert=1)))
    _two_processes(store, tmp_path / "run", "ddp", max_steps=4)
    found = checkpoint.read(tmp_path / "run/checkpoints/step-00000004")
    assert found.state["skipped"] == 1
    raw = found.tensors["raw"]
    assert all(bool(value.isfinite().all()) for value in raw.values())
    assert {int(value) for name, value in raw.items() if name.endswith("num_batches_tracked")} == {3}


def test_all_leave_together_where_another_training_has_the_folder(store: Path, tmp_path: Path) -> None:
    held = lock(tmp_path / ".lock", wait=False)
    assert held is not None
    with held:
        _two_processes(store, tmp_path, "ddp", codes=[1, 2])  # an InputError in the first, silence in the other
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["torchrun", "own"])
def test_launch_lines_of_the_documentation(store: Path, tmp_path: Path, launch: str) -> None:
    """docs/training.md: torchrun, and Fabric's own launcher, with two local processes."""
    options = ["train", "demo", "--data", str(store), "--out", str(tmp_path / "run"), "--loop.batch-size", "4"]
    options += ["--max-steps", "4", "--validation.every", "4", "--validation.cases", "3", "--data.crop", "None"]
    options += ["--engine.accelerator", "cpu", "--engine.devices", "2", "--validation.samples", "2"]
    program = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "berdiff.cli.main"],
        "own": [sys.executable, "-m", "berdiff.cli.main"],
    }[launch]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_PORT": str(_free_port())}
    done = subprocess.run([*program, *options], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished: 4 steps") == 1
    assert (tmp_path / "run/model/model.safetensors").is_file()


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True)
    return [int(number) for number in found.stdout.split()]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("victim", ["first", "other"])
def test_when_one_process_is_killed_the_others_end_within_seconds(store: Path, tmp_path: Path, victim: str) -> None:
    options = ["train", "demo", "--data", str(store), "--out", str(tmp_path / "run"), "--loop.batch-size", "4"]
    options += ["--max-steps", "100000", "--data.crop", "None", "--validation.every", "0", "--loop.log-every", "1"]
    options += ["--engine.accelerator", "cpu", "--engine.devices", "2", "--engine.threads", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_PORT": str(_free_port())}
    first = subprocess.Popen(
        [sys.executable, "-m", "berdiff.cli.main", *options], env=environment, stdout=subprocess.DEVNULL
    )
    try:
        for _ in range(600):  # until both are in the middle of a step
            if (tmp_path / "run" / "stats.jsonl").is_file() and (tmp_path / "run" / "stats.jsonl").stat().st_size:
                break
            time.sleep(0.2)
        (other,) = _children(first.pid)
        os.kill(first.pid if victim == "first" else other, signal.SIGKILL)
        deadline = time.monotonic() + 20
        while (_alive(first.pid) or _alive(other)) and time.monotonic() < deadline:
            time.sleep(0.1)
            first.poll()
        assert not _alive(other)
        assert not _alive(first.pid)
    finally:
        first.kill()

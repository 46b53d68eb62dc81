import json
import math
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from berdiff.data.store import open_store
from berdiff.diffusion.sampling import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import Settings, evaluate
from berdiff.training import checkpoint, loop
from berdiff.training.batches import ahead
from berdiff.training.config import OptimConfig
from berdiff.training.engine import learning_rate
from berdiff.training.record import memory_mb
from berdiff.training.runs import read_rows
from berdiff.training.session import open_session, train
from berdiff.training.stop import RunStopped

from .standin import StandIn, make_standin, small_config, weight_files


class Troubled(StandIn):
    """Does something at the n-th loss it computes (from 1)."""

    def __init__(self, at: range, trouble) -> None:
        super().__init__()
        self.at, self.trouble, self.count = at, trouble, 0

    def loss(self, image, masks, generator):
        terms = super().loss(image, masks, generator)
        self.count += 1
        return self.trouble(terms) if self.count in self.at else terms


def _nan(terms):
    return {"loss": terms["loss"] * math.nan, "bce": terms["bce"]}


def _infinite_gradient(terms):
    """The loss is finite, its gradient is not: the derivative of sqrt at 0."""
    return {**terms, "loss": terms["loss"] + (terms["loss"] - terms["loss"].detach()).abs().sqrt()}


def _out_of_memory(terms):
    raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried ...")


def _train(store: Path, run: Path, segmenter=None, **loop_settings) -> str:
    make = make_standin if segmenter is None else lambda config, store, size: segmenter
    return train(small_config(store, **loop_settings), run, make)


# --- it trains -------------------------------------------------------------------------------------------------------


def test_it_learns_and_the_run_folder_explains_itself(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = small_config(store, max_steps=120, checkpoint_every=50, log_every=20)
    config = replace(config, validation=replace(config.validation, every=40, sheet_cases=3))
    assert train(config, run, make_standin) == "finished: 120 steps"
    rows = read_rows(run / "stats.jsonl")
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    geds = [row["ged"] for row in rows if row["kind"] == "validation"]
    assert losses[-1] < losses[0] / 2
    assert geds[-1] < geds[0]
    assert {"step", "loss", "bce", "grad_norm", "lr", "images_per_s", "memory_mb", "skipped", "minutes"} <= set(rows[0])
    assert sorted(path.name for path in run.glob("checkpoints/*")) == ["step-00000100", "step-00000120"]
    assert sorted(path.name for path in run.glob("sheets/*")) == [f"step-{s:08d}.png" for s in (40, 80, 120)]
    (session,) = json.loads((run / "environment.json").read_text())
    assert session["seed"] == 0
    assert session["packages"]["torch"] == torch.__version__
    assert "git_commit" in session
    assert "GED" in (run / "log.txt").read_text()
    assert list(run.glob("tensorboard/events*"))
    # the model of record is the average, and differs from the raw weights
    last = checkpoint.read(run / "checkpoints" / "step-00000120")
    record = load_file(run / "model" / "model.safetensors")
    assert all(torch.equal(record[name], value) for name, value in last.tensors["ema"].items())
    assert not torch.equal(last.tensors["ema"]["net.0.weight"], last.tensors["raw"]["net.0.weight"])


def test_validation_does_not_touch_training(store: Path, tmp_path: Path) -> None:
    config = small_config(store)
    train(config, tmp_path / "with", make_standin)
    train(replace(config, validation=replace(config.validation, every=0)), tmp_path / "without", make_standin)
    without = weight_files(tmp_path / "without")
    assert without == {k: v for k, v in weight_files(tmp_path / "with").items() if not k.startswith("best")}


def test_validation_gives_the_figures_of_an_evaluation(store: Path, tmp_path: Path) -> None:
    config = small_config(store)
    config = replace(config, validation=replace(config.validation, every=24, cases=3))
    train(config, tmp_path / "run", make_standin)
    (row,) = (row for row in read_rows(tmp_path / "run/stats.jsonl") if row["kind"] == "validation")
    segmenter = StandIn()
    segmenter.load_state_dict(load_file(tmp_path / "run/model/model.safetensors"))
    settings = Settings("val", samples=4, sampler=Sampler(steps=2), limit=3)
    figures = evaluate(segmenter, open_store(store), tmp_path / "evaluation", settings)["metrics"]
    assert row["ged"] == pytest.approx(figures["ged_4"]["value"], abs=1e-12)
    assert row["hm_iou"] == pytest.approx(figures["hm_iou_4"]["value"], abs=1e-12)


def test_parts_of_a_batch_add_up_to_the_batch(store: Path, tmp_path: Path) -> None:
    _train(store, tmp_path / "whole", accumulate=1)
    _train(store, tmp_path / "parts", accumulate=4)
    for name, value in checkpoint.read(tmp_path / "whole/checkpoints/step-00000024").tensors["raw"].items():
        other = checkpoint.read(tmp_path / "parts/checkpoints/step-00000024").tensors["raw"][name]
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)


def test_bfloat16_trains_like_float32(store: Path, tmp_path: Path) -> None:
    """Not equal, but close; and the weights themselves stay float32."""
    config = small_config(store, max_steps=60)
    half = replace(config, engine=replace(config.engine, precision="bf16-mixed"))
    train(config, tmp_path / "full", make_standin)
    train(half, tmp_path / "half", make_standin)
    full, half = (read_rows(tmp_path / name / "stats.jsonl") for name in ("full", "half"))
    losses = [[row["loss"] for row in rows if row["kind"] == "train"] for rows in (full, half)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    weights = checkpoint.read(tmp_path / "half/checkpoints/step-00000060").tensors["raw"]
    assert {value.dtype for value in weights.values()} == {torch.float32}


@pytest.mark.slow
def test_compiled_trains_alike(store: Path, tmp_path: Path) -> None:
    config = replace(small_config(store), validation=replace(small_config(store).validation, every=0))
    train(config, tmp_path / "plain", make_standin)
    compiled = replace(config, engine=replace(config.engine, compile=True))
    train(compiled, tmp_path / "compiled", make_standin)
    plain = checkpoint.read(tmp_path / "plain/checkpoints/step-00000024").tensors["raw"]
    for name, value in checkpoint.read(tmp_path / "compiled/checkpoints/step-00000024").tensors["raw"].items():
        torch.testing.assert_close(value, plain[name], rtol=1e-3, atol=1e-4)


def test_learning_rate_is_what_torch_schedules() -> None:
    config = OptimConfig(lr=0.3, warmup_steps=4, decay="cosine", decay_steps=14)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for step in range(1, 5):
        assert learning_rate(config, step) == pytest.approx(0.3 * step / 4)
    for step in range(5, 15):
        optimizer.step()
        cosine.step()
        assert learning_rate(config, step) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
    assert learning_rate(config, 1000) == 0
    assert learning_rate(OptimConfig(lr=0.3), 1) == learning_rate(OptimConfig(lr=0.3), 10**6) == 0.3


def test_memory_stays_constant_over_500_steps(store: Path, tmp_path: Path) -> None:
    config = small_config(store, max_steps=700, checkpoint_every=10_000, log_every=20)
    config = replace(config, validation=replace(config.validation, every=0))
    train(config, tmp_path / "run", make_standin)
    memory = [row["memory_mb"] for row in read_rows(tmp_path / "run/stats.jsonl") if row["kind"] == "train"]
    assert memory[-1] - memory[9] < 4, memory  # from step 200 to 700: megabytes
    assert memory_mb(torch.device("cpu")) > 50


def test_batches_come_in_order_and_errors_reach_the_loop() -> None:
    made = []

    def make(number: int) -> int:
        if number == 7:
            raise InputError("case 7: broken")
        made.append(number)
        return number

    batches = ahead(make, 3, depth=2)
    assert [next(batches) for _ in range(4)] == [3, 4, 5, 6]
    with pytest.raises(InputError, match="case 7"):
        next(batches)
    assert made[:4] == [3, 4, 5, 6]


# --- it ends ---------------------------------------------------------------------------------------------------------


def test_time_limit_and_going_on(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert _train(store, tmp_path / "run", max_minutes=1e-6) == "finished: 1e-06 minutes"
    assert _train(store, tmp_path / "run", max_minutes=None) == "finished: 24 steps"
    assert _train(store, tmp_path / "run", max_minutes=None) == "finished: 24 steps"
    _train(store, tmp_path / "straight")
    last = "checkpoints/step-00000024/optimizer.safetensors"
    assert weight_files(tmp_path / "run")[last] == weight_files(tmp_path / "straight")[last]
    assert "resuming after step 24" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves(store: Path, tmp_path: Path, number, capsys: pytest.CaptureFixture) -> None:
    before = signal.getsignal(number)

    def send(terms):
        os.kill(os.getpid(), number)
        return terms

    run = tmp_path / "run"
    assert _train(store, run, Troubled(range(6, 7), send)) == f"stopped by {number.name}"
    assert checkpoint.found(run / "checkpoints")[-1].name == "step-00000006"
    assert "the same command goes on from here" in capsys.readouterr().out
    assert signal.getsignal(number) == before


def test_another_configuration_is_refused_with_the_difference(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    _train(store, run)
    config = small_config(store)
    with pytest.raises(
        InputError,
        match=r"run: expected the configuration .*: --optim.lr: 0.01 -> 0.5; --seed: 0 -> 3|"
        r"run: expected the configuration .*: --seed: 0 -> 3; --optim.lr: 0.01 -> 0.5",
    ):
        train(replace(config, seed=3, optim=replace(config.optim, lr=0.5)), run, make_standin)


def test_a_folder_of_something_else_is_refused(store: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="found other files"):
        _train(store, tmp_path)
    with pytest.raises(InputError, match=r"thesis.tex: expected a run folder"):
        _train(store, tmp_path / "thesis.tex")


def test_a_batch_that_cannot_be_cut(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--loop.batch-size: expected a multiple of 1 processes x 3 .*, found 4"):
        _train(store, tmp_path / "run", accumulate=3)


def test_a_damaged_newest_checkpoint_is_told_and_passed_over(store: Path, tmp_path: Path, capsys) -> None:
    _train(store, tmp_path / "whole")
    run = tmp_path / "run"
    _train(store, run, max_steps=20)
    file = run / "checkpoints/step-00000020/ema.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    _train(store, run)
    assert "step-00000020 is damaged" in capsys.readouterr().out
    assert "step-00000020 is damaged" in (run / "log.txt").read_text()
    assert weight_files(run) == weight_files(tmp_path / "whole")


# --- it meets trouble ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [_nan, _infinite_gradient])
def test_a_bad_step_is_skipped_counted_and_told(store: Path, tmp_path: Path, trouble, capsys) -> None:
    run = tmp_path / "run"
    assert _train(store, run, Troubled(range(6, 8), trouble)) == "finished: 24 steps"
    assert "step 6 skipped: " in capsys.readouterr().out
    state = checkpoint.read(run / "checkpoints/step-00000024").state
    assert (state["skipped"], state["bad_in_a_row"]) == (2, 0)
    weights = checkpoint.read(run / "checkpoints/step-00000024")
    assert all(bool(torch.isfinite(v).all()) for part in weights.tensors.values() for v in part.values())
    assert weights.tensors["optimizer"]["net.0.weight/step"] == 22
    assert read_rows(run / "stats.jsonl")[-1]["skipped"] == 2


def test_several_bad_steps_in_a_row_stop_the_run_and_keep_the_last_good_checkpoint(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunStopped, match=r"stopped at step 13: 3 steps in a row .* the checkpoint of step 8 is whole"):
        _train(store, run, Troubled(range(11, 99), _nan), max_bad_steps=3, checkpoint_every=8)
    newest, damaged = checkpoint.read_newest(run / "checkpoints")
    assert newest is not None
    assert (newest.state["step"], newest.state["skipped"], damaged) == (8, 0, [])


def test_out_of_memory_says_what_to_lower(store: Path, tmp_path: Path) -> None:
    words = r"^out of memory: 4 slices of 16x16 at once .* --loop.accumulate .* --loop.batch-size \(now 4\)"
    with pytest.raises(RunStopped, match=words):
        _train(store, tmp_path / "run", Troubled(range(6, 7), _out_of_memory))


def test_a_full_disk_stops_the_run_with_the_last_checkpoint_whole(store: Path, tmp_path: Path, monkeypatch) -> None:
    run, write = tmp_path / "run", checkpoint.write

    def full(folder, step, *rest):
        if step > 8:
            raise OSError(28, "No space left on device")
        return write(folder, step, *rest)

    monkeypatch.setattr(loop.checkpoint, "write", full)
    words = r"no room on the disk for the run in .* \(No space left on device\); the checkpoint of step 8 is whole"
    with pytest.raises(RunStopped, match=words):
        _train(store, run)
    monkeypatch.undo()
    assert _train(store, run) == "finished: 24 steps"


def test_other_errors_are_not_disguised(store: Path, tmp_path: Path) -> None:
    def bug(terms):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match=r"^a bug$"):
        _train(store, tmp_path / "run", Troubled(range(2, 3), bug))


def test_a_session_needs_cases_to_validate_on(store: Path) -> None:
    config = small_config(store)
    with pytest.raises(InputError, match=r"split: expected one of .*, found 'vall'"):
        open_session(replace(config, validation=replace(config.validation, split="vall")), make_standin)

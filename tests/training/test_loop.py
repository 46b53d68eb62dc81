"""It trains, it ends, and it meets trouble."""

import json
import math
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from berdiff.data.store import open_store
from berdiff.methods import folder as model_folder
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.mose import MoSE
from berdiff.methods.mose import network as mose
from berdiff.training import checkpoint, loop, state
from berdiff.training.machine import free_memory, used_memory
from berdiff.training.run_folder import read_rows
from berdiff.training.session import open_trainer, train
from berdiff.training.stop import RunStopped
from fakes import make_store
from refusals import refused

from .small import GroupedSegmenter, small_config, weight_files, without_validation

LAST = "checkpoints/step-00000024"
ENCODE_ONCE = BerDiff(
    preset="fast-tiny", schedule="power2.5", T=100, prediction="prior", lambda_kl=0.0, masks_per_image=6
)


@pytest.fixture
def trouble(monkeypatch):
    """Have something happen at the n-th losses (from 1)."""

    def arrange(at: range, what) -> None:
        loss, count = GroupedSegmenter.loss, iter(range(1, 10**6))
        monkeypatch.setattr(
            GroupedSegmenter,
            "loss",
            lambda self, *args: what(loss(self, *args)) if next(count) in at else loss(self, *args),
        )

    return arrange


def _nan(terms):
    return {**terms, "loss": terms["loss"] * math.nan}


def _infinite_gradient(terms):
    """The loss is finite, its gradient is not: the derivative of sqrt at 0."""
    return {**terms, "loss": terms["loss"] + (terms["loss"] - terms["loss"].detach()).abs().sqrt()}


# --- it trains -------------------------------------------------------------------------------------------------------


def test_it_learns_and_the_run_folder_explains_itself(store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    config = small_config(store, max_steps=120, checkpoint_every=50, log_every=20)
    config = replace(config, validation=replace(config.validation, every=40, sheet_cases=3))
    assert train(config, run) == "finished: 120 steps"
    rows = read_rows(run / "stats.jsonl")
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    geds = [row["ged"] for row in rows if row["kind"] == "validation"]
    assert losses[-1] < losses[0] / 2
    assert geds[-1] < geds[0]
    named = {"step", "loss", "bce", "grad_norm", "lr", "images_per_s", "memory_mb", "skipped", "minutes", "cpu_minutes"}
    assert named <= set(rows[0])
    assert sorted(path.name for path in run.glob("checkpoints/*")) == ["step-00000100", "step-00000120"]
    assert sorted(path.name for path in run.glob("sheets/*")) == [f"step-{s:08d}.png" for s in (40, 80, 120)]
    (session,) = json.loads((run / "environment.json").read_text())
    assert session["seed"] == 0
    assert session["packages"]["torch"] == torch.__version__
    assert "git_commit" in session
    assert "GED" in (run / "log.txt").read_text()
    assert list(run.glob("tensorboard/events*"))
    assert not (run / ".lock").exists()
    # the trained model is the average, and differs from the raw weights
    last = checkpoint.read(run / "checkpoints/step-00000120").tensors
    model = model_folder.load(run)
    assert all(torch.equal(last["ema"][name], value) for name, value in model.state_dict().items())
    assert not torch.equal(last["ema"]["net.0.weight"], last["raw"]["net.0.weight"])
    assert model.input_spec == open_store(store).input_spec.cropped((16, 16))


def test_validation_does_not_touch_training(store: Path, tmp_path: Path) -> None:
    config = small_config(store)
    train(config, tmp_path / "with")
    train(without_validation(config), tmp_path / "without")
    without = weight_files(tmp_path / "without")
    assert without == {k: v for k, v in weight_files(tmp_path / "with").items() if not k.startswith("best")}


def test_a_store_without_the_validation_split_trains_and_a_line_says_so(tmp_path: Path, capsys) -> None:
    """As `--split paper` makes them: 0.1.0 refused."""
    run, config = tmp_path / "run", small_config(make_store(tmp_path, val=0), max_steps=8)
    assert train(config, run) == "finished: 8 steps"
    line = "validation is off: the store has no cases in the split val"
    assert line in capsys.readouterr().out
    assert line in (run / "log.txt").read_text()
    assert not (run / "best").exists()
    with refused("split", "'vall'"):
        open_trainer(replace(config, validation=replace(config.validation, split="vall")), run)


def test_parts_of_a_batch_add_up_to_the_batch(store: Path, tmp_path: Path) -> None:
    for accumulate in (1, 4):
        train(without_validation(small_config(store, accumulate=accumulate)), tmp_path / str(accumulate))
    whole, parts = (checkpoint.read(tmp_path / name / LAST).tensors["raw"] for name in ("1", "4"))
    for name, value in whole.items():
        torch.testing.assert_close(value, parts[name], rtol=1e-4, atol=1e-5)


def test_bfloat16_trains_like_float32(store: Path, tmp_path: Path) -> None:
    """Not equal, but close; and the weights themselves stay float32."""
    config = without_validation(small_config(store, max_steps=20))
    train(config, tmp_path / "full")
    train(replace(config, engine=replace(config.engine, precision="bf16-mixed")), tmp_path / "half")
    rows = [read_rows(tmp_path / name / "stats.jsonl") for name in ("full", "half")]
    losses = [[row["loss"] for row in each if row["kind"] == "train"] for each in rows]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    weights = checkpoint.read(tmp_path / "half/checkpoints/step-00000020").tensors["raw"]
    assert {value.dtype for value in weights.values()} == {torch.float32, torch.int64}


@pytest.mark.slow
def test_compiled_trains_alike(store: Path, tmp_path: Path) -> None:
    config = without_validation(small_config(store))
    train(config, tmp_path / "plain")
    train(replace(config, engine=replace(config.engine, compile=True)), tmp_path / "compiled")
    plain = checkpoint.read(tmp_path / "plain" / LAST).tensors["raw"]
    for name, value in checkpoint.read(tmp_path / "compiled" / LAST).tensors["raw"].items():
        torch.testing.assert_close(value, plain[name], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model", [ENCODE_ONCE, BerDiff(preset="tiny", T=100)], ids=lambda model: model.preset)
def test_memory_stays_constant_with_a_real_network(tmp_path: Path, model: BerDiff) -> None:
    """From step 100 to 500. A graph, a batch or a mask kept per step would be 400 of them."""
    store = make_store(tmp_path, size=32)
    loop = {"batch_size": 2, "max_steps": 500, "checkpoint_every": 10_000, "log_every": 100}
    train(without_validation(small_config(store, model, **loop)), tmp_path / "run")
    rows = read_rows(tmp_path / "run/stats.jsonl")
    memory = {row["step"]: row["memory_mb"] for row in rows if row["kind"] == "train"}
    assert memory[500] - memory[100] < 8, memory  # megabytes; one mask of each step alone would be 3
    assert 50 * 2**20 < used_memory(torch.device("cpu")) < free_memory(torch.device("cpu"))


def test_a_real_network_gets_all_raters_where_masks_share_an_encoding_and_resumes(store: Path, tmp_path: Path) -> None:
    for masks_per_image, raters, count in ((1, "one", 1), (6, "all", 3)):
        config = without_validation(small_config(store, replace(ENCODE_ONCE, masks_per_image=masks_per_image)))
        batches = open_trainer(replace(config, data=replace(config.data, shift=0)), tmp_path).batches
        assert (batches.dataset.raters, batches.dataset.shift) == (raters, 0)
        assert batches.make(0)[0].masks.shape == (4, count, 1, 16, 16)
    config = without_validation(small_config(store, ENCODE_ONCE, max_steps=6, checkpoint_every=3, log_every=2))
    train(config, tmp_path / "whole")
    train(replace(config, loop=replace(config.loop, max_steps=3)), tmp_path / "parts")
    train(config, tmp_path / "parts")
    assert weight_files(tmp_path / "parts") == weight_files(tmp_path / "whole")
    rows = read_rows(tmp_path / "whole/stats.jsonl")
    assert {"loss", "bce"} <= set(rows[0])
    assert "kl" not in rows[0]
    assert model_folder.load(tmp_path / "whole").config == ENCODE_ONCE


# --- it ends ---------------------------------------------------------------------------------------------------------


def test_limits_and_resuming(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """By the clock and by CPU time, over all sessions together."""
    run, config = tmp_path / "run", small_config(store)
    assert train(replace(config, loop=replace(config.loop, max_minutes=1e-6)), run) == "finished: 1e-06 minutes"
    limited = replace(config, loop=replace(config.loop, max_cpu_minutes=1e-5, max_minutes=9.0))
    assert train(limited, run) == "finished: 1e-05 CPU minutes"
    used = read_rows(run / "stats.jsonl")[-1]
    assert 0 < used["cpu_minutes"] < 1
    time.sleep(0.3)  # counts as time of neither session, nor as CPU time
    assert train(config, run) == "finished: 24 steps"
    assert train(config, run) == "finished: 24 steps"
    assert "resuming after step 24" in capsys.readouterr().out
    assert used["cpu_minutes"] < read_rows(run / "stats.jsonl")[-1]["cpu_minutes"] < 1
    train(config, tmp_path / "straight")
    last = f"{LAST}/optimizer.safetensors"
    assert weight_files(run)[last] == weight_files(tmp_path / "straight")[last]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves(store: Path, tmp_path: Path, number, trouble, capsys) -> None:
    before = signal.getsignal(number)

    def send(terms):
        os.kill(os.getpid(), number)
        return terms

    trouble(range(6, 7), send)
    run = tmp_path / "run"
    assert train(small_config(store), run) == f"stopped by {number.name}"
    assert checkpoint.found(run / "checkpoints")[-1].name == "step-00000006"
    assert "the same command resumes from here" in capsys.readouterr().out
    assert signal.getsignal(number) == before


def test_another_run_or_something_else_in_the_folder_is_refused(store: Path, tmp_path: Path) -> None:
    run, config = tmp_path / "run", small_config(store, max_steps=4)
    train(config, run)
    with refused(run, "--seed: 0 -> 3; --optim.lr: 0.01 -> 0.5", code="changed"):
        train(replace(config, seed=3, optim=replace(config.optim, lr=0.5)), run)
    (tmp_path / "thesis.tex").write_text("precious")
    with refused(tmp_path, code="kind"):
        train(config, tmp_path)
    with refused("thesis.tex", code="kind"):
        train(config, tmp_path / "thesis.tex")
    with refused("--loop.batch-size", "3"):
        train(small_config(store, accumulate=3), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_damaged_newest_checkpoint_is_reported_and_passed_over(store: Path, tmp_path: Path, capsys) -> None:
    train(small_config(store), tmp_path / "whole")
    run = tmp_path / "run"
    train(small_config(store, max_steps=20), run)
    file = run / "checkpoints/step-00000020/ema.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    train(small_config(store), run)
    assert "step-00000020 is damaged" in capsys.readouterr().out
    assert "step-00000020 is damaged" in (run / "log.txt").read_text()
    assert weight_files(run) == weight_files(tmp_path / "whole")


# --- it meets trouble ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [_nan, _infinite_gradient])
def test_a_bad_step_is_skipped_counted_and_reported(store: Path, tmp_path: Path, what, trouble, capsys) -> None:
    run = tmp_path / "run"
    trouble(range(7, 9), what)
    assert train(without_validation(small_config(store)), run) == "finished: 24 steps"
    assert "step 7 skipped: " in capsys.readouterr().out
    last = checkpoint.read(run / LAST)
    assert (last.state["skipped"], last.state["bad_in_a_row"]) == (2, 0)
    assert all(bool(torch.isfinite(v).all()) for part in last.tensors.values() for v in part.values())
    assert last.tensors["optimizer"]["net.0.weight/step"] == 22
    assert last.tensors["optimizer"]["critic.weight/step"] == 22 - 8  # it rests at every third
    assert last.tensors["raw"]["updates"] == 22
    assert read_rows(run / "stats.jsonl")[-1]["skipped"] == 2


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_skipped_step_leaves_all_state_as_it_was(store: Path, monkeypatch, accumulate: int) -> None:
    """A forward pass moves BatchNorm's statistics before anybody has seen its loss: one NaN stayed in them for good."""
    monkeypatch.setitem(mose.PRESETS, "tiny", replace(mose.PRESETS["tiny"], norm="batch"))
    config = small_config(store, MoSE("tiny", samples_per_expert=1), accumulate=accumulate)
    trainer = open_trainer(without_validation(config), Path())
    batches = trainer.batches.after(0)

    def tensors() -> dict[str, torch.Tensor]:
        parts = state.gather(trainer.segmenter, trainer.optimizer.optimizer, trainer.ema)
        return {f"{part}/{name}": value for part, found in parts.items() for name, value in found.items()}

    trainer.step(1, next(batches))
    before = tensors()
    *good, last = next(batches)
    *_, bad, _ = trainer.step(2, [*good, replace(last, image=last.image * math.nan)])
    assert bad
    after = tensors()
    assert before.keys() == after.keys()
    assert [name for name, value in before.items() if not torch.equal(value, after[name])] == []
    trainer.counters.skipped += 1
    *_, bad, _ = trainer.step(3, next(batches))
    assert not bad
    moved = [name for name, value in tensors().items() if not torch.equal(value, before[name])]
    assert {"raw", "ema"} <= {name.split("/")[0] for name in moved if name.endswith("running_mean")}
    assert all(bool(torch.isfinite(value).all()) for value in tensors().values())


def test_several_bad_steps_in_a_row_stop_the_run_and_keep_the_last_good_checkpoint(
    store: Path, tmp_path: Path, trouble
) -> None:
    run = tmp_path / "run"
    trouble(range(11, 99), _nan)
    with pytest.raises(RunStopped, match=r"stopped at step 13: 3 steps in a row .* the checkpoint of step 8 is whole"):
        train(small_config(store, max_bad_steps=3, checkpoint_every=8), run)
    newest, damaged = checkpoint.read_newest(run / "checkpoints")
    assert newest is not None
    assert (newest.state["step"], newest.state["skipped"], damaged) == (8, 0, [])


def test_out_of_memory_names_what_to_lower_and_other_errors_are_not_disguised(
    store: Path, tmp_path: Path, trouble
) -> None:
    def fail(words):
        raise RuntimeError(words)

    trouble(range(6, 7), lambda terms: fail("DefaultCPUAllocator: can't allocate memory: you tried ..."))
    words = r"^out of memory: 4 images of 16x16 at once .* --loop.accumulate \(the same batch in less memory\), "
    words += r".* --loop.batch-size \(now 4\)"
    with pytest.raises(RunStopped, match=words):
        train(small_config(store), tmp_path / "run")
    trouble(range(2, 3), lambda terms: fail("a bug"))
    with pytest.raises(RuntimeError, match=r"^a bug$"):
        train(small_config(store), tmp_path / "other")


@pytest.mark.parametrize(
    ("module", "name", "error"),
    [
        (checkpoint, "write", OSError(28, "No space left on device")),
        (loop.model_folder, "save", SafetensorError("Error while serializing: I/O error: ... (os error 28)")),
    ],
)
def test_a_full_disk_stops_the_run_with_the_last_checkpoint_whole(
    store: Path, tmp_path: Path, monkeypatch, module, name: str, error: Exception
) -> None:
    run, write = tmp_path / "run", getattr(module, name)

    def full(*args):
        if (run / "checkpoints/step-00000008").exists():
            raise error
        return write(*args)

    monkeypatch.setattr(module, name, full)
    words = r"no room on the disk for the run in .* \(No space left on device\); the checkpoint of step 8 is whole"
    with pytest.raises(RunStopped, match=words):
        train(small_config(store), run)
    monkeypatch.undo()
    assert train(small_config(store), run) == "finished: 24 steps"

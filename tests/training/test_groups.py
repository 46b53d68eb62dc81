"""Parameter groups, state that moves after a step, and what a checkpoint holds of it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fakes
from berdiff.methods.base import ParameterGroup
from berdiff.training import checkpoint
from berdiff.training.config import OptimConfig
from berdiff.training.engine import learning_rate
from berdiff.training.session import open_trainer, train
from refusals import refused

from .small import Grouped, GroupedSegmenter, small_config, weight_files, without_validation


def _trainer(store: Path, model: Grouped | None = None):
    trainer = open_trainer(without_validation(small_config(store, model)), Path())
    return trainer, trainer.batches.after(0)


def _state(trainer, name: str) -> list[torch.Tensor]:
    """The weights of a group and everything AdamW remembers of them."""
    parameters = [p for key, p in trainer.segmenter.named_parameters() if key.startswith(name)]
    moments = [value for p in parameters for value in trainer.optimizer.optimizer.state.get(p, {}).values()]
    return [value.detach().clone() for value in (*parameters, *moments)]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(map(torch.equal, a, b))


def test_a_group_with_rate_0_does_not_move_at_all(store: Path) -> None:
    """No momentum and no decay: 0.1.0 had one rate for all."""
    trainer, batches = _trainer(store)
    for step in range(1, 8):
        before = {name: _state(trainer, name) for name in ("critic", "net")}
        trainer.step(step, next(batches))
        assert _same(before["critic"], _state(trainer, "critic")) == (step % 3 == 0)
        assert not _same(before["net"], _state(trainer, "net"))
    rates = [group["lr"] for group in trainer.optimizer.param_groups]
    assert rates == [0.5 * 1e-2, 1e-2]
    assert [group["betas"] for group in trainer.optimizer.param_groups] == [(0.5, 0.9), (0.9, 0.999)]
    assert [group["weight_decay"] for group in trainer.optimizer.param_groups] == [0.1, 0.01]


def test_each_group_is_clipped_by_itself(store: Path) -> None:
    """A million times the other group's gradient changes nothing in this one."""
    states = []
    for scaled in (1.0, 1e6):
        trainer, batches = _trainer(store, Grouped(scaled=scaled))
        _, norm, _, _ = trainer.step(1, next(batches))
        states.append(_state(trainer, "net"))
    assert norm > 1e4
    assert _same(*states)


@pytest.mark.parametrize(
    ("groups", "name"),
    [([ParameterGroup(("critic.",))], "net.0.weight"), ([ParameterGroup(("critc.",)), ParameterGroup()], "critc.")],
)
def test_every_parameter_has_a_group_and_every_group_parameters(store: Path, monkeypatch, groups, name) -> None:
    monkeypatch.setattr(GroupedSegmenter, "parameter_groups", lambda self: groups)
    with refused("parameter_groups", name, code="missing"):
        _trainer(store)


def test_state_moves_once_per_step_that_was_not_skipped(store: Path, tmp_path: Path, monkeypatch) -> None:
    """With terms averaged over the parts of a batch; saved, and averaged like weights where it is a float."""
    levels = {}
    for accumulate in (1, 2):
        run = tmp_path / str(accumulate)
        train(without_validation(small_config(store, accumulate=accumulate, max_steps=8)), run)
        tensors = checkpoint.read(run / "checkpoints/step-00000008").tensors
        assert int(tensors["raw"]["updates"]) == int(tensors["ema"]["updates"]) == 8
        assert 0 < tensors["ema"]["level"] < tensors["raw"]["level"]
        levels[accumulate] = float(tensors["raw"]["level"])
    assert levels[1] == pytest.approx(levels[2], rel=1e-4)

    trainer, batches = _trainer(store)
    monkeypatch.setattr(trainer.optimizer, "step", lambda: pytest.fail("a bad step was taken"))
    trainer.module.loss = lambda *args: {"loss": next(trainer.segmenter.parameters()).sum() * math.nan}
    *_, bad, _ = trainer.step(1, next(batches))
    assert bad
    assert int(trainer.segmenter.updates) == 0


@pytest.mark.parametrize("decay", ["cosine", "poly"])
def test_learning_rate_is_what_torch_schedules(decay) -> None:
    config = OptimConfig(lr=0.3, warmup_steps=4, decay=decay, decay_steps=14)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    schedules = torch.optim.lr_scheduler
    cosine, poly = schedules.CosineAnnealingLR, schedules.PolynomialLR
    torchs = cosine(optimizer, T_max=10) if decay == "cosine" else poly(optimizer, total_iters=10, power=0.9)
    for step in range(1, 5):
        assert learning_rate(config, step) == pytest.approx(0.3 * step / 4)
    for step in range(5, 15):
        optimizer.step()
        torchs.step()
        assert learning_rate(config, step) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)
    assert learning_rate(config, 1000) == 0
    assert learning_rate(OptimConfig(lr=0.3), 1) == learning_rate(OptimConfig(lr=0.3), 10**6) == 0.3


def test_without_decay_steps_the_rate_falls_over_the_limits_of_the_run(store: Path, monkeypatch) -> None:
    config = OptimConfig(lr=0.3, warmup_steps=2, decay="cosine")
    assert learning_rate(config, 1, used=0.5) == 0.15  # the warm-up goes by steps
    for used, share in ((0.0, 1.0), (0.5, 0.5), (1.0, 0.0), (1.2, 0.0)):
        assert learning_rate(config, 3, used) == pytest.approx(0.3 * share)
    assert learning_rate(OptimConfig(lr=0.3), 3, used=0.9) == 0.3
    run = replace(without_validation(small_config(store, fakes.StandIn(), max_steps=4)), optim=replace(config, lr=0.1))
    run = replace(run, loop=replace(run.loop, max_cpu_minutes=10.0))

    def rates(cpu_minutes: float) -> list[float]:
        """Of four steps, each of which takes so many minutes of CPU time."""
        trainer = open_trainer(run, Path())
        batches = trainer.batches.after(0)
        spent = {"minutes": 0.0, "cpu_minutes": 0.0}
        monkeypatch.setattr(trainer, "_elapsed", lambda: spent)
        found = []
        while trainer._limit() is None:
            trainer.step(trainer.counters.step + 1, next(batches))
            trainer.counters.step += 1
            spent["cpu_minutes"] += cpu_minutes
            found.append(trainer.optimizer.param_groups[0]["lr"])
        return found

    assert rates(0.0) == pytest.approx([0.05, 0.1, 0.05, 0.1 * (1 + math.cos(0.75 * math.pi)) / 2])
    assert rates(4.0) == pytest.approx([0.05, 0.1, 0.1 * (1 + math.cos(0.8 * math.pi)) / 2])  # 12 of 10 minutes


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_momentum_written_out_and_resumes_to_the_same_bits(store: Path, tmp_path: Path, nesterov: bool) -> None:
    optim = OptimConfig(kind="sgd", lr=0.1, weight_decay=0.01, momentum=0.9, nesterov=nesterov, ema_decay=0.5)
    config = replace(without_validation(small_config(store, fakes.StandIn(), max_steps=8)), optim=optim)
    trainer = open_trainer(config, Path())
    batches = trainer.batches.after(0)
    parameter = next(trainer.segmenter.parameters())
    value, velocity = parameter.detach().double(), 0
    parameter.register_post_accumulate_grad_hook(lambda p: gradients.append(p.grad.double()))
    for step in range(1, 5):
        gradients: list[torch.Tensor] = []
        trainer.step(step, next(batches))
        gradient = sum(gradients) + 0.01 * value
        velocity = 0.9 * velocity + gradient
        value = value - 0.1 * (gradient + 0.9 * velocity if nesterov else velocity)
        torch.testing.assert_close(parameter.detach().double(), value, rtol=1e-5, atol=1e-6)

    train(config, tmp_path / "whole")
    train(replace(config, loop=replace(config.loop, max_steps=4)), tmp_path / "twice")
    train(config, tmp_path / "twice")
    last = [checkpoint.read(tmp_path / name / "checkpoints/step-00000008").tensors for name in ("whole", "twice")]
    assert any(name.endswith("/momentum_buffer") for name in last[0]["optimizer"])
    for part, tensors in last[0].items():
        assert all(torch.equal(value, last[1][part][name]) for name, value in tensors.items())


def test_groups_with_betas_need_adamw(store: Path) -> None:
    config = small_config(store)
    config = replace(config, optim=replace(config.optim, kind="sgd", momentum=0.9))
    with refused("--optim.kind", code="conflict"):
        open_trainer(without_validation(config), Path())


def test_a_run_begins_from_other_weights_and_keeps_its_own_settings(store: Path, tmp_path: Path) -> None:
    train(small_config(store, max_steps=4), tmp_path / "first")
    config = replace(small_config(store, Grouped(scaled=2.0)), init=str(tmp_path / "first"))
    trainer = open_trainer(config, tmp_path / "second")
    other = checkpoint.read(tmp_path / "first/checkpoints/step-00000004").tensors["ema"]
    assert all(torch.equal(value, other[name]) for name, value in trainer.segmenter.state_dict().items())
    assert trainer.segmenter.config.scaled == 2.0
    assert trainer.segmenter.training
    assert weight_files(tmp_path / "first")
    with refused("--init"):
        open_trainer(replace(config, model=Grouped(width=5)), tmp_path / "second")
    with refused("nowhere"):
        open_trainer(replace(config, init=str(tmp_path / "nowhere")), tmp_path / "second")

"""A training of milliseconds, one that is killed, and what several tests look at in its folder."""

import multiprocessing
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

import fakes
from berdiff.methods.base import ParameterGroup
from berdiff.methods.config import METHODS
from berdiff.training import session
from berdiff.training.config import DataConfig, EngineConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig
from berdiff.training.loop import Trainer

METHODS.ours["grouped"] = f"{__name__}:Grouped"


@dataclass(frozen=True)
class Grouped(fakes.StandIn):
    """The stand-in, with all that a method may ask of the trainer: groups, one of which rests, and buffers."""

    method: ClassVar[str] = "grouped"
    scaled: float = 1.0  # of the second group's loss

    def build(self, spec):
        return GroupedSegmenter(self, spec)


class GroupedSegmenter(fakes.StandInSegmenter):
    average_buffers = True

    def __init__(self, config, spec) -> None:
        super().__init__(config, spec)
        self.critic = nn.Conv2d(1, 2, 3, padding=1)
        self.register_buffer("level", torch.zeros(()))
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def loss(self, image, masks, generators):
        terms = super().loss(image, masks, generators)
        critic = F.mse_loss(self.critic(image), masks[:, 0].float().expand(-1, 2, -1, -1))
        return {"loss": terms["loss"] + self.config.scaled * critic, "bce": terms["bce"], "critic": critic}

    def parameter_groups(self):
        resting = ParameterGroup(
            ("critic.",), rate=lambda step: 0.5 * (step % 3 != 0), betas=(0.5, 0.9), weight_decay=0.1, clip_norm=0.3
        )
        return [resting, ParameterGroup()]

    def after_step(self, terms) -> None:
        self.level.lerp_(terms["loss"], 0.1)
        self.updates += 1


def small_config(store: Path, model: Any = None, **loop: Any) -> TrainConfig[Any]:
    return TrainConfig(
        model=model or Grouped(),
        data=DataConfig(store=str(store), augment=True, prefetch=2),
        optim=OptimConfig(lr=1e-2, warmup_steps=3, clip_norm=1.0),
        loop=replace(LoopConfig(batch_size=4, max_steps=24, checkpoint_every=4, log_every=4), **loop),
        validation=ValidationConfig(every=8, cases=5, samples=4, batch_size=2, sheet_cases=0),
        engine=EngineConfig(accelerator="cpu", devices="1", threads=1),
    )


def without_validation(config: TrainConfig[Any]) -> TrainConfig[Any]:
    return replace(config, validation=replace(config.validation, every=0))


def train_until_killed(config: TrainConfig[Any], run: Path, step: int) -> None:
    """In a child that gets SIGKILL just before this step."""
    process = multiprocessing.get_context("fork").Process(target=_train_and_die, args=(config, run, step))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def _train_and_die(config: TrainConfig[Any], run: Path, step: int) -> None:
    own = Trainer.step

    def or_die(self: Trainer, number: int, parts: Any) -> Any:
        if number == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return own(self, number, parts)

    Trainer.step = or_die  # type: ignore[method-assign]
    session.train(config, run)


def weight_files(run: Path) -> dict[str, bytes]:
    """Every tensor file of a run: all checkpoints, the trained model and the best."""
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*.safetensors"))}

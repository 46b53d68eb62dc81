"""Settings are typed, checked once, and the same as flags, in JSON and in Python."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tyro

import fakes
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from berdiff.schema import flatten
from berdiff.training.config import TrainConfig, check, differences, dump, flag, load
from refusals import refused

CONFIG = TrainConfig(model=BerDiff())


def parsed(*argv: str) -> TrainConfig[BerDiff]:
    return tyro.cli(TrainConfig[BerDiff], args=argv, default=CONFIG)


def with_value(name: str, value: object) -> TrainConfig[BerDiff]:
    group, _, field = name.rpartition(".")
    if not group:
        return replace(CONFIG, **{field: value})
    return replace(CONFIG, **{group: replace(getattr(CONFIG, group), **{field: value})})


def test_every_field_is_a_flag() -> None:
    """Each field set to another value from the command line gives exactly that change."""
    other = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v / 2, str: lambda v: v + "x"}
    choices: dict[str, Any] = {
        "init": "runs/first",
        "model.schedule": "cosine",
        "model.prediction": "mask",
        "model.posterior": "marginal",
        "model.time_sampling": "stratified",
        "model.sampler.steps": (900, 300, 20),
        "model.sampler.rule": "ddpm",
        "model.sampler.posterior": "marginal",
        "model.sampler.spacing": "quadratic",
        "model.sampler.last_step": "sample",
        "model.sampler.noise": "shared",
        "optim.kind": "sgd",
        "optim.momentum": 0.9,
        "optim.decay": "cosine",
        "engine.precision": "bf16-mixed",
        "data.store": "s",
        "data.crop": 64,
        "data.patch": 64,
        "optim.decay_steps": 7,
        "optim.clip_norm": 1.5,
        "loop.max_minutes": 2.0,
        "loop.max_cpu_minutes": 2.0,
        "engine.threads": 2,
    }
    for name, value in flatten(CONFIG):
        if name in ("recipe", "left_open"):  # of the recipe
            continue
        new = choices[name] if name in choices else other[type(value)](value)
        argv = [flag(name), *map(str, new if isinstance(new, tuple) else [new])]
        if isinstance(new, bool):
            group, _, field = name.rpartition(".")
            argv = [f"--{group}.{'' if new else 'no-'}{field.replace('_', '-')}"]
        assert dict(flatten(parsed(*argv))) == {**dict(flatten(CONFIG)), name: new}


def test_short_flags() -> None:
    config = parsed("--max-steps", "7", "--max-minutes", "1.5", "--max-cpu-minutes", "3", "--data", "here")
    assert (config.loop.max_steps, config.loop.max_minutes, config.loop.max_cpu_minutes) == (7, 1.5, 3.0)
    assert config.data.store == "here"


@pytest.mark.parametrize("model", [BerDiff(T=50), GaussianDiffusion(), UNet(preset="tiny"), fakes.StandIn(width=3)])
def test_json_keeps_the_method_and_its_settings(tmp_path: Path, model) -> None:
    config = TrainConfig(model=model, seed=3)
    (tmp_path / "config.json").write_text(dump(config))
    assert json.loads(dump(config))["model"]["method"] == model.method
    assert load(tmp_path / "config.json") == check(config) == config


def test_a_setting_out_of_bounds_is_one_sentence_with_its_flag() -> None:
    for name, value, words in (
        ("seed", -1, "at least 0"),
        ("data.crop", 0, "at least 1"),
        ("optim.lr", -1.0, "at least 0.0"),
        ("optim.lr", float("nan"), "a finite number"),
        ("optim.clip_norm", 0.0, "more than 0.0"),
        ("optim.momentum", 1.0, "less than 1.0"),
        ("optim.ema_decay", 1.0, "less than 1.0"),
        ("loop.batch_size", 0, "at least 1"),
        ("loop.keep", 1, "at least 2"),
        ("loop.max_cpu_minutes", -2.0, "at least 0.0"),
        ("validation.samples", 0, "at least 1"),
        ("engine.threads", 0, "at least 1"),
        ("model.T", 0, "at least 1"),
        ("model.lambda_kl", -1.0, "at least 0.0"),
    ):
        with refused(flag(name), words, value):
            check(with_value(name, value))


def test_settings_that_do_not_go_together() -> None:
    optim = CONFIG.optim
    for change, where in (
        ({"kind": "sgd"}, "--optim.momentum"),
        ({"momentum": 0.9}, "--optim.momentum"),
        ({"nesterov": True}, "--optim.nesterov"),
        ({"decay_steps": 9}, "--optim.decay-steps"),
        ({"decay": "cosine", "decay_steps": 5, "warmup_steps": 5}, "--optim.decay-steps"),
    ):
        with refused(where, code="conflict"):
            check(replace(CONFIG, optim=replace(optim, **change)))
    for model, where in ((BerDiff(lambda_kl=0.0, lambda_bce=0.0), "--model.lambda"), (BerDiff(T=4), "sampler.steps")):
        with refused(where):
            check(replace(CONFIG, model=model))


def test_differences_name_what_makes_another_run_and_only_that() -> None:
    longer = replace(CONFIG, loop=replace(CONFIG.loop, max_steps=5, max_minutes=1.0, max_cpu_minutes=1.0, keep=3))
    assert differences(CONFIG, longer) == []
    assert differences(CONFIG, replace(CONFIG, engine=replace(CONFIG.engine, devices="2"))) == []
    other = replace(CONFIG, seed=4, optim=replace(CONFIG.optim, lr=1.0), model=BerDiff(T=9))
    assert differences(CONFIG, other) == ["--seed: 0 -> 4", "--model.T: 1000 -> 9", "--optim.lr: 5e-05 -> 1.0"]
    assert differences(CONFIG, TrainConfig(model=UNet())) == ["--model.method: berdiff -> unet"]


def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with refused(file):
        load(file)
    file.write_text("{")
    with refused(file):
        load(file)
    for change, words in (
        (lambda c: c.update(extra=1), ("'extra'",)),
        (lambda c: c["model"].update(target="mask"), ("model", "'target'")),
        (lambda c: c["model"].update(method="none"), ("method", "'none'")),
        (lambda c: c["loop"].update(max_steps="many"), ("loop.max_steps", "'many'")),
        (lambda c: c["loop"].update(max_steps=True), ("loop.max_steps",)),
        (lambda c: c.update(loop=3), ("loop",)),
        (lambda c: c["optim"].update(decay="steep"), ("optim.decay", "'steep'")),
        (lambda c: c.update(model=None), (file, "`model`")),
    ):
        plain = json.loads(dump(CONFIG))
        change(plain)
        file.write_text(json.dumps(plain))
        with refused(*words):
            load(file)


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys\nfrom berdiff.cli import train, runs, plot\ntrain.command(['--help'])\n"
        "try: train.command(['lidc-cpu', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    before = os.times()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert "--loop.max-steps" in done.stdout
    assert after.children_user + after.children_system - before.children_user - before.children_system < 3

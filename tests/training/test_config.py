import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

from berdiff.errors import InputError
from berdiff.experiments.recipes import RECIPES, brats_paper, lidc_cpu, lidc_paper, lidc_paper_long
from berdiff.training.config import _AT_LEAST, UNUSED, TrainConfig, check, differences, dump, flag, flatten, load


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_valid_and_survive_json(name: str, tmp_path: Path) -> None:
    config = RECIPES[name]()
    assert config.recipe == name
    (tmp_path / "config.json").write_text(dump(check(config)))
    assert load(tmp_path / "config.json") == config


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_state_command_cost_and_figure(name: str) -> None:
    text = RECIPES[name].__doc__ or ""
    assert f"command: berdiff train {name} " in text
    assert "cost: " in text
    assert "expected: " in text


def test_paper_settings() -> None:
    for config, lr, steps in (
        (lidc_paper(), 5e-5, 21_000),
        (lidc_paper_long(), 5e-5, 86_500),
        (brats_paper(), 1e-4, None),
    ):
        assert (config.optim.lr, config.optim.decay, config.optim.warmup_steps) == (lr, "constant", 0)
        assert (config.loop.batch_size, config.model.T, config.model.schedule) == (32, 1000, "linear")
        assert config.model.target == "noise"
        assert steps in (None, config.loop.max_steps)
    assert lidc_cpu().data.crop == 64


def test_every_field_is_a_flag() -> None:
    """Each field set to another value from the command line gives exactly that change."""
    other = {bool: lambda v: not v, int: lambda v: v + 1, float: lambda v: v + 0.5, str: lambda v: v + "x"}
    choices = {
        "model.method": "gaussian",
        "model.init": "runs/first",
        "model.schedule": "cosine",
        "model.target": "mask",
        "model.posterior": "marginal",
        "model.time_sampling": "stratified",
        "sampler.steps": (900, 300, 20),
        "sampler.rule": "ddpm",
        "sampler.posterior": "marginal",
        "sampler.spacing": "quadratic",
        "sampler.last_step": "sample",
        "sampler.latent": "shared",
        "optim.decay": "cosine",
        "engine.precision": "bf16-mixed",
        "data.store": "s",
        "data.crop": 64,
        "optim.decay_steps": 7,
        "optim.clip_norm": 1.5,
        "loop.max_minutes": 2.0,
        "engine.threads": 2,
    }
    for name, value in flatten(TrainConfig()):
        if name == "recipe":
            continue
        new = choices[name] if name in choices else other[type(value)](value)
        argv = [flag(name), *map(str, new if isinstance(new, tuple) else [new])]
        if isinstance(new, bool):
            group, _, field = name.rpartition(".")
            argv = [f"--{group}.{'' if new else 'no-'}{field.replace('_', '-')}"]
        found = dict(flatten(tyro.cli(TrainConfig, args=argv)))
        assert found == {**dict(flatten(TrainConfig())), name: new}


def test_short_flags() -> None:
    config = tyro.cli(TrainConfig, args=["--max-steps", "7", "--max-minutes", "1.5", "--data", "here"])
    assert (config.loop.max_steps, config.loop.max_minutes, config.data.store) == (7, 1.5, "here")


def test_differences_name_what_makes_another_run_and_only_that() -> None:
    old = TrainConfig()
    longer = replace(old, loop=replace(old.loop, max_steps=5, max_minutes=1.0, keep=3))
    assert differences(old, longer) == []
    assert differences(old, replace(old, engine=replace(old.engine, devices="2"))) == []
    other = replace(old, seed=4, optim=replace(old.optim, lr=1.0), loop=replace(old.loop, batch_size=8))
    assert differences(old, other) == ["--seed: 0 -> 4", "--optim.lr: 5e-05 -> 1.0", "--loop.batch-size: 32 -> 8"]


def _set(name: str, value: object) -> TrainConfig:
    group, _, field = name.rpartition(".")
    config = TrainConfig()
    if not group:
        return replace(config, **{field: value})
    return replace(config, **{group: replace(getattr(config, group), **{field: value})})


@pytest.mark.parametrize(("name", "least"), _AT_LEAST.items())
def test_too_small_a_value_is_one_sentence_with_its_flag(name: str, least: float) -> None:
    with pytest.raises(InputError, match=rf"^{flag(name)}: expected at least {least}, found {least - 1}$"):
        check(_set(name, least - 1))


@pytest.mark.parametrize("value", [float("nan"), -1.0])
def test_not_a_number_is_refused(value: float) -> None:
    with pytest.raises(InputError, match=r"--optim.lr"):
        check(_set("optim.lr", value))


def test_settings_that_exclude_each_other() -> None:
    optim = TrainConfig().optim
    for bad, words in (
        (replace(optim, decay="cosine"), "expected a number of steps with --optim.decay cosine"),
        (replace(optim, decay_steps=9), "and None otherwise"),
        (replace(optim, decay="cosine", decay_steps=5, warmup_steps=5), "more than the 5 warm-up steps"),
        (replace(optim, ema_decay=1.0), "less than 1"),
    ):
        with pytest.raises(InputError, match=words):
            check(replace(TrainConfig(), optim=bad))


@pytest.mark.parametrize("method", UNUSED)
def test_settings_that_a_method_does_not_use_are_refused(method: str) -> None:
    other = {
        "model.schedule": "cosine",
        "model.T": 500,
        "model.target": "mask",
        "model.lambda_kl": 2.0,
        "model.lambda_bce": 2.0,
        "model.posterior": "marginal",
        "model.time_sampling": "stratified",
        "model.masks_per_image": 4,
        "sampler.steps": (5,),
        "sampler.sigma": 0.5,
        "sampler.posterior": "marginal",
        "sampler.last_step": "sample",
        "sampler.latent": "shared",
    }
    for name, value in other.items():
        config = _set(name, value)
        config = replace(config, model=replace(config.model, method=method))
        if name.startswith(UNUSED[method] or ("nothing",)):
            with pytest.raises(InputError, match=rf"^{flag(name)}: expected its default, .*{method}, which does not"):
                check(config)
        else:
            check(config)


def test_gaussian_diffusion_has_no_prior_as_target() -> None:
    model = replace(TrainConfig().model, method="gaussian", target="prior")
    with pytest.raises(InputError, match=r"--model\.target: expected noise or mask with --model\.method gaussian"):
        check(replace(TrainConfig(), model=model))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(extra=1), "an unknown one, 'extra'"),
        (lambda c: c["loop"].update(max_steps="many"), "max_steps: expected .*int.*found 'many'"),
        (lambda c: c["loop"].update(max_steps=True), "max_steps"),
        (lambda c: c.update(loop=3), "loop: expected a group of settings, found 3"),
        (lambda c: c["optim"].update(decay="steep"), "decay: expected .*found 'steep'"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change, words: str) -> None:
    plain = json.loads(dump(TrainConfig()))
    change(plain)
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(InputError, match=words):
        load(tmp_path / "config.json")


def test_no_file_and_no_json(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="expected a training configuration in JSON"):
        load(tmp_path / "config.json")


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys\nfrom berdiff.cli import train, runs, plot\ntrain.command(['--help'])\n"
        "try: train.command(['lidc-cpu', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--loop.max-steps" in done.stdout

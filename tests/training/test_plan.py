"""The plan of what a recipe leaves open: a pure function of facts; its configurations are valid and fit the images."""

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berdiff.data.input_spec import Kind
from berdiff.methods.config import adopt
from berdiff.methods.unet import UNet
from berdiff.recipes import RECIPES
from berdiff.recipes.ours import LEFT_OPEN
from berdiff.training.config import check
from berdiff.training.plan import PATCH, STEP_PIXELS, WHOLE, Facts, plan, table, with_settings

OWN = RECIPES["own"].config
ONE = Facts((128, 128), 16, 100, raters=1, targets=1, kind="independent", empty=0.0, looked_at=100, cores=2, gpu=False)


@st.composite
def facts(draw: st.DrawFn) -> Facts:
    stride = draw(st.sampled_from([1, 8, 16, 32]))
    side = st.integers(stride, 2000)
    return Facts(
        size=(draw(side), draw(side)),
        stride=stride,
        cases=draw(st.integers(1, 10_000)),
        raters=draw(st.integers(1, 20)),
        targets=draw(st.integers(1, 4)),
        kind=draw(st.sampled_from(get_args(Kind))),
        empty=draw(st.sampled_from([0.0, 0.01, 1.0])),
        looked_at=draw(st.integers(1, 500)),
        cores=draw(st.integers(1, 64)),
        gpu=draw(st.booleans()),
    )


def settled(found: Facts, config: Any = None) -> Any:
    config = config or OWN
    return with_settings(config, {choice.setting: choice.value for choice in plan(config, found)})


@given(facts())
@settings(deadline=None, max_examples=200)
def test_a_plan_is_valid_and_fits_images_and_machine(found: Facts) -> None:
    config = check(settled(found))
    height, width = found.size
    patch = config.data.patch
    assert config.left_open == ()
    assert config.data.crop is None  # nothing is cut away
    if patch is None:
        assert max(found.size) <= WHOLE[2]
        assert height % found.stride == width % found.stride == 0
        seen = height * width
    else:
        assert patch <= min(found.size)
        assert patch % found.stride == 0
        assert patch <= (PATCH[2] if max(found.size) > WHOLE[2] else WHOLE[2])
        seen = patch * patch
    batch = config.loop.batch_size
    assert 2 <= batch <= 16
    assert batch % int(config.engine.devices) == 0
    assert batch == 2 or batch * seen <= STEP_PIXELS
    assert int(config.engine.devices) <= found.cores
    exclusive = found.targets > 1 and found.kind == "exclusive"
    assert (config.model.hurdle > 0) == (found.empty > 0 and not exclusive)
    if 2 < found.raters <= 8:
        assert config.model.masks_per_image == found.raters
    config.model.kernel(found.kind if found.targets > 1 else "independent")  # refuses what does not go together


@given(facts(), st.sets(st.sampled_from(LEFT_OPEN)))
@settings(deadline=None, max_examples=100)
def test_what_is_given_stays(found: Facts, given_: set[str]) -> None:
    values: dict[str, Any] = {
        "data.patch": found.stride,
        "loop.batch_size": 6,
        "optim.warmup_steps": 7,
        "validation.cases": 3,
        "model.masks_per_image": 9,
        "model.hurdle": 0.5,
        "model.inner_weight": 2.0,
        "engine.accelerator": "cpu",
        "engine.devices": "3",
        "engine.threads": 5,
    }
    assert set(values) == set(LEFT_OPEN)
    chosen = {name: values[name] for name in given_}
    config = replace(with_settings(OWN, chosen), left_open=tuple(set(LEFT_OPEN) - given_))
    choices = plan(config, found)
    assert not given_ & {choice.setting for choice in choices}
    result = with_settings(config, {choice.setting: choice.value for choice in choices})
    assert with_settings(result, chosen) == result


@pytest.mark.parametrize(
    ("size", "stride", "patch"),
    [
        ((128, 128), 16, None),
        ((64, 160), 16, None),
        ((100, 150), 16, 96),
        ((512, 512), 16, 128),
        ((600, 90), 16, 80),
        ((12, 12), 16, None),  # too small for the network, which then says so
    ],
)
def test_whole_images_or_patches(size, stride: int, patch: int | None) -> None:
    assert settled(replace(ONE, size=size, stride=stride)).data.patch == patch


def test_a_crop_that_is_asked_for_is_no_patch() -> None:
    config = replace(OWN, data=replace(OWN.data, crop=64))
    found = settled(replace(ONE, size=(512, 512)), config)
    assert (found.data.crop, found.data.patch, found.loop.batch_size) == (64, None, 16)


def test_a_short_training_warms_up_shortly() -> None:
    config = replace(OWN, loop=replace(OWN.loop, max_steps=60))
    assert settled(ONE, config).optim.warmup_steps == 6


def test_a_method_without_a_setting_is_not_asked_for_it() -> None:
    config = replace(OWN, model=adopt(UNet, OWN.model))
    chosen = {choice.setting for choice in plan(config, ONE)}
    assert not [name for name in chosen if name.startswith("model.")]
    assert "loop.batch_size" in chosen
    assert settled(ONE, config).model == config.model


def test_the_paper_s_network_has_no_hurdle() -> None:
    config = replace(OWN, model=replace(OWN.model, preset="small"))
    assert settled(replace(ONE, empty=0.5), config).model.hurdle == 0


@pytest.mark.parametrize(("kind", "weight"), [("nested", 4.0), ("exclusive", 1.0), ("independent", 1.0)])
def test_targets(kind: Kind, weight: float) -> None:
    assert settled(replace(ONE, targets=3, kind=kind)).model.inner_weight == weight


def test_the_table_has_each_setting_its_value_and_its_reason() -> None:
    choices = plan(OWN, ONE)
    first, *rows = table(settled(ONE), choices, ONE, "mine.zarr")
    assert all(word in first for word in ("mine.zarr", "100 cases", "128x128", "30 minutes"))
    assert [row.split()[0] for row in rows] == ["--" + choice.setting.replace("_", "-") for choice in choices]
    for row, choice in zip(rows, choices, strict=True):
        assert f" {choice.value} " in row
        assert row.endswith(choice.reason)

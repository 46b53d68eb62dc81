"""`model.segment` against sampling by hand: seeds, regions, tiles, volumes; and what a model knows of its run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from berdiff.diffusion.along_z import correlation
from berdiff.diffusion.random import sample_generators
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.inference.model import Model, load
from berdiff.inference.sets import choose_set, set_rng
from berdiff.inference.settings import COHERENCE, NEIGHBOURS, SegmentSettings
from berdiff.methods import folder
from berdiff.methods.gaussian import GaussianDiffusion
from berdiff.methods.unet import UNet
from fakes import Blur, Bright, MemoryStore, StandIn, bright_model, diffusion, make_spec, volume_generators
from refusals import refused

RNG = np.random.default_rng(0)
IMAGE = RNG.random((16, 16), np.float32)


def by_hand(model: Model, image: np.ndarray, key: str, n: int, seed: int) -> np.ndarray:
    """One image straight through the segmenter."""
    generators = sample_generators(seed, [key], n)
    return model.segmenter.sample(torch.from_numpy(image)[None, None], n, generators)[0].numpy()


def test_three_lines():
    model = bright_model()
    result = model.segment(IMAGE, n=5, seed=7)
    np.testing.assert_array_equal(result.samples, by_hand(model, IMAGE, "image", 5, 7))
    np.testing.assert_array_equal(model.segment(IMAGE, n=3, seed=7).samples, result.samples[:3])  # of any number
    np.testing.assert_allclose(result.saliency, result.samples.mean(0))
    np.testing.assert_allclose(result.variance, result.samples.astype(float).var(0), atol=1e-6)
    np.testing.assert_array_equal(result.mask(), result.samples.mean(0) > 0.5)
    levels = result.contours()
    assert levels.shape == (3, 1, 16, 16)
    assert (levels[0] >= levels[1]).all()
    np.testing.assert_array_equal(levels[2], result.samples.sum(0) >= 0.75 * 5)
    assert sum(r.frequency for r in result.representatives(3)) == pytest.approx(1)
    assert result.measurements()["nodule"]["area"]["unit"] == "px^2"
    assert (result.region, result.targets, result.settings["model"]) == (None, ("nodule",), "bright")
    assert result.settings["weights_sha256"] == "0" * 64
    np.testing.assert_array_equal(result.image, IMAGE[None])
    assert result.plot().width > 500
    assert 0 < result.samples.mean() < 1
    assert (result.samples[0] != result.samples[1]).any()


def test_a_result_knows_how_its_targets_may_lie():
    model = bright_model(make_spec(targets=("a", "b")))
    assert model.segment(IMAGE, n=3).kind == "independent"
    exclusive = replace(model, input_spec=replace(model.input_spec, kind="exclusive"))
    result = exclusive.segment(IMAGE, n=3)
    assert (result.kind, result.one_map) == ("exclusive", True)
    nested = replace(result, kind="nested")
    np.testing.assert_array_equal(nested.majority(), nested.mask())
    np.testing.assert_array_equal(nested.label_map(), np.where(nested.mask()[1], 2, nested.mask()[0]))


def test_tensors_paths_and_arrays_are_the_same(tmp_path):
    grey = (IMAGE * 255).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "image.png")
    model = bright_model()
    results = [model.segment(given, n=3) for given in (grey, torch.from_numpy(grey), tmp_path / "image.png")]
    for other in results[1:]:
        np.testing.assert_array_equal(other.samples, results[0].samples)
    assert results[2].grid.source.paths == (tmp_path / "image.png",)


def test_a_region_is_what_the_network_sees_and_the_rest_is_empty():
    large = RNG.random((40, 50), np.float32)
    model = bright_model()
    result = model.segment(large, n=3, center=(20, 30))
    assert result.region == ((12, 28), (22, 38))
    part = np.ascontiguousarray(large[12:28, 22:38])
    np.testing.assert_array_equal(result.samples, by_hand(model, part, "image", 3, 0))
    whole = result.whole(result.samples)
    np.testing.assert_array_equal(whole[..., 12:28, 22:38], result.samples)
    assert (whole.shape[-2:], whole.sum()) == (large.shape, result.samples.sum())
    small = model.segment(IMAGE[:9, :12], n=3, pad=True)  # the middle of a larger one
    padded = np.pad(IMAGE[:9, :12], ((3, 4), (2, 2)))
    np.testing.assert_array_equal(small.samples, by_hand(model, padded, "image", 3, 0)[..., 3:12, 2:14])
    with refused("image", "16x16", code="shape"):
        model.segment(IMAGE[:9, :12])


def gaussian_model() -> Model:
    config = GaussianDiffusion(T=50, prediction="mask", sampler=Sampler(steps=3, sigma=0.0))
    return Model(diffusion(Bright(), config).eval(), "gaussian", make_spec(), (16, 16))


@pytest.mark.parametrize("make", [bright_model, gaussian_model], ids=["bernoulli", "gaussian"])
def test_a_larger_image_is_one_draw_joined_by_the_kernels_rule(make):
    """`Bright` looks no farther than a pixel's neighbours: with tiles or without, the masks are the same."""
    model = make()
    large = RNG.random((40, 57), np.float32)
    tiled, whole = model.segment(large, n=4), by_hand(model, large, "image", 4, 0)
    assert 0.05 < whole.mean() < 0.95
    assert (tiled.samples == whole).mean() > 0.95  # but at the borders of tiles, where the mean of neighbours differs


def test_a_method_that_cannot_join_tiles():
    spec = make_spec()
    model = Model(StandIn().build(spec), "stand-in", spec, spec.size)
    with pytest.raises(InputError, match=r"16x16 pixels for the method stand-in, which cannot join tiles"):
        model.segment(RNG.random((20, 16), np.float32))


def test_without_coherence_a_volume_is_its_slices_each_with_noise_of_its_own():
    volume = RNG.random((4, 16, 16), np.float32)
    model = bright_model()
    result = model.segment(volume, n=3, spacing_mm=(2.0, 0.5, 0.5), name="v", coherence=0)
    for z in range(4):
        np.testing.assert_array_equal(result.samples[:, :, z], by_hand(model, volume[z], f"v|{z}", 3, 0))
    part = model.segment(volume, n=3, slices=(1, 3), name="v", batch_size=1, coherence=0)
    assert part.region == ((1, 3), (0, 16), (0, 16))
    np.testing.assert_array_equal(part.samples, result.samples[:, :, 1:3])
    assert result.measurements()["nodule"]["volume"]["unit"] == "mm^3"


@pytest.mark.parametrize("spacing", [2.0, np.nan])
def test_a_sample_of_a_volume_is_one_opinion_whatever_the_batches(spacing: float):
    volume, model = RNG.random((5, 16, 16), np.float32), bright_model()

    def samples(**options):
        return model.segment(volume, n=3, spacing_mm=(spacing, 0.5, 0.5), name="v", **options).samples

    whole = samples()
    for batch_size in (1, 2, 16):
        np.testing.assert_array_equal(samples(batch_size=batch_size), whole)
    apart = samples(coherence=0)
    np.testing.assert_array_equal(whole[:, :, 0], apart[:, :, 0])  # the first slice is as it is alone
    assert (whole != apart).any()
    distance = spacing if np.isfinite(spacing) else NEIGHBOURS  # an unknown one is that of most scans
    generators = volume_generators(0, [f"v|{z}" for z in range(5)], 3, correlation(distance, COHERENCE))
    hand = model.segmenter.sample(torch.from_numpy(volume)[:, None], 3, generators)
    np.testing.assert_array_equal(whole.transpose(2, 0, 1, 3, 4), hand.numpy())


def test_the_noise_of_a_region_begins_at_its_first_slice_and_one_slice_is_that_slice():
    volume, model = RNG.random((5, 16, 16), np.float32), bright_model()
    part = model.segment(volume, n=3, slices=(2, 4), name="v").samples
    one = model.segment(volume, n=3, slices=(2, 3), name="v").samples
    np.testing.assert_array_equal(part[:, :, 0], one[:, :, 0])
    np.testing.assert_array_equal(one[:, :, 0], by_hand(model, volume[2], "v|2", 3, 0))


def test_tiles_of_a_volume_are_one_opinion_too():
    plane = RNG.random((1, 28, 16), np.float32)
    masks = bright_model().segment(np.repeat(plane, 3, 0), n=3, coherence=1e9, batch_size=2).samples
    assert masks.any()
    assert (masks == masks[:, :, :1]).all()


def test_findings_of_equal_slices_are_in_all_slices_or_in_none_with_one_noise():
    """Each slice keeps its own share of findings; of the volume it is the same, and not 1 - (1 - p)^8."""
    model = Model(Blur(spread=0.5).build(make_spec()), "blur", make_spec(), (16, 16))
    volume = np.full((8, 16, 16), 0.3, np.float32)  # marked where the level is above 0.7

    def found(**options):
        return model.segment(volume, n=200, **options).samples.any((1, 3, 4))  # (n, Z)

    one, apart = found(coherence=1e9), found(coherence=0)
    assert (one == one[:, :1]).all()
    assert 0.15 < one.any(1).mean() < 0.45  # 0.3; the interval is missed once in ten million seeds
    assert apart.any(1).mean() > 0.85  # 1 - 0.7^8 = 0.94
    middle = found(coherence=5)
    assert one.any(1).mean() < middle.any(1).mean() < apart.any(1).mean()


def test_sampler_options_by_name_and_a_callback_for_each_step():
    steps = []
    result = bright_model().segment(IMAGE, n=2, steps=4, noise="shared", callback=lambda step: steps.append(step.t))
    assert len(steps) == 4
    assert (result.settings["sampler"]["steps"], result.settings["sampler"]["noise"]) == (4, "shared")
    unet = UNet(preset="tiny").build(make_spec())
    once = Model(unet, "unet", make_spec(), (16, 16)).segment(IMAGE, n=2)
    assert once.settings["sampler"] is None
    np.testing.assert_array_equal(once.samples[0], once.samples[1])


@pytest.mark.parametrize("set", ["systematic", "representative"])
def test_a_set_is_chosen_out_of_a_pool_and_shares_are_of_the_pool(set):
    model = bright_model()
    volume = 0.4 + 0.4 * RNG.random((2, 18, 16), np.float32)
    result = model.segment(volume, n=3, set=set, pool=9, seed=5, name="v", center=(8, 8))
    drawn = model.segment(volume, n=9, seed=5, name="v", center=(8, 8))
    np.testing.assert_array_equal(result.pool, drawn.samples)  # the same masks as independent samples
    places = choose_set(drawn.samples, 3, set, set_rng(5, "v"))  # over whole volumes, not slice by slice
    assert result.chosen == tuple(places)
    np.testing.assert_array_equal(result.samples, drawn.samples[places])
    np.testing.assert_array_equal(result.saliency, drawn.saliency)
    np.testing.assert_array_equal(result.variance, drawn.variance)
    np.testing.assert_array_equal(result.contours(), drawn.contours())
    assert result.measurements() == drawn.measurements()
    assert [(r.index, r.frequency) for r in result.representatives()] == [
        (r.index, r.frequency) for r in drawn.representatives()
    ]
    assert {name: result.settings[name] for name in ("samples", "set", "pool")} == {"samples": 3, "set": set, "pool": 9}
    assert (result.samples.mean(0) != result.saliency).any()  # of the three it would be something else


def test_an_independent_set_has_no_pool_but_itself():
    result = bright_model().segment(IMAGE, n=4, pool=2)  # which is not looked at
    assert result.chosen is None
    assert result.samples is result.pool
    assert len(result.pool) == 4
    assert not result.settings.keys() & {"set", "pool"}


def test_cases_of_a_store_are_segmented_at_the_centre_with_their_raters():
    store, spec = MemoryStore(), replace(make_spec(size=(8, 8), targets=("disc",)), notes=("random weights",))
    model = bright_model(spec)
    progress = []
    results = model.case_results(store, [2, 5], SegmentSettings(samples=3), lambda *done: progress.append(done))  # type: ignore[arg-type]
    assert progress == [(1, 2), (2, 2)]
    for index, result in zip([2, 5], results, strict=True):
        assert (result.name, result.region) == (f"case {index}", ((4, 12), (4, 12)))
        part = np.ascontiguousarray(store.read([index])[0][0, 0, 4:12, 4:12])
        np.testing.assert_array_equal(result.samples, by_hand(model, part, result.name, 3, 0))
        assert result.raters is not None
        assert len(result.raters) == store.cases.raters[index]
        assert result.notes == ("random weights", "made for tests")


def test_what_does_not_fit_is_reported(tmp_path):
    model = bright_model()
    for options, where, code in [
        ({"steps": 60}, "steps", None),
        ({"n": 0}, "n", "value"),
        ({"rule": "magic"}, "rule", "value"),
        ({"set": "systematic", "pool": 8}, "pool", "conflict"),
        ({"n": 10**12}, "image", "limit"),
    ]:
        with refused(where, code=code):
            model.segment(IMAGE, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"expected sampler options among steps, rule, .*, found sampler"):
        model.segment(IMAGE, sampler="ddim")
    for name in "ab":
        Image.fromarray(np.zeros((16, 16), np.uint8)).save(tmp_path / f"{name}.png")
    with refused(tmp_path, code="kind"):
        model.segment(tmp_path)
    with refused("image", code="shape"):
        model.segment(np.zeros((16, 16, 3)))


def test_a_model_in_a_run_knows_what_it_was_trained_on(tmp_path):
    segmenter = StandIn().build(make_spec(size=(16, 24)))
    folder.save(segmenter, tmp_path / "lone")
    folder.save(segmenter, tmp_path / "run" / "model")
    lone = load(tmp_path / "lone")
    assert (lone.name, lone.size, lone.store, lone.crop, lone.device) == ("lone", (16, 24), None, None, "cpu")
    assert lone.input_spec == segmenter.input_spec
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps({"data": {"store": "s.zarr", "crop": None}, "loop": {}}))
    for path in ("run", "run/model"):
        model = load(tmp_path / path)
        assert (model.name, model.store, model.crop) == ("run", "s.zarr", None)
    for content in (
        "no",
        "[]",
        '{"loop": {}, "data": {"store": "s"}}',
        '{"loop": {}, "data": {"store": 1, "crop": 2}}',
    ):
        config.write_text(content)
        with refused("config.json"):
            load(tmp_path / "run")
    with refused("--size", "0 5"):
        load(tmp_path / "lone", size=(0, 5))
    assert lone.segmenter.weights_sha256 == folder.sha256(tmp_path / "lone" / "model.safetensors")

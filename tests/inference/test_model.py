"""`model.segment`: seeds, regions, windows and volumes, against drawing by hand."""

import numpy as np
import pytest
import torch
from bright import make_model
from dicom_writer import write_slice
from PIL import Image

from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.errors import InputError

RNG = np.random.default_rng(0)
IMAGE = RNG.random((16, 16), np.float32)


def by_hand(model, image: np.ndarray, key: str, n: int, seed: int, steps: int = 3) -> np.ndarray:
    """One image straight through the segmenter."""
    generators = sample_generators(seed, [key], n)
    drawn = model.segmenter.sample(torch.from_numpy(image)[None, None], n, generators, Sampler(steps))
    return drawn[0].numpy()


def test_three_lines():
    model = make_model(notes=["a note"])
    result = model.segment(IMAGE, n=5, seed=7)
    np.testing.assert_array_equal(result.samples, by_hand(model, IMAGE, "image", 5, 7))
    np.testing.assert_allclose(result.saliency, result.samples.mean(0))
    np.testing.assert_allclose(result.variance, result.samples.astype(float).var(0), atol=1e-6)
    np.testing.assert_array_equal(result.mask(), result.samples.mean(0) >= 0.5)
    levels = result.contours()
    assert levels.shape == (3, 1, 16, 16)
    assert (levels[0] >= levels[1]).all()
    assert (levels[1] >= levels[2]).all()
    np.testing.assert_array_equal(levels[2], result.samples.sum(0) >= 0.75 * 5)
    assert sum(r.frequency for r in result.representatives(3)) == pytest.approx(1)
    assert result.measurements()["nodule"]["area"]["unit"] == "px^2"
    assert (result.roi, result.notes, result.targets) == (None, ("a note",), ("nodule",))
    assert result.settings["model"] == "standin"
    np.testing.assert_array_equal(result.image, IMAGE[None])
    assert len(result.plot().axes) >= 5
    assert 0 < result.samples.mean() < 1
    assert (result.samples[0] != result.samples[1]).any()


def test_the_first_samples_do_not_depend_on_how_many_are_drawn():
    model = make_model()
    np.testing.assert_array_equal(model.segment(IMAGE, n=3).samples, model.segment(IMAGE, n=8).samples[:3])


def test_tensors_paths_and_arrays_are_the_same(tmp_path):
    grey = (IMAGE * 255).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "image.png")
    model = make_model()
    results = [model.segment(of, n=3) for of in (grey, torch.from_numpy(grey), tmp_path / "image.png")]
    for other in results[1:]:
        np.testing.assert_array_equal(other.samples, results[0].samples)
    assert results[2].source.paths == (tmp_path / "image.png",)


def test_a_region_is_what_the_network_sees_and_the_rest_is_empty():
    large = RNG.random((40, 50), np.float32)
    model = make_model()
    result = model.segment(large, n=3, center=(20, 30))
    assert result.roi == ((12, 28), (22, 38))
    assert result.samples.shape == (3, 1, 40, 50)
    np.testing.assert_array_equal(
        result.samples[..., 12:28, 22:38], by_hand(model, np.ascontiguousarray(large[12:28, 22:38]), "image", 3, 0)
    )
    outside = result.samples.copy()
    outside[..., 12:28, 22:38] = 0
    assert not outside.any()


def test_a_small_image_with_pad_is_the_middle_of_a_larger_one():
    model = make_model()
    result = model.segment(IMAGE[:9, :12], n=3, pad=True)
    padded = np.pad(IMAGE[:9, :12], ((3, 4), (2, 2)))
    np.testing.assert_array_equal(result.samples, by_hand(model, padded, "image", 3, 0)[..., 3:12, 2:14])
    with pytest.raises(InputError, match="image: expected at least 16x16 pixels"):
        model.segment(IMAGE[:9, :12])


def test_a_larger_image_goes_through_windows_as_one():
    """The middle of one even background: no seam may show, and all of it is one draw."""
    large = np.full((40, 57), 0.6, np.float32)
    result = make_model().segment(large, n=8)
    assert result.samples.shape == (8, 1, 40, 57)
    rate = result.samples.mean((0, 1))
    assert 0.2 < rate.mean() < 0.8
    assert abs(rate[:, 4:-4].mean(0)[12:20].mean() - rate[4:-4, 30:40].mean()) < 0.15


def test_a_volume_is_its_slices_each_with_noise_of_its_own():
    volume = RNG.random((4, 16, 16), np.float32)
    model = make_model()
    result = model.segment(volume, n=3, spacing=(2.0, 0.5, 0.5), name="v")
    assert result.samples.shape == (3, 1, 4, 16, 16)
    for z in range(4):
        np.testing.assert_array_equal(result.samples[:, :, z], by_hand(model, volume[z], f"v|{z}", 3, 0))
    part = model.segment(volume, n=3, slices=(1, 3), name="v")
    assert part.roi == ((1, 3), (0, 16), (0, 16))
    np.testing.assert_array_equal(part.samples[:, :, 1:3], result.samples[:, :, 1:3])
    assert not part.samples[:, :, [0, 3]].any()
    assert result.measurements()["nodule"]["volume"]["unit"] == "mm^3"


def test_a_volume_is_the_same_in_batches_of_any_size():
    volume = RNG.random((5, 20, 16), np.float32)
    model = make_model()
    one, four = (model.segment(volume, n=3, batch_size=size).samples for size in (1, 4))
    np.testing.assert_array_equal(one, four)


def test_a_dicom_series_end_to_end(tmp_path):
    for z in range(3):
        write_slice(tmp_path / f"{z}.dcm", RNG.integers(0, 1400, (16, 16)).astype(np.int16), z=2.0 * z)
    result = make_model(window=[-1024, 376]).segment(tmp_path, n=2, steps=2)
    assert result.samples.shape == (2, 1, 3, 16, 16)
    assert result.spacing == pytest.approx((2, 0.7, 0.7))
    assert result.source.to_stored(result.mask()).shape == (1, 3, 16, 16)


def test_what_does_not_fit_is_told(tmp_path):
    model = make_model()
    with pytest.raises(InputError, match="--steps: expected 1 <= steps <= T = 50, found 60"):
        model.segment(IMAGE, steps=60)
    with pytest.raises(InputError, match="--samples: expected at least 1, found 0"):
        model.segment(IMAGE, n=0)
    with pytest.raises(InputError, match="--sampler: expected one of ddim, ddpm, found 'magic'"):
        model.segment(IMAGE, sampler="magic")  # type: ignore[arg-type]
    for name in "ab":
        Image.fromarray(np.zeros((16, 16), np.uint8)).save(tmp_path / f"{name}.png")
    with pytest.raises(InputError, match="expected one image or volume, found 2"):
        model.segment(tmp_path)
    with pytest.raises(InputError, match=r"expected an array \(H, W\), \(Z, H, W\)"):
        model.segment(np.zeros((16, 16, 3)))

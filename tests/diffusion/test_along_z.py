"""Noise along z: every slice keeps its law, neighbours correlate as they should, and every method can follow it."""

from dataclasses import replace

import pytest
import torch
from scipy import stats

from berdiff.diffusion.along_z import ALMOST_ONE, Along, correlation, to_normal, to_uniform
from berdiff.diffusion.random import normal, sample_generators, uniform
from berdiff.methods.config import METHODS, method_class
from fakes import make_spec, volume_generators

LIKE = torch.empty(0)
NUMBERS = {"uniform": uniform, "normal": normal}
KEYS = ["v|0", "v|1", "v|2", "v|3"]


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_slice_keeps_its_law_and_slices_correlate_by_their_distance(kind):
    draw, rho, n = NUMBERS[kind], 0.8, 20
    values = draw((4, n, 1, 40, 40), volume_generators(0, KEYS, n, rho), LIKE).reshape(4, -1)
    assert values.dtype == torch.float32
    g = (to_normal(values.double()) if kind == "uniform" else values.double()).numpy()
    for z in range(4):  # 8 tests at 1e-5 each
        assert stats.kstest(g[z], "norm").pvalue > 1e-5
    for lag in (1, 2, 3):
        found = stats.pearsonr(g[0], g[lag]).statistic
        assert found == pytest.approx(rho**lag, abs=5 / g.shape[1] ** 0.5)  # five standard errors and more


def test_numbers_in_a_slice_and_samples_are_independent_of_each_other():
    values = normal((2, 2, 1, 100, 100), volume_generators(0, KEYS[:2], 2, 0.9), LIKE)[1].reshape(2, -1)
    assert abs(stats.pearsonr(*values.numpy()).statistic) < 0.05
    assert abs(stats.pearsonr(values[0, :-1], values[0, 1:]).statistic) < 0.05


@pytest.mark.parametrize("kind", NUMBERS)
def test_the_first_slice_and_a_single_one_are_as_alone(kind):
    draw = NUMBERS[kind]
    alone = draw((1, 3, 1, 8, 8), sample_generators(0, KEYS[:1], 3), LIKE)
    for keys in (KEYS[:1], KEYS):
        together = draw((len(keys), 3, 1, 8, 8), volume_generators(0, keys, 3, 0.9), LIKE)
        assert torch.equal(together[:1], alone)


def test_a_slice_drawn_later_takes_up_the_numbers_in_their_order():
    """Slices of another pass: all draws of the first come before any of the second."""
    first, second = sample_generators(0, KEYS[:2], 1)
    one = Along(first, None, 0.0, followed=True)
    u, g = uniform((1, 5), [one], LIKE), normal((1, 7), [one], LIKE)
    two = Along(second, one, 1.0, followed=False)
    assert torch.allclose(uniform((1, 5), [two], LIKE), u, rtol=0, atol=1e-7)
    assert torch.equal(normal((1, 7), [two], LIKE), g)
    assert not one.kept  # nothing is held longer than it is needed


def test_ends_of_the_uniform_numbers():
    ends = torch.tensor([0.0, 2**-24, 0.5, ALMOST_ONE], dtype=torch.float64)
    back = to_uniform(to_normal(ends))
    assert torch.allclose(back[1:], ends[1:], rtol=1e-9, atol=0)
    assert 0 < float(back[0]) < 2**-24
    assert float(to_uniform(torch.tensor([9.0])).float()) < 1
    assert torch.isfinite(to_normal(ends)).all()


def test_the_correlation_of_two_slices():
    assert correlation(2.0, 4.0) == pytest.approx(0.60653066)
    assert correlation(2.0, 0.0) == 0
    assert correlation(2.0, 1e12) == pytest.approx(1)


# of the methods with one answer per image one is enough: all are one class; tests register methods of their own
OURS = {name for name, place in METHODS.ours.items() if place.startswith("berdiff.")}
DRAWING = sorted(OURS - {"nnunet", "transunet", "swinunetr", "mednext"})


@pytest.mark.parametrize("name", DRAWING)
def test_every_method_draws_one_mask_through_equal_slices(name):
    """With one noise for all slices the masks of equal slices are equal: no draw of a method misses the process."""
    torch.manual_seed(0)
    options = {"answer": "level-sets"} if name == "unet" else {}
    model = method_class(name)(preset="tiny", **options).build(make_spec((32, 32))).eval()
    few = None if model.sampler is None else replace(model.sampler, steps=2)
    image = torch.rand(1, 1, 32, 32, generator=torch.Generator().manual_seed(1)).expand(3, -1, -1, -1)
    masks = model.sample(image, 2, volume_generators(0, KEYS[:3], 2, 1.0), few)
    assert torch.equal(masks[0], masks[1])
    assert torch.equal(masks[0], masks[2])

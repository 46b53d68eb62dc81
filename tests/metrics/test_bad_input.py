"""Each mistake gets one clear sentence."""

import pytest
import torch

from berdiff import metrics
from berdiff.errors import InputError

ALL = [
    metrics.ged,
    metrics.ged_unbiased,
    metrics.hm_iou,
    metrics.d_max,
    metrics.dice,
    metrics.soft_dice,
    metrics.ece,
    metrics.brier,
    metrics.nll,
]


def zeros(*shape, dtype=torch.uint8):
    return torch.zeros(shape, dtype=dtype)


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.int64])
@pytest.mark.parametrize("name", ["samples", "masks"])
def test_not_binary(metric, dtype, name):
    given = {"samples": zeros(2, 2, 1, 4, 4, dtype=dtype), "masks": zeros(2, 3, 1, 4, 4, dtype=dtype)}
    given[name][1, 1, 0, 3, 2] = 0.5 if dtype.is_floating_point else 255
    with pytest.raises(InputError, match=f"^{name}: expected binary masks of only 0 and 1, found values from 0 to "):
        metric(**given)


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize(
    ("samples", "masks", "sentence"),
    [
        ((2, 2, 4, 4), (2, 3, 1, 4, 4), r"samples: expected the shape \(B, n, K, H, W\), found \(2, 2, 4, 4\)"),
        ((2, 2, 1, 4, 4), (2, 4, 4), r"masks: expected the shape \(B, R, K, H, W\), found \(2, 4, 4\)"),
        ((2, 2, 1, 4, 4), (3, 3, 1, 4, 4), r"equal B, K, H and W, found \(2, 2, 1, 4, 4\) and \(3, 3, 1, 4, 4\)"),
        ((2, 2, 1, 4, 4), (2, 3, 2, 4, 4), "equal B, K, H and W"),
        ((2, 2, 1, 4, 4), (2, 3, 1, 4, 5), "equal B, K, H and W"),
        ((2, 2, 1, 4, 4), (2, 0, 1, 4, 4), "masks: expected at least one rater, found none"),
        ((2, 0, 1, 4, 4), (2, 3, 1, 4, 4), "samples: expected at least one sample"),
    ],
)
def test_shapes_that_do_not_fit(metric, samples, masks, sentence):
    with pytest.raises(InputError, match=sentence):
        metric(zeros(*samples), zeros(*masks))


@pytest.mark.parametrize(
    ("raters", "sentence"),
    [
        ([0, 3], "raters: expected 1 to 3 raters a case, found 0 to 3"),
        ([1, 4], "raters: expected 1 to 3 raters a case, found 1 to 4"),
        ([1], "raters: expected 2 whole numbers"),
        ([1.0, 2.0], "raters: expected 2 whole numbers"),
    ],
)
def test_raters_that_do_not_fit(raters, sentence):
    with pytest.raises(InputError, match=sentence):
        metrics.ged(zeros(2, 2, 1, 4, 4), zeros(2, 3, 1, 4, 4), torch.tensor(raters))


def test_one_sample_has_no_unbiased_ged():
    with pytest.raises(InputError, match="at least 2 for the unbiased GED, found 1"):
        metrics.ged_unbiased(zeros(1, 1, 1, 4, 4), zeros(1, 2, 1, 4, 4))


def test_more_first_samples_than_there_are():
    with pytest.raises(InputError, match="first: expected 1 to 2 samples, found 3"):
        metrics.Pairs.of(zeros(1, 2, 1, 4, 4), zeros(1, 2, 1, 4, 4)).ged(first=3)

"""Each mistake gets one clear sentence."""

from itertools import product

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


def test_not_binary():
    for metric, dtype, name in product(ALL, (torch.uint8, torch.float32, torch.int64), ("samples", "masks")):
        given = {"samples": zeros(2, 2, 1, 4, 4, dtype=dtype), "masks": zeros(2, 3, 1, 4, 4, dtype=dtype)}
        given[name][1, 1, 0, 3, 2] = 0.5 if dtype.is_floating_point else 255
        with pytest.raises(
            InputError, match=f"^{name}: expected binary masks of only 0 and 1, found values from 0 to "
        ):
            metric(**given)


@pytest.mark.parametrize(
    ("samples", "masks", "sentence"),
    [
        ((2, 2, 4, 4), (2, 3, 1, 4, 4), r"samples: expected the shape .*, found \(2, 2, 4, 4\)"),
        ((2, 2, 1, 4, 4), (2, 4, 4), r"masks: expected the shape .*, found \(2, 4, 4\)"),
        (
            (2, 2, 1, 4, 4),
            (3, 3, 1, 4, 4),
            r"pixels, found \(2, 2, 1, 4, 4\) and \(3, 3, 1, 4, 4\)",
        ),
        ((2, 2, 1, 4, 4), (2, 3, 2, 4, 4), "the same cases, targets and pixels"),
        ((2, 2, 1, 4, 4), (2, 3, 1, 4, 5), "the same cases, targets and pixels"),
        ((2, 2, 1, 4, 4), (2, 0, 1, 4, 4), "masks: expected at least one rater, found none"),
        ((2, 0, 1, 4, 4), (2, 3, 1, 4, 4), "samples: expected at least one sample"),
    ],
)
def test_shapes_that_do_not_fit(samples, masks, sentence):
    for metric in ALL:
        with pytest.raises(InputError, match=sentence):
            metric(zeros(*samples), zeros(*masks))


def test_counts_that_do_not_fit():
    samples, masks = zeros(2, 2, 1, 4, 4), zeros(2, 3, 1, 4, 4)
    for raters, sentence in (
        ([0, 3], "raters: expected 1 to 3 raters per case, found 0 to 3"),
        ([1, 4], "raters: expected 1 to 3 raters per case, found 1 to 4"),
        ([1], "raters: expected 2 whole numbers, one per case"),
        ([1.0, 2.0], "raters: expected 2 whole numbers, one per case"),
    ):
        with pytest.raises(InputError, match=sentence):
            metrics.ged(samples, masks, torch.tensor(raters))
    with pytest.raises(InputError, match="at least 2 for the unbiased GED, found 1"):
        metrics.ged_unbiased(samples[:, :1], masks)

"""Each mistake gets one clear sentence."""

from itertools import product

import pytest
import torch

from berdiff import metrics
from refusals import refused

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
        with refused(f"{name}:"):
            metric(**given)


@pytest.mark.parametrize(
    ("samples", "masks", "named"),
    [
        ((2, 2, 4, 4), (2, 3, 1, 4, 4), "samples:"),
        ((2, 2, 1, 4, 4), (2, 4, 4), "masks:"),
        ((2, 2, 1, 4, 4), (3, 3, 1, 4, 4), "(3, 3, 1, 4, 4)"),
        ((2, 2, 1, 4, 4), (2, 3, 2, 4, 4), "(2, 3, 2, 4, 4)"),
        ((2, 2, 1, 4, 4), (2, 3, 1, 4, 5), "(2, 3, 1, 4, 5)"),
        ((2, 2, 1, 4, 4), (2, 0, 1, 4, 4), "masks:"),
        ((2, 0, 1, 4, 4), (2, 3, 1, 4, 4), "samples:"),
    ],
)
def test_shapes_that_do_not_fit(samples, masks, named):
    for metric in ALL:
        with refused(named):
            metric(zeros(*samples), zeros(*masks))


def test_counts_that_do_not_fit():
    samples, masks = zeros(2, 2, 1, 4, 4), zeros(2, 3, 1, 4, 4)
    for raters in ([0, 3], [1, 4], [1], [1.0, 2.0]):
        with refused("raters:"):
            metrics.ged(samples, masks, torch.tensor(raters))
    with refused("samples"):
        metrics.ged_unbiased(samples[:, :1], masks)

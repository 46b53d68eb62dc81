"""Every network keeps the contract of `berdiff.testing`, and the contract sees what a broken network does."""

from collections.abc import Callable

import pytest
import torch

import fakes
from berdiff.methods.transunet.network import TransUNet
from berdiff.networks.build import NETWORKS, make_network
from berdiff.networks.whole import MedNeXt, NNUNet, SwinUNETR
from berdiff.testing import ContractError, check_network
from berdiff.testing.networks import contract

# of each architecture the smallest; the others differ in numbers alone, and are made without memory below
SMALL = ("tiny", "fast-tiny", "segdiff-tiny", "medsegdiff-tiny", "ccdm")
WHOLE = {NNUNet: (16, 32), SwinUNETR: (64, 64), MedNeXt: (8, 16), TransUNet: (8, 16)}


@pytest.mark.parametrize("preset", SMALL)
def test_every_network_keeps_the_contract(preset: str):
    assert {NETWORKS.ours[name] for name in SMALL} == set(NETWORKS.ours.values())
    check_network(preset)


@pytest.mark.parametrize("kind", WHOLE, ids=lambda kind: kind.__name__)
def test_so_does_every_network_that_answers_in_one_look(kind):
    check_network(kind("tiny", 2, 3, WHOLE[kind]), WHOLE[kind])


@pytest.mark.parametrize("preset", NETWORKS.ours)
def test_every_preset_takes_all_channels_targets_and_sizes(preset: str):
    for C, K, N, (rows, columns) in ((1, 1, 1, (1, 3)), (4, 3, 2, (4, 2))):
        with torch.device("meta"):
            net = make_network(preset, C, K)
            assert (net.preset, net.image_channels, net.targets) == (preset, C, K)
            size = (net.stride * rows, net.stride * columns)
            y_t = torch.zeros(2, N, K, *size)
            features = net.encode(torch.zeros(2, C, *size))
            assert net.denoise(y_t, torch.ones(2, N).long(), features).shape == y_t.shape


# --- the contract can fail -------------------------------------------------------------------------------------------


class Good(fakes.TenLines):
    """One convolution, which stands for a network of stride 2."""

    stride = 2

    def encode(self, image):
        self.check(image)
        return image


def broken(promise: str, **attributes):
    return promise, type("Broken", (Good,), attributes)


def logits(change: Callable):
    """Logits that `change` gets as (network, logits, what `denoise` got)."""

    def denoise(self, y_t, t, features):
        return change(self, Good.denoise(self, y_t, t, features), y_t)

    return denoise


def started(change: Callable):
    def init(self):
        Good.__init__(self)
        change(self)

    return init


def later(self, found, y_t):
    self.calls = getattr(self, "calls", 0) + 1
    return found + self.calls


def keeping(self, image):
    """A tensor with a history stays behind, which cannot be copied."""
    self.kept = image * self.conv.weight.mean()
    return Good.encode(self, image)


BROKEN = [
    broken(
        "logits of masks together are those one by one in any memory format",
        denoise=logits(lambda self, found, y_t: found[:, :1]),
    ),
    broken("other channels and sizes are refused", encode=lambda self, image: image[:, :1]),
    broken(
        "logits of masks together are those one by one in any memory format",
        denoise=logits(lambda self, found, y_t: found - y_t.mean()),
    ),
    broken(
        "a change reaches its own masks and no other",
        denoise=logits(lambda self, found, y_t: found + y_t.roll(1, 1)),
    ),
    broken("a change reaches its own masks and no other", encode=lambda self, image: Good.encode(self, image) * 0),
    broken("features serve every step and a copy is the same network", denoise=logits(later)),
    broken("a summary leaves the features as they are", summary_width=3),
    broken(
        "every parameter gets a gradient and has one name",
        __init__=started(lambda self: setattr(self, "unused", torch.nn.Parameter(torch.ones(1)))),
    ),
    broken(
        "every parameter gets a gradient and has one name",
        __init__=started(lambda self: setattr(self, "twin", self.conv)),
    ),
    broken(
        "features serve every step and a copy is the same network",
        __init__=started(lambda self: setattr(self, "preset", 1)),
    ),
    broken("features serve every step and a copy is the same network", encode=keeping),
]


def test_a_network_of_ten_lines_keeps_it():
    check_network(Good())


@pytest.mark.parametrize(("promise", "kind"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_network_that_breaks_it_is_named(promise: str, kind):
    with pytest.raises(ContractError) as caught:
        check_network(kind())
    assert f"\n- {promise}: " in str(caught.value)


def test_every_promise_has_a_network_that_breaks_it():
    assert {promise for promise, _ in BROKEN} == set(contract.checks)

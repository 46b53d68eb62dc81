"""MedSegDiff's network: the filter of frequencies, the gates, the condition, and its sizes."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from berdiff.networks.medsegdiff import FFParser, Gate, MedSegDiffNet

SIZES = ((8, 8), (16, 16), (4, 12), (5, 7), (1, 1), (3, 8))


def awake(C: int = 1, K: int = 1) -> MedSegDiffNet:
    """Gates begin as the identity and the U-Net's last layers as zeros; here all have something to say."""
    torch.manual_seed(0)
    net = MedSegDiffNet("medsegdiff-tiny", C, K)
    for p in net.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.3)
    for gate in net.condition.gates:
        nn.init.normal_(gate.parser.weight)
    return net.eval()


def inputs(B: int, N: int, C: int = 1, K: int = 1, size=(16, 24)) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(1)
    image, y_t = torch.rand(B, C, *size, generator=g), torch.randn(B, N, K, *size, generator=g)
    return image, y_t, torch.randperm(1000, generator=g)[: B * N].reshape(B, N) + 1


# --- FF-Parser -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_with_weight_1_the_filter_is_the_identity_at_any_size(size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size)
    torch.testing.assert_close(FFParser(3, 8)(x), x, rtol=1e-5, atol=1e-6)
    twice = FFParser(3, 8)
    with torch.no_grad():
        twice.weight.mul_(2)
    torch.testing.assert_close(twice(x), 2 * x, rtol=1e-5, atol=1e-5)


def test_the_filter_is_a_circular_convolution() -> None:
    """By the convolution theorem: sum over all places of x times the weights' inverse transform, moved."""
    torch.manual_seed(0)
    parser, x = FFParser(2, 6), torch.randn(1, 2, 6, 6)
    kernel = torch.randn(2, 6, 6)
    with torch.no_grad():
        parser.weight.copy_(torch.view_as_real(torch.fft.rfft2(kernel)))
    expected = torch.zeros_like(x)
    for i, j in product(range(6), range(6)):
        expected += kernel[:, i, j][:, None, None] * x.roll((i, j), (2, 3))
    torch.testing.assert_close(parser(x), expected, rtol=1e-4, atol=1e-5)


def test_between_two_frequencies_the_weights_are_interpolated() -> None:
    """Twice the size has every frequency of the filter and one between each two, around the period too."""
    torch.manual_seed(0)
    parser = FFParser(2, 8)
    nn.init.normal_(parser.weight)
    found = parser.at(16, 16)
    assert found.shape == (2, 16, 9, 2)
    torch.testing.assert_close(found[:, ::2, ::2], parser.weight)
    torch.testing.assert_close(found[:, 1::2, ::2], (parser.weight + parser.weight.roll(-1, 1)) / 2)
    torch.testing.assert_close(found[:, ::2, 1::2], (parser.weight[:, :, 1:] + parser.weight[:, :, :-1]) / 2)
    torch.testing.assert_close(parser.at(4, 4), parser.weight[:, ::2, ::2])


def test_a_filter_keeps_what_it_is_asked_for() -> None:
    """Weight 1 for frequency 0 alone leaves the mean, at any size whose other frequencies are a step away."""
    parser, x = FFParser(1, 8), torch.randn(1, 1, 8, 8)
    with torch.no_grad():
        parser.weight.zero_()
        parser.weight[:, 0, 0, 0] = 1
    torch.testing.assert_close(parser(x), x.mean().expand_as(x), rtol=0, atol=1e-6)
    small = torch.randn(1, 1, 4, 4)
    torch.testing.assert_close(parser(small), small.mean().expand_as(small), rtol=0, atol=1e-6)


# --- the gates and the condition -------------------------------------------------------------------------------------


def test_a_gate_begins_open_and_stays_between_0_and_4() -> None:
    torch.manual_seed(0)
    gate, x, h = Gate(3, 4, 8), torch.rand(2, 4, 8, 8) + 0.1, torch.randn(2, 3, 8, 8)
    assert torch.equal(gate(x, h), x)
    for layer in (gate.places, gate.channels):
        nn.init.normal_(layer.weight, std=5.0)
    factor = (gate(x, h) / x).detach()
    assert 0 <= float(factor.min()) < 0.1
    assert 3 < float(factor.max()) <= 4
    rank = torch.linalg.matrix_rank(factor[0].flatten(1))
    assert int(rank) == 1, "a factor of each place times a factor of each channel"


def test_the_condition_follows_the_mask_and_the_output_follows_the_condition() -> None:
    net = awake()
    image, y_t, t = inputs(1, 2, size=(16, 16))
    output, conditions = net.denoise_and_condition(y_t, t, net.encode(image))
    assert [tuple(c.shape) for c in conditions] == [(2, 8, 16, 16), (2, 16, 8, 8), (2, 16, 4, 4)]
    assert torch.equal(conditions[0][0], conditions[0][1]), "at full resolution it knows the image alone"
    for coarse in conditions[1:]:
        assert float((coarse[0] - coarse[1]).abs().max().detach()) > 1e-3
    again, _ = net.denoise_and_condition(y_t, t, net.encode(image))
    assert torch.equal(again, output), "no layer is made anew, as in the release"
    with torch.no_grad():
        net.answer.weight.zero_()
        net.answer.bias.zero_()
    assert float((net.denoise(y_t, t, net.encode(image)) - output).abs().max().detach()) > 1e-3

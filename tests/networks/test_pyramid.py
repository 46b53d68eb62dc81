"""Convolutional U-Nets by their sizes: shapes, blocks against their definitions, truncated ways up, first weights."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from berdiff.networks.pyramid import DenseBlock, Encoder, PlainBlock, ResidualBlock, Sizes, UNet, Up, initialise

WIDTHS = (4, 8, 12)
SIZES = Sizes(WIDTHS, convs=2)


@pytest.mark.parametrize("kind", ["plain", "residual", "dense"])
@pytest.mark.parametrize("norm", ["none", "group", "batch"])
def test_every_kind_gives_the_features_of_every_level_and_learns_with_all_its_weights(kind, norm):
    sizes = Sizes(WIDTHS, convs=2, blocks=2, kind=kind, norm=norm, pool="max", up="nearest", growth=6)
    net, x = UNet(3, sizes), torch.randn(2, 3, 16, 8)
    assert sizes.stride == 4
    assert [tuple(f.shape) for f in net.encoder(x)] == [(2, 4, 16, 8), (2, 8, 8, 4), (2, 12, 4, 2)]
    features = net(x)
    assert [tuple(f.shape) for f in features] == [(2, 12, 4, 2), (2, 8, 8, 4), (2, 4, 16, 8)]
    (features[-1] ** 2).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    norms = {"none": (), "group": torch.nn.GroupNorm, "batch": torch.nn.BatchNorm2d}[norm]
    assert any(isinstance(layer, norms) for layer in net.modules()) == (norm != "none")


def test_a_truncated_way_up_is_the_beginning_of_the_whole():
    whole, part, x = UNet(1, SIZES), UNet(1, SIZES, stop=1), torch.randn(2, 1, 8, 8)
    missing, _ = whole.load_state_dict(part.state_dict(), strict=False)
    assert missing
    assert all(name.startswith("decoder.ups.1.") for name in missing)
    assert all(map(torch.equal, part(x), whole(x)[:2]))
    assert len(whole(x)) == 3


def test_blocks_are_what_they_say():
    x = torch.randn(2, 5, 6, 6)
    plain = PlainBlock(5, 8, SIZES)
    h = x
    for layer in (plain[0], plain[2]):
        h = F.conv2d(h, layer.weight, layer.bias, padding=1).relu()
    assert torch.equal(plain(x), h)

    residual = ResidualBlock(5, 8, SIZES)
    first, second = residual.convs
    h = F.conv2d(F.conv2d(x.relu(), first.weight, first.bias, padding=1).relu(), second.weight, second.bias, padding=1)
    assert first.weight.shape == (4, 5, 3, 3), "half the width"
    torch.testing.assert_close(residual(x), residual.skip(x) + residual.out(h))
    same = ResidualBlock(8, 8, SIZES)
    torch.nn.init.zeros_(same.out.weight)
    torch.nn.init.zeros_(same.out.bias)
    torch.testing.assert_close(same(h := torch.randn(1, 8, 4, 4)), h)

    dense = DenseBlock(5, 8, replace(SIZES, growth=3))
    h = torch.cat([x, dense.convs[0](x.relu())], 1)
    h = torch.cat([h, dense.convs[1](h.relu())], 1)
    torch.testing.assert_close(dense(x), dense.out(h.relu()))


def test_pooling_and_growing():
    identity = Sizes((1, 1), convs=1)
    x = torch.rand(1, 1, 4, 4)
    for pool, expected in (("average", F.avg_pool2d(x, 2)), ("max", F.max_pool2d(x, 2))):
        encoder = Encoder(1, replace(identity, pool=pool))
        with torch.no_grad():
            for p in encoder.parameters():
                p.zero_()
            for level in encoder.levels:
                level[0][0].weight[0, 0, 1, 1] = 1  # x -> relu(x) = x
        assert torch.equal(encoder(x)[1], expected)
    ramp = torch.tensor([[0.0, 1.0], [2.0, 3.0]]).reshape(1, 1, 2, 2)
    for mode in ("nearest", "bilinear"):
        up = Up(1, 1, 1, replace(identity, up=mode))
        seen = []
        up.blocks.register_forward_pre_hook(lambda module, args, seen=seen: seen.append(args[0]))
        up(ramp, x)
        assert torch.equal(seen[0][:, 1:], x)
        assert seen[0][0, 0, 0].tolist() == ([0, 0, 1, 1] if mode == "nearest" else [0, 0.25, 0.75, 1])


def test_first_weights_keep_the_size_of_the_signal():
    """The square of activations, with torch's own first weights and with He's, twenty convolutions later."""
    torch.manual_seed(0)
    net, x = UNet(1, Sizes((16, 32, 32, 32), convs=3)), torch.randn(2, 1, 32, 32)
    before = net(x)[-1].detach().var()
    initialise(net, "he")
    after = net(x)[-1].detach().var()
    assert before < 1e-3
    assert 0.03 < after < 10
    assert all(not bias.any() for name, bias in net.named_parameters() if name.endswith("bias"))
    weight = net.encoder.levels[1][0][2].weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (32 * 9)), rel=0.05)
    initialise(net, "orthogonal")
    rows = weight.flatten(1)
    torch.testing.assert_close(rows @ rows.T, torch.eye(32), atol=1e-5, rtol=0)

"""SegDiff's network: the U-Net in parts is MONAI's, RRDB is what it says, its sizes, and each mask for itself."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from berdiff.networks import paper
from berdiff.networks.build import make_network
from berdiff.networks.rrdb import RRDB, DenseBlock, RRDBNet, RRDBPreset, SegDiffNet
from berdiff.networks.split_unet import SplitUNet

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def awake(net: nn.Module) -> nn.Module:
    """Last layers of U-Nets begin as zeros; here every one has something to say."""
    for p in net.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.1)
    return net.eval()


def test_the_parts_of_the_split_unet_make_monais() -> None:
    torch.manual_seed(0)
    net = awake(SplitUNet(replace(paper.PRESETS["tiny"], head_channels=(8, 8, 8)), 2, 3))
    x, t = torch.rand(3, 2, 16, 24), torch.tensor([1, 40, 1000])
    levels, skips, embedding = net.down(net.conv_in(x), t)
    assert [tuple(level.shape[1:]) for level in levels] == [(16, 8, 12), (32, 4, 6), (32, 4, 6)]
    whole = net(x, t)
    assert float(whole.detach().std()) > 0.01
    assert torch.equal(net.up(levels[-1], skips, embedding), whole)


def test_a_dense_block_written_out() -> None:
    torch.manual_seed(0)
    block, x = DenseBlock(4, 3), torch.rand(2, 4, 5, 5)
    found = [x]
    for conv in block.convs:
        found.append(F.leaky_relu(F.conv2d(torch.cat(found, 1), conv.weight, conv.bias, padding=1), 0.2))
    last = F.conv2d(torch.cat(found, 1), block.last.weight, block.last.bias, padding=1)
    torch.testing.assert_close(block(x), 0.2 * last + x)
    three = RRDB(4, 3)
    inner = three.dense[2](three.dense[1](three.dense[0](x)))
    torch.testing.assert_close(three(x), 0.2 * inner + x)


def test_with_scale_0_the_rrdb_net_is_its_path_of_convolutions() -> None:
    torch.manual_seed(0)
    net, x = RRDBNet(3, 5, RRDBPreset(paper.PRESETS["tiny"], 8, 4, 2)), torch.rand(2, 3, 7, 7)
    before = net(x)
    for block in net.blocks:
        block.scale = 0.0
    first = net.first(x)
    path = net.last(F.leaky_relu(net.fine(first + net.trunk(first)), 0.2))
    torch.testing.assert_close(net(x), path)
    assert not torch.allclose(before, path)


@pytest.mark.slow
def test_most_of_the_work_is_done_once_per_image() -> None:
    """Of SegDiff's own network at 128x128, 120 of 183 GMAC are the RRDB net's."""
    with torch.device("meta"):
        net = make_network("segdiff-own")
        image, y_t, t = torch.zeros(1, 1, 128, 128), torch.zeros(1, 1, 1, 128, 128), torch.ones(1, 1).long()
        with FlopCounterMode(display=False) as encode:
            features = net.encode(image)
        with FlopCounterMode(display=False) as denoise:
            net.denoise(y_t, t, features)
    per_image, per_step = (counter.get_total_flops() / 2e9 for counter in (encode, denoise))
    assert per_image == pytest.approx(120, abs=1)
    assert per_image + per_step == pytest.approx(183, abs=2)


@pytest.mark.parametrize("he", [True, False])
def test_the_image_begins_no_fainter_than_the_noisy_mask(monkeypatch: pytest.MonkeyPatch, he: bool) -> None:
    """By torch's own start it is lost on its way through the RRDB net: the second case, so that this can fail."""
    if not he:
        monkeypatch.setattr("berdiff.networks.rrdb.initialise", lambda module, kind: None)
    torch.manual_seed(0)
    net = SegDiffNet("segdiff-small")
    coarse = F.interpolate(torch.rand(8, 1, 8, 8), size=(32, 32), mode="bilinear")
    with torch.no_grad():
        of_image, of_mask = net.encode(coarse), net.unet.conv_in(torch.randn(8, 1, 32, 32))
    assert ((of_image - of_image.mean(0)).std() > of_mask.std()).item() is he


def test_narrow_networks_read_the_image_at_every_step() -> None:
    """As the paper's: what enters the U-Net is the noisy mask beside the image."""
    torch.manual_seed(0)
    net = make_network("ccdm")
    image, y_t, t = torch.rand(1, 1, 16, 16), torch.rand(1, 2, 1, 16, 16), torch.tensor([[5, 80]])
    awake(net)
    found = net.denoise(y_t, t, net.encode(image))
    for i in range(2):
        alone = net.unet(torch.cat([y_t[0, i : i + 1], image], 1), t[0, i : i + 1])
        torch.testing.assert_close(found[0, i], alone[0], **CLOSE)
    heads = {net.unet.middle_block.attention.attn.num_heads, net.unet.down_blocks[3].attentions[0].attn.num_heads}
    assert heads == {4, 3}, "of 32 channels"

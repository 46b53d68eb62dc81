"""Networks that answer in one look: their published sizes, their interface, MONAI's own outputs, and refusals."""

import copy

import pytest
import torch
import torch.nn.functional as F
from monai.networks.nets.dynunet import DynUNet

from berdiff.methods.transunet.network import StandardisedConv, TransUNet
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.whole import NNUNET, MedNeXt, NNUNet, SwinUNETR
from refusals import refused

KINDS = [NNUNet, SwinUNETR, MedNeXt, TransUNet]
SMALLEST = {NNUNet: (16, 16), SwinUNETR: (64, 64), MedNeXt: (8, 8), TransUNet: (8, 8)}  # of the tiny presets


def tiny(kind, channels=1, targets=1, size=None):
    torch.manual_seed(0)
    return kind("tiny", channels, targets, size or SMALLEST[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_interface_and_refusals(kind):
    height, width = SMALLEST[kind]
    net = tiny(kind, 2, 3, (height, 2 * width)).train()
    assert isinstance(net, Denoiser)
    image = torch.rand(2, 2, height, 2 * width)
    first, *coarser = net.levels(image)
    assert first.shape == (2, 3, height, 2 * width)
    for i, level in enumerate(coarser, 1):
        assert level.shape == (2, 3, height >> i, 2 * width >> i)
    logits = net.denoise(torch.rand(2, 4, 3, height, 2 * width), torch.ones(2, 4), net.encode(image))
    torch.testing.assert_close(logits, first.unsqueeze(1).expand_as(logits))
    with refused("image:", error=ValueError):
        net.levels(image[:, :1])
    with refused("image:", error=ValueError):
        net.levels(image[..., 1:])
    with refused("size:", error=ValueError):
        tiny(kind, size=(height + 1, width))
    with refused("size:", error=ValueError):
        tiny(kind, size=(height, width // 2))


def test_nnunet_is_dynunet_with_its_heads_at_their_own_resolution():
    net, widths = tiny(NNUNet, size=(32, 32)).train(), NNUNET["tiny"]
    torch.manual_seed(0)
    theirs = DynUNet(
        2, 1, 1, [3] * 4, [1, 2, 2, 2], [2, 2, 2], filters=widths, deep_supervision=True, deep_supr_num=1
    ).train()
    image = torch.rand(2, 1, 32, 32)
    fine, coarse = net.levels(image)
    torch.testing.assert_close(theirs(image), torch.stack([fine, F.interpolate(coarse, (32, 32))], 1))
    assert all(not left.numel() for left in net._coarse), "nothing of an image stays behind"
    copy.deepcopy(net)  # refused while a tensor with a history is held
    stages = {preset: len(each) for preset, each in NNUNET.items()}
    assert stages == {"paper": 6, "small": 5, "tiny": 4}
    with torch.device("meta"):
        paper = NNUNet("paper", 4, 1, (64, 64)).levels(torch.zeros(1, 4, 64, 64))
    assert [level.shape[-1] for level in paper] == [64, 32, 16, 8]  # 4x4, the coarsest of the decoder, has weight 0


def test_mednext_leaves_the_coarse_logits_out_in_use():
    net, image = tiny(MedNeXt), torch.rand(1, 1, 16, 16)
    assert [level.shape[-1] for level in net.train().levels(image)] == [16, 8, 4]
    assert [level.shape[-1] for level in net.eval().levels(image)] == [16]


def test_transunet_sees_the_whole_image_and_where_a_token_is():
    net = tiny(TransUNet, size=(32, 32)).eval()
    image = torch.rand(1, 1, 32, 32, requires_grad=True)
    net.levels(image)[0][0, 0, 0, 0].backward()
    assert image.grad is not None
    assert float(image.grad[..., 24:, 24:].abs().sum()) > 0
    with torch.no_grad():
        before = net.levels(image)[0]
        assert net.levels(torch.rand(1, 1, 16, 48))[0].shape == (1, 1, 16, 48), "positions are interpolated"
        net.position.add_(torch.randn_like(net.position))
        assert not torch.allclose(before, net.levels(image)[0])


def test_standardised_weights():
    torch.manual_seed(0)
    conv, ones = StandardisedConv(3, 5, 3, bias=False), torch.eye(27).reshape(27, 3, 3, 3)
    weights = conv(ones).reshape(27, 5)  # a one in each place reads them back
    torch.testing.assert_close(weights.mean(0), torch.zeros(5), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights.std(0, correction=0), torch.ones(5), atol=1e-3, rtol=0)

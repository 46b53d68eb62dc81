"""The paper's U-Net: its size, its protocol, its memory format, and what it refuses."""

import pytest
import torch

from berdiff.networks.build import make_network
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.paper import PRESETS


def count(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_paper_128_has_the_published_number_of_parameters():
    with torch.device("meta"):
        assert count(make_network("paper-128")) == 85_599_233


def test_paper_224_takes_four_sequences_and_halves_to_seven():
    with torch.device("meta"):
        net = make_network("paper-224", image_channels=4)
        y_t, t = torch.zeros(1, 2, 1, 224, 224), torch.ones(1, 2, dtype=torch.long)
        logits = net.denoise(y_t, t, net.encode(torch.zeros(1, 4, 224, 224)))
    assert logits.shape == y_t.shape
    assert 224 // net.stride == 7


@pytest.mark.parametrize("preset", ["small", "tiny"])
@pytest.mark.parametrize("targets", [1, 3])
def test_presets_keep_the_protocol(preset: str, targets: int):
    net = make_network(preset, image_channels=2, targets=targets)
    assert isinstance(net, Denoiser)
    y_t = torch.randint(2, (2, 3, targets, 32, 32)).float()
    logits = net.denoise(y_t, torch.randint(1, 1001, (2, 3)), net.encode(torch.rand(2, 2, 32, 32)))
    assert logits.shape == y_t.shape


def test_masks_of_one_image_are_told_their_own_image_step_and_mask():
    """(B, N) is only a layout: each mask's logits are those it gets alone, with its own image and t."""
    torch.manual_seed(0)
    net = with_output(make_network("tiny")).eval()
    image, y_t = torch.rand(2, 1, 16, 16), torch.randint(2, (2, 3, 1, 16, 16)).float()
    t = torch.tensor([[1, 500, 1000], [20, 30, 999]])
    together = net.denoise(y_t, t, net.encode(image))
    for b in range(2):
        for i in range(3):
            alone = net.denoise(y_t[b : b + 1, i : i + 1], t[b : b + 1, i : i + 1], net.encode(image[b : b + 1]))
            torch.testing.assert_close(together[b, i], alone[0, 0], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0, 0], together[0, 1])


def test_output_does_not_depend_on_the_memory_format():
    torch.manual_seed(0)
    net = with_output(make_network("tiny")).eval()
    image, y_t, t = torch.rand(1, 1, 16, 16), torch.ones(1, 1, 1, 16, 16), torch.tensor([[7]])
    default = net.denoise(y_t, t, image)
    net.to(memory_format=torch.channels_last)
    torch.testing.assert_close(net.denoise(y_t, t, image), default, rtol=1e-4, atol=1e-5)


def with_output(net: torch.nn.Module) -> torch.nn.Module:
    """The U-Net starts with an output of zeros; give it something to say."""
    for p in net.parameters():
        if not p.any():
            torch.nn.init.normal_(p, std=0.1)
    return net


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"preset: expected one of .*paper-128.*, found 'huge'"):
        make_network("huge")
    net = make_network("tiny")
    stride = PRESETS["tiny"].stride
    with pytest.raises(ValueError, match=rf"multiples of {stride}, found 30x32"):
        net.encode(torch.zeros(1, 1, 30, 32))
    with pytest.raises(ValueError, match="expected 1 channels, found 4"):
        net.encode(torch.zeros(1, 4, 32, 32))

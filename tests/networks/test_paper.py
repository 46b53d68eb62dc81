"""The paper's U-Net: its size, its interface, its memory format, and what it refuses."""

from itertools import product

import pytest
import torch

from berdiff.networks.build import make_network
from berdiff.networks.denoiser import Denoiser


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


def test_presets_keep_the_interface_and_refuse_other_images():
    for preset, targets in product(("small", "tiny"), (1, 3)):
        net = make_network(preset, image_channels=2, targets=targets)
        assert isinstance(net, Denoiser)
        y_t = torch.randint(2, (2, 3, targets, 32, 32)).float()
        logits = net.denoise(y_t, torch.randint(1, 1001, (2, 3)), net.encode(torch.rand(2, 2, 32, 32)))
        assert logits.shape == y_t.shape
        with pytest.raises(ValueError, match=rf"multiples of {net.stride}, found 30x32"):
            net.encode(torch.zeros(1, 2, 30, 32))
        with pytest.raises(ValueError, match="expected 2 channels, found 4"):
            net.encode(torch.zeros(1, 4, 32, 32))


def test_masks_of_one_image_get_their_own_image_step_and_mask_in_any_memory_format():
    """(B, N) is only a layout: each mask's logits are those it gets by itself, with its own image and t."""
    torch.manual_seed(0)
    net = make_network("tiny").eval()
    for p in net.parameters():
        if not p.any():  # the U-Net starts with an output of zeros; give it something to say
            torch.nn.init.normal_(p, std=0.1)
    image, y_t = torch.rand(2, 1, 16, 16), torch.randint(2, (2, 3, 1, 16, 16)).float()
    t = torch.tensor([[1, 500, 1000], [20, 30, 999]])
    together = net.denoise(y_t, t, net.encode(image))
    assert not torch.allclose(together[0, 0], together[0, 1])
    net.to(memory_format=torch.channels_last)
    for b, i in product(range(2), range(3)):
        one = net.denoise(y_t[b : b + 1, i : i + 1], t[b : b + 1, i : i + 1], net.encode(image[b : b + 1]))
        torch.testing.assert_close(together[b, i], one[0, 0], rtol=1e-4, atol=1e-5)

"""The paper's U-Net: its size, its interface, its memory format, and what it refuses."""

import torch

from berdiff.networks.build import make_network


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

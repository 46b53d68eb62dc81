"""Small inputs for the checks: specs, images, masks of each kind, generators, and weights that say something."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from berdiff.data.input_spec import InputSpec, Intensity, Kind
from berdiff.diffusion.random import sample_generators
from berdiff.targets.targets import of_labels

KEYS = ("a", "b", "c", "d", "e")  # of images


def input_spec(size: Sequence[int], channels: int = 1, targets: int = 1, kind: Kind = "independent") -> InputSpec:
    """For images of so many channels, and so many targets of one kind."""
    spec = InputSpec(tuple(size), KEYS[:channels], KEYS[:targets], Intensity())  # pyright: ignore[reportArgumentType]
    return replace(spec, kind=kind)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def generators(keys: Sequence[str], n: int = 1) -> list[torch.Generator]:
    """One for each of n masks of each image."""
    return sample_generators(0, keys, n)


def images(spec: InputSpec, count: int = 3) -> Tensor:
    """`(count, C, *S)` in [0, 1], of unlike contrast."""
    contrast = torch.linspace(1, 0.1, count).reshape(count, *[1] * (1 + len(spec.size)))
    return contrast * torch.rand(count, len(spec.channels), *spec.size, generator=generator())


def masks(shape: Sequence[int], kind: Kind = "independent", seed: int = 1) -> Tensor:
    """Random uint8 masks `(B, R, K, *S)` of a kind."""
    if kind == "independent":
        return torch.randint(2, tuple(shape), generator=generator(seed), dtype=torch.uint8)
    B, R, K, *size = shape
    labels = torch.randint(K + 1, (B * R, *size), generator=generator(seed))
    return torch.as_tensor(of_labels(labels.numpy(), K, kind)).reshape(B, R, K, *size)


def awaken(module: nn.Module) -> None:
    """Parameters that begin as zeros, such as those of last layers, become small random numbers."""
    for parameter in module.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.2)

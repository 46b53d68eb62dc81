"""torch.compile for the network of a model: worth its half minute where many images follow."""

import os
import shutil
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from berdiff.errors import InputError
from berdiff.methods.base import Segmenter
from berdiff.networks.denoiser import Denoiser


class CompiledDenoiser(Denoiser[Any]):
    """A network whose `encode` and `denoise` are compiled on first use, once for each shape."""

    def __init__(self, network: Denoiser[Any]) -> None:
        super().__init__(network.preset, network.image_channels, network.targets)
        self.stride, self.centred, self.network = network.stride, network.centred, network
        self._encode, self._denoise = torch.compile(network.encode), torch.compile(network.denoise)

    def encode(self, image: Tensor) -> Any:
        return self._encode(image)

    def denoise(self, y_t: Tensor, t: Tensor, features: Any) -> Tensor:
        return self._denoise(y_t, t, features)


def compiled(segmenter: Segmenter, device: str) -> Segmenter:
    """The same model on a compiled network; what is missing for it is reported here."""
    network = getattr(segmenter, "network", None)
    if not isinstance(network, Denoiser):
        method = segmenter.config.method
        raise InputError(f"--compile: the method {method} has no encoder and denoiser to compile", "unsupported")
    cpu = device.startswith("cpu")
    if cpu and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        raise InputError("--compile: expected a C++ compiler (g++, clang++ or CXX), found none", "missing")
    if not cpu and find_spec("triton") is None:
        raise InputError("--compile: expected the package triton, found none", "missing")
    return segmenter.with_changes(network=CompiledDenoiser(network), compiled=True)

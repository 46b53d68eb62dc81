"""torch.compile for the network of a model: worth its half minute where many images follow."""

import os
import shutil
from importlib.util import find_spec

import torch

from berdiff.errors import InputError
from berdiff.methods.base import Segmenter
from berdiff.networks.denoiser import Denoiser


def compile_network(segmenter: Segmenter, device: str) -> None:
    """Its `encode` and `denoise` are compiled on first use, once for each shape; what is missing is reported here."""
    network = getattr(segmenter, "network", None)
    if not isinstance(network, Denoiser):
        method = segmenter.config.method
        raise InputError(f"--compile: expected a method on an encoder and a denoiser, found {method}, which is not")
    cpu = device.startswith("cpu")
    if cpu and not (os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")):
        raise InputError("--compile: expected a C++ compiler (g++, clang++ or CXX), found none")
    if not cpu and find_spec("triton") is None:
        raise InputError("--compile: expected the package triton, found none")
    for name in ("encode", "denoise"):
        setattr(network, name, torch.compile(getattr(network, name)))
    segmenter.compiled = True

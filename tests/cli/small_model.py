"""A model with random weights, for the commands that use one."""

from dataclasses import replace
from pathlib import Path

import torch

from berdiff.methods import folder
from berdiff.methods.berdiff import BerDiff
from fakes import make_spec


def save_model(path: Path, channels: tuple[str, ...], size: int, **intensity) -> Path:
    torch.manual_seed(0)
    spec = replace(make_spec((size, size), channels, ("finding",), **intensity), notes=("random weights",))
    segmenter = BerDiff(preset="tiny", T=20, prediction="mask").build(spec)
    for parameter in segmenter.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    folder.save(segmenter, path)
    return path

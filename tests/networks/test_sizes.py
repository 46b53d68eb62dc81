"""The documented sizes: millions of weights of what is trained for one target, and the stride of its images."""

import pytest
import torch

from berdiff.methods.berdiff import BerDiff
from berdiff.methods.car import CAR
from berdiff.methods.families.diffusion_config import DiffusionConfig
from berdiff.methods.hprobunet import HierarchicalProbUNet
from berdiff.methods.hprobunet import network as hprobunet
from berdiff.methods.jprounet import JProUNet
from berdiff.methods.mednext import MedNeXt
from berdiff.methods.medsegdiff import MedSegDiff
from berdiff.methods.mose import MoSE
from berdiff.methods.nnunet import NNUNet
from berdiff.methods.pixelseg import PixelSeg
from berdiff.methods.probunet import ProbUNet
from berdiff.methods.segdiff import SegDiff
from berdiff.methods.ssn import SSN
from berdiff.methods.swinunetr import SwinUNETR
from berdiff.methods.transunet import TransUNet
from fakes import make_spec

SIZES = {
    BerDiff: {"paper-128": ("85.599233", 16), "paper-224": ("113.7", 32), "ccdm": ("5.7", 16), "medfm": ("9.1", 16)},
    SegDiff: {"paper-128": ("93", 16), "paper-224": ("121", 32), "own": ("122", 32), "small": ("2.5", 8)},
    MedSegDiff: {"paper-128": ("94", 16), "own": ("133", 32), "small": ("2.4", 8)},
    SSN: {"paper": ("9.24", 64), "small": ("3.20", 16)},
    MoSE: {"paper": ("9.32", 64), "small": ("3.28", 16)},
    PixelSeg: {"paper": ("3.43", 16), "small": ("0.98", 8)},
    ProbUNet: {"paper": ("9.3", 16), "small": ("3.0", 16)},
    HierarchicalProbUNet: {"paper": ("20.6", 128), "small": ("4.6", 64)},  # without 1.3 M that nothing reads
    JProUNet: {"paper": ("5.5", 16), "small": ("2.7", 16)},
    CAR: {"paper": ("8.6", 16), "small": ("3.0", 16)},
    NNUNet: {"paper": ("20.6", 32), "small": ("3.3", 16)},
    SwinUNETR: {"paper": ("25.1", 32), "small": ("6.3", 32)},
    MedNeXt: {"paper": ("5.5", 16), "small": ("3.1", 16)},
    TransUNet: {"paper": ("105.3", 16), "small": ("5.9", 8)},  # a weight for every position
}
FOUR = (NNUNet, SwinUNETR, MedNeXt, TransUNet)  # of four sequences


@pytest.mark.parametrize(
    ("kind", "preset"), [(k, p) for k, presets in SIZES.items() for p in presets], ids=lambda v: getattr(v, "method", v)
)
def test_sizes_are_the_documented_ones(kind, preset: str, monkeypatch):
    monkeypatch.setattr(hprobunet, "initialise", lambda module, kind: None)  # takes seconds
    side = {"paper": 224 if kind in FOUR else 128, "small": 64}.get(preset, 128)
    channels = ("t1", "t2", "flair", "t1c") if kind in FOUR else ("ct",)
    config = kind(preset)
    if isinstance(config, DiffusionConfig):  # a schedule has numbers that are looked at
        kernel = config.kernel()
        monkeypatch.setattr(kind, "kernel", lambda self, *kinds: kernel)
    with torch.device("cpu" if kind is SwinUNETR else "meta"):  # it asks a tensor for its value while it is built
        model = config.build(make_spec((side, side), channels))
    expected, stride = SIZES[kind][preset]
    millions = sum(p.numel() for p in model.parameters()) / 1e6
    assert (f"{millions:.{len(expected.partition('.')[2])}f}", model.stride) == (expected, stride)

"""A ten-line Segmenter and a small store: what the trainer needs, and nothing that takes seconds to import."""

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from berdiff.data.prepare import prepare
from berdiff.diffusion.bernoulli import draw, uniform
from berdiff.training.config import DataConfig, EngineConfig, LoopConfig, OptimConfig, TrainConfig, ValidationConfig


class StandIn(nn.Module):
    """Estimates the mask from the image and the mask with a random share of its pixels flipped."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.net = nn.Sequential(nn.Conv2d(2, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def loss(self, image, masks, generator):
        y0 = masks[:, 0].float()
        share = uniform((len(image),), generator, image).reshape(-1, 1, 1, 1) / 2
        noisy = (y0 - draw(share.expand(y0.shape), generator)).abs()
        bce = F.binary_cross_entropy_with_logits(self.net(torch.cat([image, noisy], 1)), y0)
        return {"loss": bce, "bce": bce}

    @torch.no_grad()
    def sample(self, image, n, generator, sampler=None):
        B, _, H, W = image.shape
        noise = draw(torch.full((B * n, 1, H, W), 0.5), generator)
        logits = self.net(torch.cat([image.repeat_interleave(n, 0), noise], 1))
        return draw(logits.float().sigmoid(), generator).reshape(B, n, 1, H, W).to(torch.uint8)

    def config(self):
        return {"method": "stand-in", "width": self.width}


def make_standin(config, store, size) -> StandIn:
    return StandIn()


def make_store(folder: Path, train: int = 13, val: int = 5, size: int = 16, readers: int = 3) -> Path:
    """Bright squares on a dark ground; each reader draws it a little larger."""
    rng = np.random.default_rng(0)
    with h5py.File(folder / "data.hdf5", "w") as file:
        for split, count in (("train", train), ("val", val), ("test", 2)):
            images = rng.integers(0, 80, (count, size, size), dtype=np.uint8)
            labels = np.zeros((count, size, size, readers), np.uint8)
            for i, (row, column) in enumerate(rng.integers(2, size - 8, (count, 2))):
                images[i, row : row + 5, column : column + 5] += 150
                for r in range(readers):
                    labels[i, row : row + 4 + r, column : column + 4 + r, r] = 1
            group = file.create_group(split)
            group["images"], group["labels"] = images, labels
            group["uids"] = [f"{split}-{i}".encode() for i in range(count)]
    prepare("lidc-hdf5", folder / "data.hdf5", folder / "store.zarr")
    return folder / "store.zarr"


def small_config(store: Path, **loop) -> TrainConfig:
    return TrainConfig(
        data=DataConfig(store=str(store), augment=True, prefetch=2),
        optim=OptimConfig(lr=1e-2, warmup_steps=3, clip_norm=1.0),
        loop=replace(LoopConfig(batch_size=4, max_steps=24, checkpoint_every=4, log_every=4), **loop),
        validation=ValidationConfig(every=8, cases=5, samples=4, batch_size=2, sheet_cases=0),
        engine=EngineConfig(accelerator="cpu", devices="1", threads=1),
    )


def weight_files(run: Path) -> dict[str, bytes]:
    """Every tensor file of a run: all checkpoints, the model of record and the best."""
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*.safetensors"))}

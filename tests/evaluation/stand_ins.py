"""A store in memory and a method without a network: what the evaluation needs of either, and nothing else."""

import time
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from berdiff.data.table import CaseTable


def cases_of(names, patients, volumes, splits, raters):
    return CaseTable(
        case=np.array(names, dtype=object),
        patient=np.array(patients, dtype=object),
        volume=np.array(volumes, dtype=object),
        spacing=np.full((len(names), 2), np.nan),
        source=np.array([""] * len(names), dtype=object),
        split=np.array(splits, dtype=object),
        raters=np.array(raters),
    )


class MemoryStore:
    """Discs around the centre, each reader with another radius; some readers mark nothing, some cases have fewer."""

    address = "memory"
    notes = ("made for tests",)
    size = (16, 16)

    def __init__(self, count=23, targets=("disc",), seed=0):
        rng = np.random.default_rng(seed)
        self.targets = tuple(targets)
        r, k = 4, len(self.targets)
        rows, columns = np.mgrid[:16, :16] - 7.5
        radius = rng.uniform(1, 6, (count, 1, k, 1, 1)) + rng.uniform(-1, 1, (count, r, k, 1, 1))
        radius *= rng.random((count, r, k, 1, 1)) > 0.3
        self.masks = (rows**2 + columns**2 < radius**2).astype(np.uint8)
        self.images = rng.random((count, 1, 16, 16), dtype=np.float32) * 0.3 + 0.5 * self.masks.mean((1, 2))[:, None]
        raters = rng.integers(1, r + 1, count)
        for i, own in enumerate(raters):
            self.masks[i, own:] = 0
        patients = [f"p{i // 3}" for i in range(count)]
        volumes = [f"v{i // 2}" if i % 5 else "" for i in range(count)]
        splits = ["test" if i < count - 3 else "val" for i in range(count)]
        self.cases = cases_of([f"case {i}" for i in range(count)], patients, volumes, splits, raters)
        self.manifest = SimpleNamespace(source="lidc-test", files={"masks": str(seed), "count": str(count)})

    def indices(self, split):
        return np.flatnonzero(self.cases.split == split)

    def read(self, indices):
        return self.images[indices].astype(np.float32), self.masks[indices]


class Blur(nn.Module):
    """A `Segmenter` that marks where the image plus one random number a sample is bright."""

    def __init__(self, spread=0.1, targets=1, pause=0.0):
        super().__init__()
        self.spread = nn.Parameter(torch.tensor(spread))
        self.targets, self.pause = targets, pause

    def loss(self, image, masks, generator):
        raise NotImplementedError("the evaluation does not train")

    def sample(self, image, n, generator, sampler=None):
        time.sleep(self.pause)
        if image.shape[1] != 1:
            raise ValueError(f"image: expected 1 channels, found {image.shape[1]}")
        level = torch.stack([torch.rand((), generator=g) for g in generator]).reshape(len(image), n, 1, 1, 1)
        marked = image[:, None] + self.spread.detach() * (level - 0.5) > 0.4
        return marked.expand(-1, -1, self.targets, -1, -1).to(torch.uint8)

    def config(self):
        return {"method": "blur"}

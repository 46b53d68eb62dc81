"""The stand-ins that all tests share: networks, methods, a store in memory and a small one on the disk.

Importing this module registers the methods `stand-in`, `blur` and `levels`, as an entry point would.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import h5py
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berdiff.data.input_spec import InputSpec, Intensity, Kind
from berdiff.data.table import CaseTable
from berdiff.diffusion.along_z import follow
from berdiff.diffusion.bernoulli import draw
from berdiff.diffusion.random import Source, sample_generators, uniform
from berdiff.diffusion.sampler import Sampler
from berdiff.inference.model import Model
from berdiff.methods.base import Segmenter
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.config import METHODS, MethodConfig
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.networks.denoiser import Denoiser

METHODS.ours |= {"stand-in": "fakes:StandIn", "blur": "fakes:Blur", "levels": "fakes:Levels"}


def make_spec(size=(16, 16), channels=("ct",), targets=("nodule",), **intensity) -> InputSpec:
    return InputSpec(size, tuple(channels), tuple(targets), Intensity(**intensity))


# --- networks --------------------------------------------------------------------------------------------------------


class TenLines(Denoiser[Tensor]):
    """The smallest network: one convolution of the noisy mask, the image and t."""

    stride = 1

    def __init__(self, preset="ten-lines", image_channels=1, targets=1) -> None:
        super().__init__(preset, image_channels, targets)
        self.conv = nn.Conv2d(3, 1, 3, padding=1)

    def encode(self, image):
        return image

    def denoise(self, y_t, t, features):
        planes = [y_t, features.unsqueeze(1).expand_as(y_t), (t / 1000)[..., None, None, None].expand_as(y_t)]
        return self.conv(torch.cat(planes, 2).flatten(0, 1)).reshape(y_t.shape)


class Bright(Denoiser[Tensor]):
    """Logits by the brightness around a pixel and by the noisy mask: sensible masks without any training."""

    stride = 1

    def __init__(self, preset="bright", image_channels=1, targets=1) -> None:
        super().__init__(preset, image_channels, targets)

    def encode(self, image):
        self.check(image)
        return F.avg_pool2d(image.mean(1, keepdim=True), 3, 1, 1)

    def denoise(self, y_t, t, features):
        return 12 * (features[:, None] - 0.6) + (y_t - 0.5)


class Table(Denoiser):
    """Logits `(K, H, W)` that depend on nothing: one number to learn for each pixel."""

    stride = 1

    def __init__(self, logits: Tensor) -> None:
        super().__init__("table", targets=len(logits))
        self.logits = nn.Parameter(logits)

    def encode(self, image):
        return image

    def denoise(self, y_t, t, features):
        return self.logits.expand(y_t.shape)


def diffusion(network: Denoiser, config=None, spec: InputSpec | None = None) -> DiffusionSegmenter:
    """A diffusion method on a network of the tests' own."""
    config = config or BerDiff(T=50)
    return DiffusionSegmenter(config, spec or make_spec(), network, config.kernel())


def bright_segmenter(spec: InputSpec | None = None) -> DiffusionSegmenter:
    """BerDiff on `Bright`: three steps of fifty."""
    spec = spec or make_spec()
    config = BerDiff(T=50, prediction="mask", sampler=Sampler(steps=3))
    segmenter = diffusion(Bright("bright", len(spec.channels), len(spec.targets)), config, spec)
    segmenter.weights_sha256 = "0" * 64
    return segmenter.eval()  # type: ignore[return-value]


def bright_model(spec: InputSpec | None = None) -> Model:
    """`bright_segmenter`, opened."""
    segmenter = bright_segmenter(spec)
    return Model(segmenter, "bright", segmenter.input_spec, segmenter.input_spec.size)


# --- methods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StandIn(MethodConfig):
    """Trains in milliseconds, on slices and volumes: estimates the mask from the image and the mask with some of its
    pixels flipped."""

    method: ClassVar[str] = "stand-in"
    spatial_dims: ClassVar[tuple[int, ...]] = (2, 3)
    width: int = 4

    def build(self, spec: InputSpec) -> "StandInSegmenter":
        return StandInSegmenter(self, spec)


class StandInSegmenter(Segmenter):
    def __init__(self, config: StandIn, spec: InputSpec) -> None:
        super().__init__(config, spec, stride=1)
        w, C, K = config.width, len(spec.channels), self.targets
        conv = nn.Conv3d if len(spec.size) == 3 else nn.Conv2d
        self.net = nn.Sequential(conv(C + K, w, 3, padding=1), nn.SiLU(), conv(w, K, 3, padding=1))

    def loss(self, image, masks, generators):
        y0 = masks[:, 0].float()
        share = uniform((len(image),), generators, image).reshape(-1, *[1] * (image.ndim - 1)) / 2
        noisy = (y0 - draw(share.expand(y0.shape), generators)).abs()
        bce = F.binary_cross_entropy_with_logits(self.net(torch.cat([image, noisy], 1)), y0)
        return {"loss": bce, "bce": bce}

    def _sample(self, image, n, request):
        noise = draw(torch.full((len(image) * n, self.targets, *image.shape[2:]), 0.5), request.generators)
        logits = self.net(torch.cat([image.repeat_interleave(n, 0), noise], 1))
        return draw(logits.float().sigmoid(), request.generators).unflatten(0, (len(image), n))


@dataclass(frozen=True)
class Blur(MethodConfig):
    """Marks where the image plus one random number per sample is bright. It cannot be trained."""

    method: ClassVar[str] = "blur"
    spread: float = 0.1
    pause: float = 0.0  # seconds per pass

    def build(self, spec: InputSpec) -> "BlurSegmenter":
        return BlurSegmenter(self, spec)


class BlurSegmenter(Segmenter):
    def __init__(self, config: Blur, spec: InputSpec) -> None:
        super().__init__(config, spec, stride=1)
        self.spread, self.pause = nn.Parameter(torch.tensor(config.spread)), config.pause

    def loss(self, image, masks, generators):
        raise AssertionError("the evaluation does not train")

    def _sample(self, image, n, request):
        time.sleep(self.pause)
        if image.shape[1] != 1:
            raise ValueError(f"image: expected 1 channels, found {image.shape[1]}")
        level = uniform((len(image), n, 1, 1, 1), request.generators, image)
        marked = image[:, None] + self.spread.detach() * (level - 0.5) > 0.4
        return marked.expand(-1, -1, self.targets, -1, -1)


@dataclass(frozen=True)
class Levels(MethodConfig):
    """Classes by the brightness plus random numbers, one per pixel and one per sample: targets of any kind, images of
    any size and channels, nothing that rounds by the machine. It cannot be trained."""

    method: ClassVar[str] = "levels"
    kinds: ClassVar[tuple[Kind, ...]] = ("independent", "nested", "exclusive")

    def build(self, spec: InputSpec) -> "LevelsSegmenter":
        return LevelsSegmenter(self, spec)


class LevelsSegmenter(Segmenter):
    def __init__(self, config: Levels, spec: InputSpec) -> None:
        super().__init__(config, spec, stride=1)
        self.spread = nn.Parameter(torch.tensor(0.25))

    def loss(self, image, masks, generators):
        raise AssertionError("it does not train")

    def tiled(self, size, overlap):
        return self  # every pixel by itself

    def _sample(self, image, n, request):
        B, _, H, W = image.shape
        own = request.generators
        noise = uniform((B, n, 1, H, W), own, image) + 2 * uniform((B, n, 1, 1, 1), own, image)
        value = image[:, :1, None] + self.spread.detach() * (noise - 1.5)
        inside = torch.cat([value > 0.4 + 0.125 * k for k in range(self.targets)], 2)
        if self.kind == "exclusive":
            inside[:, :, :-1] &= ~inside[:, :, 1:]
        return inside


# --- stores ----------------------------------------------------------------------------------------------------------


def cases_of(names, patients, volumes, splits, raters) -> CaseTable:
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
    """Discs around the centre, each rater with another radius; some raters mark nothing, some cases have fewer."""

    address = "memory"
    notes = ("made for tests",)
    size = (16, 16)
    raters = 4
    channels = ("ct",)

    def __init__(self, count=23, targets=("disc",), seed=0):
        rng = np.random.default_rng(seed)
        self.targets = tuple(targets)
        r, k = self.raters, len(self.targets)
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
        self.input_spec = make_spec(targets=self.targets)

    def __len__(self):
        return len(self.cases)

    def indices(self, split):
        return np.arange(len(self)) if split == "all" else np.flatnonzero(self.cases.split == split)

    def read(self, indices):
        return self.images[indices].astype(np.float32), self.masks[indices]

    read_stored = read


def make_store(folder: Path, train=13, val=5, size=16, raters=3) -> Path:
    """A store on the disk: bright squares on a dark ground; each rater marks them a little larger."""
    from berdiff.data.prepare import prepare

    rng = np.random.default_rng(0)
    with h5py.File(folder / "data.hdf5", "w") as file:
        for split, count in (("train", train), ("val", val), ("test", 2)):
            if not count:
                continue
            images = rng.integers(0, 80, (count, size, size), dtype=np.uint8)
            labels = np.zeros((count, size, size, raters), np.uint8)
            for i, (row, column) in enumerate(rng.integers(2, size - 8, (count, 2))):
                images[i, row : row + 5, column : column + 5] += 150
                for r in range(raters):
                    labels[i, row : row + 4 + r, column : column + 4 + r, r] = 1
            group = file.create_group(split)
            group["images"], group["labels"] = images, labels
            group["uids"] = [f"{split}-{i}".encode() for i in range(count)]
    prepare("lidc-hdf5", folder / "data.hdf5", folder / "store.zarr")
    return folder / "store.zarr"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def real(config, spec=None) -> Segmenter:
    """A method with weights that do something."""
    torch.manual_seed(0)
    model = config.build(spec or make_spec())
    for p in model.parameters():
        if not p.any():
            nn.init.normal_(p, std=0.2)
    model.masks_per_pass = 4
    return model.eval()


def volume_generators(seed, keys, n, rho) -> list[Source]:
    """Of each of n samples of the slices of a volume, each following itself from slice to slice."""
    before, out = None, []
    for z, key in enumerate(keys):
        before = follow(sample_generators(seed, [key], n), before, rho, z + 1 < len(keys))
        out += before
    return out

"""16 masks of one image in 10 steps, everything included: the network that reads the image once, against the paper's
way. Goals: at most one pass of the paper's 85.6 M U-Net at 128x128 (16 masks of it are 160 passes), and a tenth of the
paper-faithful `small`. Beside it `own`: the bundled `lidc` as it is (hurdle, fewer steps, views), goal half a pass, and
a pool of 64 of its masks, goal one and a half."""

from collections.abc import Callable

import torch

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.sampler import Sampler
from berdiff.memory import keep_freed_memory
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.methods.folder import load
from reproduce.side_by_side import durations, see_every_mask

SAMPLES, POOL, TEN = 16, 64, Sampler(steps=10)


def sample16_vs_paper_pass() -> dict[str, float]:
    """Against a single pass of the paper's network: one mask, one step."""
    keep_freed_memory()
    jobs = _one_pass("paper-128", 128), _job("fast", 128), _bundled_job(SAMPLES), _bundled_job(POOL)
    paper, ten, own, pool = durations(*jobs, repeats=5)
    return {
        "sample16_seconds": ten,
        "paper_pass_seconds": paper,
        "sample16_vs_paper_pass": ten / paper,
        "sample16_own_vs_paper_pass": own / paper,
        "sample64_own_vs_paper_pass": pool / paper,
    }


def sample16_vs_small_unet() -> dict[str, float]:
    """Against the same job by the paper's architecture, as narrow as two cores can train it."""
    keep_freed_memory()
    out = {}
    for size, name in ((128, "sample16_vs_small_unet"), (64, "sample16_vs_small_unet_64")):
        small, ours = durations(_job("small", size), _job("fast", size))
        out[name] = ours / small
    return out


def _prepared(preset: str, size: int) -> DiffusionSegmenter:
    """As `methods.folder.load` makes it."""
    segmenter = BerDiff(preset, prediction="mask").build(InputSpec((size, size), ("ct",), ("nodule",)))
    return segmenter.to(memory_format=torch.channels_last).eval()


def _job(preset: str, size: int) -> Callable[[], object]:
    model = _prepared(preset, size)
    image, generator = torch.rand(1, 1, size, size), torch.Generator().manual_seed(0)
    return lambda: model.sample(image, SAMPLES, generator, TEN)


def _bundled_job(samples: int) -> Callable[[], object]:
    """One pass for all of a 128x128 image, not tiles of the 64x64 that it was trained at."""
    model, image, generator = load("lidc"), torch.rand(1, 1, 128, 128), torch.Generator().manual_seed(0)
    return lambda: model.sample(image, samples, generator, callback=see_every_mask)


def _one_pass(preset: str, size: int) -> Callable[[], object]:
    network = _prepared(preset, size).network
    image, y_t = torch.rand(1, 1, size, size), torch.randint(2, (1, 1, 1, size, size)).float()

    @torch.no_grad()
    def run() -> None:
        network.denoise(y_t, torch.tensor([[500]]), network.encode(image))

    return run

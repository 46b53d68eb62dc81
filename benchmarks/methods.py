"""16 masks of one image by every compared method, at the size and with the network and sampler of its recipe for two
cores, over one pass of the paper's 85.6 M U-Net at the same size. Fresh weights: only PixelSeg's cost depends on them.

Seconds of the processor, not of the clock: single moments of a shared machine do not count."""

import time
from collections.abc import Callable
from statistics import median

import torch

from berdiff.data.input_spec import InputSpec
from berdiff.memory import keep_freed_memory
from berdiff.methods.berdiff import BerDiff
from berdiff.recipes import RECIPES
from reproduce.side_by_side import see_every_mask
from reproduce.tables.methods import BRATS_COMPARED, LIDC_COMPARED
from reproduce.tables.spec import TableRow

SAMPLES, REPEATS = 16, 3
LIDC = InputSpec((64, 64), ("ct",), ("nodule",))
BRATS = InputSpec((128, 128), ("t1", "t1ce", "t2", "flair"), ("whole_tumour",))


def lidc_masks_vs_paper_pass() -> dict[str, float]:
    """Table 3's methods at 64x64."""
    return _ratios(LIDC_COMPARED, LIDC)


def brats_masks_vs_paper_pass() -> dict[str, float]:
    """Table 4's methods at 128x128; those with one answer give it once for all samples."""
    return _ratios(BRATS_COMPARED, BRATS)


def _ratios(rows: tuple[TableRow, ...], spec: InputSpec) -> dict[str, float]:
    keep_freed_memory()
    whole = _paper_pass(spec)
    return {f"masks16_{row.recipe}_vs_pass": _cpu_seconds(_masks(row, spec)) / _cpu_seconds(whole) for row in rows}


def _masks(row: TableRow, spec: InputSpec) -> Callable[[], object]:
    torch.manual_seed(0)
    segmenter = RECIPES[f"{row.recipe}-cpu"].config.model.build(spec).to(memory_format=torch.channels_last).eval()
    image = torch.rand(1, len(spec.channels), *spec.size)
    return lambda: segmenter.sample(image, SAMPLES, torch.Generator().manual_seed(0), callback=see_every_mask)


def _paper_pass(spec: InputSpec) -> Callable[[], object]:
    network = BerDiff("paper-128").build(spec).to(memory_format=torch.channels_last).eval().network
    image, y_t = torch.rand(1, len(spec.channels), *spec.size), torch.zeros(1, 1, 1, *spec.size)

    @torch.no_grad()
    def run() -> None:
        network.denoise(y_t, torch.tensor([[500]]), network.encode(image))

    return run


def _cpu_seconds(run: Callable[[], object]) -> float:
    """The median over a few runs, after one that does not count."""
    run()
    times = []
    for _ in range(REPEATS):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return median(times)

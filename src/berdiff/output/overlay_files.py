"""Which overlays a result has: all targets together, and the contours of each."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from berdiff.inference.result import Result
from berdiff.metrics import more_than
from berdiff.output.captions import notes_line
from berdiff.output.colours import LEVELS, legend
from berdiff.output.overlay import overlay
from berdiff.output.tiles import Tile, contours_tile, masks_tile, picture_bytes
from berdiff.output.views import clearest_channel, close_up, fullest_slice

Place = tuple[int, ...]  # (slice,) of a volume, () of a 2D image
Files = Iterator[tuple[str, bytes]]  # (name, content)


def by_target(targets: Sequence[str], name: str) -> list[str]:
    """A file's name for each target, safe on any file system; one target needs none in it."""
    if len(targets) == 1:
        return [name]
    safe = [re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.") or "target" for target in targets]
    alike = len({target.lower() for target in safe}) < len(safe)
    return [f"{name}-{k}-{target}" if alike else f"{name}-{target}" for k, target in enumerate(safe, 1)]


def overlay_files(result: Result) -> Files:
    """Of a volume, every slice with an outline on it; where there is none, the one with most of the finding."""
    part, count = close_up(result).result, len(result.targets)
    channel = clearest_channel(part.image, part.pool)
    image, on = result.image[channel], f", on channel {channel + 1}" if len(result.image) > 1 else ""
    if count > 1:
        majority = result.majority()
        where = "it is the likeliest class" if result.kind == "exclusive" else "more than half of the samples mark it"

        def together(place: Place, name: str) -> Tile:
            tile = masks_tile(f"{name}: each target where {where}{on}", image[place], majority[:, *place], result.kind)
            return replace(tile, key=legend(result.targets))

        yield from _slices(result, "overlay", majority.max(axis=0), together)
    for k, name in enumerate(by_target(result.targets, "overlay")):
        saliency, words = result.saliency[k], f"{result.targets[k]}, outlined where more than this share of the samples"

        def own(place: Place, name: str, k: int = k, saliency: np.ndarray = saliency, words: str = words) -> Tile:
            return contours_tile(f"{name}: {words} mark it{on}", image[place], saliency[place], k, count)

        yield from _slices(result, name, more_than(saliency, LEVELS[0]), own)


def _slices(result: Result, name: str, marked: np.ndarray, tile: Callable[[Place, str], Tile]) -> Files:
    """`marked` ([Z,] H, W) is what is outlined; `tile` makes it of a place and of the words for that place."""
    places: list[tuple[str, Place, str]] = [(f"{name}.png", (), "")]
    if result.volume:
        found = np.flatnonzero(marked.any(axis=(-2, -1)))
        slices = found if len(found) else [fullest_slice(result)]
        places = [(f"{name}/slice-{z:04d}.png", (int(z),), f", slice {z}") for z in slices]
    for file, place, where in places:
        yield file, picture_bytes(overlay(tile(place, f"{result.name}{where}"), result.aspect, notes_line(result)))

"""Which overlays a result has: all targets together, and the contours of each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from berdiff.inference.result import Result
from berdiff.metrics import more_than
from berdiff.output.captions import notes_line
from berdiff.output.colours import LEVELS, legend
from berdiff.output.formats import Files, Output
from berdiff.output.pictures import overlay
from berdiff.output.tiles import Tile, contours_tile, masks_tile, picture_bytes
from berdiff.output.views import Plane, close_up, fullest_slice
from berdiff.targets.kinds import ANSWERS


def by_target(targets: Sequence[str], name: str) -> list[str]:
    """A file's name for each target, safe on any file system; one target needs none in it."""
    if len(targets) == 1:
        return [name]
    safe = [re.sub(r"[^A-Za-z0-9.]+", "-", target).strip("-.") or "target" for target in targets]
    alike = len({target.lower() for target in safe}) < len(safe)
    return [f"{name}-{k}-{target}" if alike else f"{name}-{target}" for k, target in enumerate(safe, 1)]


def overlay_files(output: Output) -> Files:
    """A volume has one for every slice with an outline; without any outline, for the slice that is marked most."""
    result, count = output.result, len(output.result.targets)
    channel = close_up(result).channel
    on = f", on channel {channel + 1}" if len(result.image) > 1 else ""

    def picture(tile: Tile) -> bytes:
        return picture_bytes(overlay(tile, result.grid.aspect, notes_line(result)))

    if count > 1:
        majority = result.majority()
        where = ANSWERS[result.kind]
        for name, plane in _planes(result, "overlay", majority.max(axis=0)):
            title, masks = f"{result.name}{plane.words}: each target where {where}{on}", majority[:, *plane.at]
            tile = masks_tile(title, plane.whole[channel], plane.placed(masks))
            yield name, picture(replace(tile, key=legend(result.targets)))
    for k, stem in enumerate(by_target(result.targets, "overlay")):
        words = f"{result.targets[k]}, outlined where more than this share of the samples mark it{on}"
        for name, plane in _planes(result, stem, more_than(result.saliency[k], LEVELS[0])):
            title, saliency = f"{result.name}{plane.words}: {words}", result.saliency[k][plane.at]
            yield name, picture(contours_tile(title, plane.whole[channel], plane.placed(saliency), k, count))


def _planes(result: Result, name: str, marked: np.ndarray) -> Iterator[tuple[str, Plane]]:
    """The files of a name, and the slices in which anything is `marked` ([Z,] H, W)."""
    if not result.volume:
        yield f"{name}.png", Plane(result, ())
        return
    slices = np.flatnonzero(marked.any(axis=(-2, -1)))
    for z in slices if len(slices) else [fullest_slice(result)]:
        yield f"{name}/slice-{result.grid.first + z:04d}.png", Plane(result, (int(z),))

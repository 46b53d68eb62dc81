"""Prepared stores, joined into one: PATH and those of `--also`, each with the splits it has.

Their images must look alike: the same size, channels, targets and intensity rule. No case may be in two of them, and no
patient in two splits. So a set with machine labels, all of it for training, can be added to one with human labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.describe import expect
from berdiff.data.store import Store

CHUNK = 64  # cases read together


@dataclass(frozen=True)
class Options:
    """What to join."""

    also: tuple[Path, ...] = ()  # Further stores, after the first.


def read(path: Path, options: Options) -> Reading:
    stores = [Store.open(folder) for folder in (path, *options.also)]
    first = stores[0]
    for other in stores[1:]:
        for name, here, there in _differences(first, other):
            expect(False, other.address, f"the {name} of {first.address}, {here}", there, "conflict")
    return Reading(
        channels=first.channels,
        targets=first.targets,
        kind=first.input_spec.kind,
        intensity=first.input_spec.intensity,
        raters=max(store.raters for store in stores),
        size=first.size,
        dtype=first.manifest.dtype,
        modality=first.input_spec.modality if len({store.input_spec.modality for store in stores}) == 1 else "unknown",
        crops=all(store.input_spec.crops for store in stores),
        total=sum(map(len, stores)),
        cases=(case for store in stores for case in _cases(store)),
        notes=tuple(dict.fromkeys(chain.from_iterable(store.notes for store in stores))),
    )


def _differences(first: Store, other: Store) -> Iterator[tuple[str, object, object]]:
    """(what, in the first, in the other) of whatever every case of a store must have in common."""
    ours, theirs = (replace(store.input_spec, source="", notes=()) for store in (first, other))
    for name in ("size", "channels", "targets", "kind", "intensity"):
        if getattr(ours, name) != getattr(theirs, name):
            yield name, getattr(ours, name), getattr(theirs, name)
    if first.manifest.dtype != other.manifest.dtype:
        yield "type of values", first.manifest.dtype, other.manifest.dtype


def _cases(store: Store) -> Iterator[Case]:
    table = store.cases
    for start in range(0, len(store), CHUNK):
        indices = np.arange(start, min(start + CHUNK, len(store)))
        for i, image, masks in zip(indices, *store.read_stored(indices), strict=True):
            row, column = table.spacing[i].tolist()
            yield Case(
                name=str(table.case[i]),
                patient=str(table.patient[i]),
                image=image,
                masks=masks[: table.raters[i]],
                volume=str(table.volume[i]),
                spacing=(row, column),
                source=str(table.source[i]),
                split=str(table.split[i]),
            )

"""BraTS 2020 as Kaggle has it: an HDF5 file per slice, volume_VOLUME_slice_NUMBER.h5, by the paper's rules.

Each file holds `image` (240, 240, 4), floats, and `mask` (240, 240, 3) of 0 and 1; meta_data.csv beside them lists
volumes and slices. The rules are those of the source `brats`: the slices of a volume, which is a patient, without the
bottom 80 and the top 26, and the same targets.

What the files do not say, and what is done here:
- The sequences are flair, t1, t1ce, t2 and the masks necrotic core, edema, enhancing tumour: so they come out of the
  NIfTI files of BraTS 2020. Some public code takes the sequences in another order: `--order`.
- Rows and columns are exchanged, as the files' first axis is NIfTI's x: slices are upright then, as `brats` has them.
- Intensities: each sequence of each slice was brought to mean 0 and deviation 1, background included, so the scale
  of the whole scan is lost. From minimum to maximum (minmax) undoes it: of the scan's own slice it gives the same.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import h5py
import numpy as np

from berdiff.data.case import Reading
from berdiff.data.csv_table import read_csv
from berdiff.data.describe import check, expect
from berdiff.data.images import binary
from berdiff.data.input_spec import Intensity
from berdiff.data.limits import check_size
from berdiff.data.numbers import finite
from berdiff.data.paths import add_once, expect_folder, files_under
from berdiff.data.sources import brats
from berdiff.data.sources.brats_layouts import ENHANCING, GRID_DEPTH, SEQUENCES, FoundCase, Scan
from berdiff.data.sources.hdf5_file import named_dataset, open_hdf5, rows_of
from berdiff.targets.targets import Targets

_FILE = re.compile(r"volume_(?P<volume>\d+)_slice_(?P<number>\d+)\.h5")
Slices = dict[int, Path]  # number of a slice -> its file
METADATA = ("meta_data.csv", "BraTS20 Training Metadata.csv")
CODES = {"labels": (0, 1, 2, ENHANCING), "regions": (0, 2, 1, ENHANCING)}  # of none, and of each of a mask's channels


@dataclass(frozen=True)
class Options(brats.Rules):
    """The paper's rules, each as an option."""

    order: tuple[brats.Sequence, ...] = ("flair", "t1", "t1ce", "t2")  # The sequences of the files, in their order.
    masks: Literal["labels", "regions"] = "labels"
    """What the channels of a mask are: necrotic core, edema, enhancing tumour, one per pixel; or whole tumour, tumour
    core, enhancing tumour, each inside the one before it."""

    def check(self) -> None:
        super().check()
        complete = sorted(self.order) == sorted(SEQUENCES)
        expect(complete, "order", f"each of {', '.join(SEQUENCES)} once", " ".join(self.order))


def read(path: str | Path, options: Options) -> Reading:
    """Open a folder of slices, which may lie at any depth: names are checked here, headers and pixels as they come."""
    root = Path(path)
    volumes, notes = _find(root, options)
    size = _size(next(iter(volumes.values())))
    found = [_case(root, volume, slices, size, options) for volume, slices in volumes.items()]
    total = sum(map(len, volumes.values()))
    return brats.reading_of(found, Intensity("minmax", field=max(size)), total, notes, root, options)


def _find(root: Path, options: Options) -> tuple[dict[int, Slices], list[str]]:
    """volume -> number of a slice -> file, of the slices to keep, and notes; meta_data.csv says which there must be."""
    expect_folder(root, "a folder of volume_VOLUME_slice_NUMBER.h5")
    files: dict[int, Slices] = defaultdict(dict)
    listed: dict[Path, dict[int, set[int]]] = {}
    for path in files_under(root):
        if match := _FILE.fullmatch(path.name):
            add_once(files[int(match["volume"])], int(match["number"]), path)
        elif path.name in METADATA:
            listed[path] = _listed(path)
    expect(files, root, "files called volume_VOLUME_slice_NUMBER.h5")
    kept = range(options.bottom, GRID_DEPTH - options.top)
    volumes = {
        volume: {number: slices[number] for number in sorted(slices) if number in kept}
        for volume, slices in sorted(files.items())
    }
    for table, numbers in listed.items():
        for volume, slices in volumes.items():
            missing = sorted(numbers.get(volume, set()).intersection(kept) - set(slices))
            expected = f"every slice that it lists of volume {volume} (or no such table)"
            named = [f"volume_{volume}_slice_{number}.h5" for number in missing]
            expect(not missing, table, expected, f"no {', '.join(named[:3])}", "missing")
    volumes = {volume: slices for volume, slices in volumes.items() if slices}
    expect(volumes, root, f"slices between the bottom {options.bottom} and the top {options.top}")
    absent = len(set().union(*listed.values()) - set(files))
    return volumes, [f"{absent} volumes of the table are not in the folder"] if absent else []


def _listed(path: Path) -> dict[int, set[int]]:
    """volume -> the numbers of its slices, as the table says."""
    listed: dict[int, set[int]] = defaultdict(set)
    _, lines = read_csv(path, ("volume", "slice"))
    for where, row, _ in lines:
        volume, number = row.get("volume", ""), row.get("slice", "")
        numbers = volume.isdecimal() and number.isdecimal() and len(volume) < 10 and len(number) < 10
        expect(numbers, where, "whole numbers in the columns volume and slice", f"{volume!r} and {number!r}")
        listed[int(volume)].add(int(number))
    return listed


def _case(root: Path, volume: int, slices: Slices, size: tuple[int, int], options: Options) -> FoundCase:
    name, source = f"volume_{volume}", next(iter(slices.values())).parent.relative_to(root).as_posix()
    load = partial(_load, slices, size, options)
    return FoundCase(name, "", source, list(slices), GRID_DEPTH, load, planar=True)


def _load(slices: Slices, size: tuple[int, int], options: Options, sequences: tuple[str, ...]) -> Scan:
    """The slices of one volume, upright."""
    order = [options.order.index(sequence) for sequence in sequences]
    images, labels = [], []
    for path in slices.values():
        with open_hdf5(path) as file:
            image = _read(file, path, "image", (*size, 4), "f")
            mask = _read(file, path, "mask", (*size, 3), "uib")
        images.append(finite(image, path).T[order].astype(np.float32))  # (C, columns, rows) as stored
        labels.append(_labels(binary(mask, str(path)).T, path, options))
    return np.stack(images, axis=1), np.stack(labels), (1.0, 1.0)


def _labels(mask: np.ndarray, path: Path, options: Options) -> np.ndarray:
    """(3, H, W) of 0 and 1 -> (H, W) of BraTS' labels."""
    channels = Targets(tuple(brats.TARGETS[options.masks]), "exclusive" if options.masks == "labels" else "nested")
    wrong = channels.violation(mask[None])
    check(not wrong, f"{path}: {wrong}, which --masks {options.masks} does not allow", "conflict")
    values = np.arange(1, 4, dtype=np.uint8)[:, None, None]  # innermost wins
    return np.array(CODES[options.masks], np.uint8)[(mask * values).max(0)]


def _size(slices: Slices) -> tuple[int, int]:
    """That of the first slice, which all others must have."""
    path = next(iter(slices.values()))
    with open_hdf5(path) as file:
        dataset = named_dataset(file, "image", path)
        shape = dataset.shape
        height, width, channels = shape if dataset.ndim == 3 else (0, 0, 0)
    expect(channels == 4 and height * width, f"{path}: image", "(H, W, 4)", shape, "shape")
    check_size(path, shape, 4)
    return height, width


def _read(file: h5py.File, path: Path, name: str, shape: tuple[int, ...], kinds: str) -> np.ndarray:
    """A dataset, once its header is as expected."""
    dataset = named_dataset(file, name, path)
    fits, found = dataset.shape == shape and dataset.dtype.kind in kinds, f"{dataset.shape} of {dataset.dtype}"
    expect(fits, f"{path}: {name}", f"{shape} of {'floats' if kinds == 'f' else 'integers'}", found, "shape")
    return rows_of(dataset, f"{path}: {name}")

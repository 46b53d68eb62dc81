"""Anyone's HDF5 file: images and labels as datasets, in groups that are splits, or at the root.

Without options it expects, in each of the groups train, val and test, or else at the root:
- `images`: (N, C, H, W) or (N, H, W), of integers or floats; `--channels-last` for (N, H, W, C)
- `labels`: (N, H, W) of integers, or with a channel per rater, (N, H, W, R) or (N, R, H, W)
- `uids`: (N,), the patient of each image. Splits are by patient, and Dice by volume takes a patient for a volume
- `slices`: (N,), if there, the number of the slice in its scan

Other names are given by options; one that begins with / is looked up at the root. Cases are named UID_NUMBER.

Several targets are values of the labels: `--labels liver=1 tumour=2` are exclusive, at most one per pixel, and
`--labels wt=1,2,4 tc=1,4 et=4`, each inside the one before it, are nested. `--kind` says otherwise, and every case is
checked against it. Values that are not declared are refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from berdiff.data.case import Case, Reading
from berdiff.data.describe import decoding, expect, some_values
from berdiff.data.fitting import Fit, fit_image, fit_labels, fit_spacing
from berdiff.data.images import binary
from berdiff.data.input_spec import Intensity, Kind, Side
from berdiff.data.intensity import to_unit
from berdiff.data.numbers import finite
from berdiff.data.reading import UNKNOWN
from berdiff.data.sources.folder_names import ONLY
from berdiff.data.sources.hdf5_file import open_hdf5
from berdiff.data.sources.hdf5_layout import Group, LayoutOptions, Row, find_groups
from berdiff.targets.kinds import TargetValues, implied_kind, label_values

OWN_PATIENT = "each image counts as a patient of its own, as --uids None says"
Millimetres = Annotated[float, Gt(0)]


@dataclass(frozen=True)
class Options(LayoutOptions):
    """How the file is laid out, and what to make of it."""

    channels: tuple[str, ...] = ()  # A name for each channel, such as t1 t1ce t2 flair.
    labels: tuple[str, ...] = ()
    """Targets by their value or values in the labels, such as liver=1 tumour=2, or wt=1,2,4 tc=1,4 et=4. Without it,
    the labels hold 0 and 1, or 0 and 255: one target."""
    kind: Kind | None = None
    """How targets may lie: anyhow (independent), each inside the one before it (nested), at most one per pixel
    (exclusive). Without it, --labels decide."""
    drop_empty: bool = False  # Leave out images that no rater marked.
    size: tuple[Side, Side] | None = None  # Height and width of the prepared slices. Without it, as in the file.
    fit: Fit = "crop"
    """How to get to --size: crop the centre, with zeros around a smaller image, or resize (masks: nearest pixel)."""
    spacing: tuple[Millimetres, Millimetres] | None = None
    """Millimetres from row to row and from column to column, before --size."""
    window: tuple[float, float] | None = None  # The values that become 0 and 1, such as Hounsfield units -1000 400.
    scale: Literal["auto", "dtype", "percentiles", "brain", "minmax"] = "auto"
    """Without a window: by the range of the 8- or 16-bit type, by the percentiles of each image, or by those of its
    pixels other than 0 (brain), or by its minimum and maximum. Auto takes the type where it is such a one, and else
    percentiles."""
    tails: Annotated[float, Ge(0), Lt(50)] = 1.0
    """Percent of the values to clip at each end, for percentiles and brain."""
    scaled: bool = False
    """The file was made by --window or --scale: its values, 8 bits or floats in [0, 1], stay as they are, and a model
    applies that rule to new scans."""

    def check(self) -> None:
        super().check()
        one_rule = self.window is None or self.scale == "auto"
        expect(one_rule, "window", "no --scale beside it", f"--scale {self.scale}", "conflict")
        self.intensity((1, 1)).check()

    def intensity(self, size: tuple[int, ...]) -> Intensity:
        rule = self.scale if self.window is None else "window"
        field = max(size) if rule == "minmax" else None  # of a crop out of a scan, the crop alone was looked at
        return Intensity(rule, self.window, self.tails, field)


def read(path: Path, options: Options) -> Reading:
    """Open an HDF5 file: names, shapes, types and raters are checked here, pixels as the cases come."""
    values = label_values(options.labels)
    file = open_hdf5(path)
    with decoding(path, "a whole HDF5 file"):
        groups = find_groups(file, options)
    layouts = {f"{group.dtype} {group.shape}" for group in groups}
    expect(len(layouts) == 1, path, "images of one type and size in all groups", " and ".join(sorted(layouts)), "shape")
    (channels, *size), dtype = groups[0].shape, groups[0].dtype
    names = options.channels or (("image",) if channels == 1 else tuple(f"channel{i}" for i in range(channels)))
    expect(len(set(names)) == channels, "--channels", f"{channels} different names", " ".join(names), "name")
    intensity = options.intensity((size[0], size[1]))
    by_type = intensity.rule != "dtype" or dtype in (np.uint8, np.uint16)
    expect(by_type, f"{path}: {options.images}", "unsigned 8- or 16-bit values for --scale dtype", dtype, "kind")
    scalable = not options.scaled or dtype == np.uint8 or dtype.kind == "f"
    expect(scalable, f"{path}: {options.images}", "8-bit values, or floats in [0, 1], for --scaled", dtype, "kind")
    eight_bit = dtype == np.uint8 and (options.scaled or intensity.rule in ("auto", "dtype"))
    rule = None if options.scaled or eight_bit else intensity
    return Reading(
        channels=names,
        targets=tuple(values) or (ONLY,),
        kind=options.kind or implied_kind(values),
        intensity=intensity,
        raters=max((len(row.raters) for group in groups for row in group.rows), default=1),
        size=options.size or (size[0], size[1]),
        dtype="uint8" if eight_bit else "float32",
        total=sum(len(group.rows) for group in groups) if not options.drop_empty else None,
        cases=(case for group in groups for case in _cases(group, path, values, rule, options)),
        notes=(OWN_PATIENT,) if options.uids is None else (),
    )


def _cases(group: Group, path: Path, values: TargetValues, rule: Intensity | None, options: Options) -> Iterator[Case]:
    """The images of one group; without a rule their values stay as they are."""
    _, height, width = group.shape
    size = options.size or (height, width)
    spacing = fit_spacing(options.spacing or UNKNOWN, (height, width), size, options.fit)
    rows = enumerate(group.rows)
    for images, labels in group.blocks():
        for image, of_raters in zip(images, labels, strict=True):
            i, row = next(rows)
            source = f"{group.name or '/'}[{i}]"
            where = f"{path}: case {row.name!r} ({source})"
            masks = _masks(of_raters, row, values, where)
            if options.drop_empty and not masks.any():
                continue
            fitted = fit_image(_values(image, rule, where), size, options.fit), fit_labels(masks, size, options.fit)
            yield Case(row.name, row.patient, *fitted, row.patient, spacing, source, group.split)


def _values(image: np.ndarray, rule: Intensity | None, where: str) -> np.ndarray:
    """(C, H, W) as stored -> uint8 as stored, or float32."""
    image = finite(image, where)
    if rule is not None:
        return to_unit(image[:, None], rule, where, planar=True, forced=True)[:, 0]
    return image if image.dtype == np.uint8 else image.astype(np.float32)


def _masks(labels: np.ndarray, row: Row, values: TargetValues, where: str) -> np.ndarray:
    """(channels, H, W) labels -> (R, K, H, W) uint8 of 0 and 1; other values than declared are refused."""
    beyond = f"zeros in the channels after its {row.count} raters"
    expect(not labels[row.count :].any(), where, beyond, "more masks", "conflict")
    labels = labels[row.raters]
    if not values:
        return binary(labels, where)[:, None]
    declared, found = [0, *sorted(set(chain.from_iterable(values.values())))], np.unique(labels)
    expect(np.isin(found, declared).all(), where, f"the labels {', '.join(map(str, declared))}", some_values(found))
    return np.stack([np.isin(labels, of_target) for of_target in values.values()], axis=1).astype(np.uint8)

"""Anyone's images and masks, known by their names.

These names need no options:
- `images/CASE.png`: an image per case
- `masks/CASE.png`: one rater
- `masks/CASE_RATER.png` or `masks/RATER/CASE.png`: several raters
- `masks/CASE_RATER_TARGET.png` or `masks/RATER/TARGET/CASE.png`: several raters and targets
- `train/images/...`, `train/masks/...`, and so on for val and test: a split, which is kept

Instead of .png: .jpg, .tif, .nii, .nii.gz, .dcm, .npy (an array (H, W), (H, W, 3), or slices (Z, H, W)), and for
volumes also a folder CASE/ of DICOM slices. Images may lie in folders (images/PATIENT/SCAN.png with
masks/PATIENT/SCAN.png): the case is then PATIENT/SCAN. Other names are given by templates, `--mask-name
"{target}/{case}"`, or, for several channels in several files like nnU-Net's CASE_0000, `--image-name
"{case}_{channel}"`.

`notes/...json`, named as its mask in `masks/` is, may hold the slices of a volume that a rater looked at
(`{"slices": [7]}`): in the others there is no mask by this rater, and a slice without any rater is no case.
`berdiff view --corrections` writes such notes.

Several targets are files of their own by those names, or values of one mask: `--labels liver=1 tumour=2` are
exclusive, at most one per pixel; lists of values overlap as they are meant to, and `--labels wt=1,2,4 tc=1,4 et=4`,
each inside the one before it, are nested. `--kind` says otherwise, and every mask is checked against it.

Volumes become axial slices, upright whatever way they were stored; a mask must lie where its image does.
The patient, by whom splits are made, is what `--patient` finds in the case, or what `--table` holds, or else the
first folder of the case, or else the case itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
from annotated_types import Ge, Lt

from berdiff.data.apply import at_spacing, resample, resample_masks
from berdiff.data.case import Case, Reading
from berdiff.data.csv_table import read_case_list
from berdiff.data.describe import by, check, expect, refusing, some_values
from berdiff.data.dicom import is_dicom, read_header
from berdiff.data.fitting import Fit, fit_image, fit_labels, fit_spacing
from berdiff.data.image import Grid, Image, check_same_place
from berdiff.data.input_spec import Intensity, Kind, Millimetres, Modality, Side
from berdiff.data.intensity import to_unit
from berdiff.data.paths import expect_folder, files_under
from berdiff.data.reading import Outline, kind_of, outline, read_image, read_labels
from berdiff.data.sources.folder_names import NOTES, ONLY, FoundCase, find_cases
from berdiff.schema import Settings
from berdiff.targets.kinds import TargetValues, implied_kind, label_values

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601, as Pillow's own conversion
OWN_PATIENT = "each case counts as a patient of its own, as neither --patient nor --table said otherwise"


@dataclass(frozen=True)
class CaseOptions(Settings):
    """What to make of images and masks, however they are called."""

    patient: str | None = None
    """A regular expression that finds the patient in a case's name: its first group, or else all it matches."""
    table: Path | None = None  # A CSV file with the columns case, patient and perhaps split.
    kind: Kind | None = None
    """How targets may lie: anyhow (independent), each inside the one before it (nested), at most one per pixel
    (exclusive). Without it, the values of the labels decide; targets in files of their own are independent."""
    drop_empty: bool = False  # Leave out slices without any target.
    size: tuple[Side, Side] | None = None
    """Height and width of the prepared slices. Without it, all must have one size."""
    fit: Fit = "crop"
    """How to get to --size: crop the centre, with zeros around a smaller image, or resize (masks: nearest pixel)."""
    SINCE_0_3: ClassVar[tuple[str, ...]] = ("spacing",)
    spacing: tuple[Millimetres, Millimetres] | None = None
    """Resample to so many mm per row and column, where the files state their own; models that are trained on it
    resample what they segment. Without it, pixels are taken as they come."""
    window: tuple[float, float] | None = None  # The values that become 0 and 1, such as Hounsfield units -1000 400.
    scale: Literal["auto", "dtype", "percentiles"] = "auto"
    """Without a window: by the range of the 8- or 16-bit type, or by each image's or volume's percentiles. Auto
    takes the type for pictures and percentiles for volumes and floats."""
    tails: Annotated[float, Ge(0), Lt(50)] = 1.0  # Percent of the values to clip at each end, for percentiles.

    def check(self) -> None:
        rises = self.window is None or self.window[0] < self.window[1]
        expect(rises, "window", "a lower and a higher value", self.window)
        one_rule = self.window is None or self.scale == "auto"
        expect(one_rule, "window", "no --scale beside it", f"--scale {self.scale}", "conflict")
        expect(self.spacing is None or self.size is not None, "spacing", "a --size beside it", code="conflict")
        expect(self.patient is None or self.table is None, "patient", "no --table beside it", "both", "conflict")

    def intensity(self) -> Intensity:
        return Intensity("window" if self.window else self.scale, self.window, self.tails)


@dataclass(frozen=True)
class Options(CaseOptions):
    """How the folder is laid out, and what to make of it."""

    images: str = "images"  # Folder of the images, inside the source folder.
    masks: str = "masks"  # Folder of the masks, inside the source folder.
    image_name: str = "{case}"
    """How images are called, without suffix: {case}, and {channel} if each channel is a file."""
    mask_name: str | None = None
    """How masks are called, without suffix, of {case}, {rater}, {target}. Without it, the usual names are tried."""
    foreground: tuple[int, ...] = ()
    """The values that mean foreground in a mask. Without it, a mask may hold 0 and one other value."""
    labels: tuple[str, ...] = ()
    """Targets by their value or values in one mask, such as liver=1 tumour=2, or wt=1,2,4 tc=1,4 et=4."""
    targets: tuple[str, ...] = ()
    """Where the files' names hold targets: all of them in the order that is wanted, nested ones outermost first."""
    threshold: float | None = None  # What is above it is foreground, for masks that were saved lossily (JPG: 127).
    missing_raters: bool = False  # Let a case have fewer raters than others.
    grey: bool = False  # Turn colour images to grey.


def read(path: str | Path, options: Options) -> Reading:
    """Open a folder of images and masks: names and headers are checked here, pixels as the cases come."""
    root = Path(path)
    expect_folder(root)
    values = _target_values(options)
    found = find_cases(root, options.images, options.masks, options.image_name, options.mask_name)
    found = _with_patients(found, options)
    raters = sorted({rater for case in found for rater in case.masks})
    targets = _targets(found, options)
    _check_complete(found, raters, targets, options)
    outlines = _outlines(found, options)
    annotated = [_annotated(case, outline) for case, outline in zip(found, outlines, strict=True)]
    total = sum(map(len, annotated))
    expect(total, root / NOTES, "a slice that a rater looked at")
    first, kind = outlines[0], options.kind or implied_kind(values)
    colours = ("red", "green", "blue") if first.channels == 3 else ("image",)
    scalable = options.window is None and options.spacing is None and options.scale != "percentiles"
    eight_bit = scalable and all(case.eight_bit for case in outlines)
    notes = () if options.patient or options.table or any("/" in case.name for case in found) else (OWN_PATIENT,)
    return Reading(
        channels=tuple(sorted(found[0].images)) if len(found[0].images) > 1 else colours,
        targets=tuple(values) if targets == [ONLY] else tuple(targets),
        kind=kind,
        intensity=options.intensity(),
        raters=len(raters),
        size=options.size or first.size,
        dtype="uint8" if eight_bit else "float32",
        modality=_modality(found[0].image, options),
        spacing=options.spacing,
        total=total if not options.drop_empty else None,
        cases=(
            one
            for case, slices in zip(found, annotated, strict=True)
            for one in _cases(case, slices, root, targets, values, eight_bit, kind, options)
        ),
        notes=notes,
    )


def _modality(path: Path, options: Options) -> Modality:
    """By the first image's kind of file, and of DICOM by its header; a window below air is of Hounsfield units."""
    kind = kind_of(path)
    if kind == "dicom":
        first = path if path.is_file() else next(filter(is_dicom, files_under(path)))
        stated = {"CT": "ct", "MR": "mr"}.get(read_header(first).modality, "unknown")
        return cast(Modality, stated)
    if options.window is not None and options.window[0] <= -200:
        return "ct"
    return "picture" if kind == "png" else "unknown"


def _target_values(options: Options) -> TargetValues:
    """By --foreground, --labels or --threshold, of which there may be one; no values: 0 and any one other."""
    given = bool(options.foreground) + bool(options.labels) + (options.threshold is not None)
    expect(given <= 1, "--foreground, --labels, --threshold", "one of them at most", "several", "conflict")
    expect(0 not in options.foreground, "--foreground", "values other than 0, which is background", "0")
    return label_values(options.labels) or {ONLY: options.foreground}


def _targets(found: list[FoundCase], options: Options) -> list[str]:
    """Those in the files' names, by name or as --targets orders them."""
    targets = sorted({target for case in found for files in case.masks.values() for target in files})
    in_one_file = not options.labels or targets == [ONLY]
    expect(in_one_file, "--labels", "masks with all targets in one file", "targets in the files' names too", "conflict")
    if not options.targets:
        return targets
    wanted = f"each of {', '.join(targets)} once"
    expect(sorted(options.targets) == targets, "--targets", wanted, ", ".join(options.targets), "name")
    return list(options.targets)


def _with_patients(found: list[FoundCase], options: Options) -> list[FoundCase]:
    """Every case with its patient, and with the split that --table holds, if any."""
    listed = read_case_list(options.table, {case.name for case in found}) if options.table else {}
    with refusing((re.error,), "--patient", "a regular expression", f"{options.patient!r}", "value"):
        pattern = re.compile(options.patient or "[^/]+")  # else the first folder, or the case itself
    cases = []
    for case in found:
        match = pattern.search(case.name)
        by_name = match[1 if pattern.groups else 0] if match else ""
        patient, split = listed.get(case.name, (by_name, ""))
        expect(patient, "--patient", f"{options.patient!r} to find a patient in {case.name!r}")
        cases.append(replace(case, patient=patient, split=split or case.split))
    return cases


def _check_complete(found: list[FoundCase], raters: list[str], targets: list[str], options: Options) -> None:
    """Every case has the channels of the first, every rater (unless --missing-raters), and each rater every target."""
    for case in found:
        which = f"for the case {case.name!r}"
        expected, shown = (", ".join(sorted(one.images)) for one in (found[0], case))
        expect(expected == shown, case.image, f"the channels {expected} {which}", shown, "missing")
        for rater in raters:
            allowed = rater in case.masks or options.missing_raters
            check(allowed, f"{case.image}: no mask of the rater {rater!r} {which} (see --missing-raters)", "missing")
            for target in targets if rater in case.masks else ():
                wanted = f"a mask of the target {target!r} by the rater {rater!r} {which}"
                expect(target in case.masks[rater], case.image, wanted)


def _outlines(found: list[FoundCase], options: Options) -> list[Outline]:
    """The outline of each case. Those of its channels must agree, and those of all cases but for what --size mends."""
    outlines: list[Outline] = []
    for case in found:
        parts = [outline([path]) for path in case.images.values()]
        whole = parts[0]
        for path, part in zip(case.images.values(), parts, strict=True):
            same = (part.slices, part.size) == (whole.slices, whole.size)
            expect(same, path, f"{by(whole.size)} pixels like the case's other channels", by(part.size), "shape")
            grey = options.grey or len(parts) == 1 or part.channels == 1
            expect(grey, path, "a grey image where each channel is a file", "colour (see --grey)", "kind")
        channels = 1 if options.grey else whole.channels
        outlines.append(replace(whole, channels=channels, eight_bit=all(part.eight_bit for part in parts)))
        first, like = outlines[0], "like the first image"
        fits = options.size is not None or whole.size == first.size
        expect(fits, case.image, f"{by(first.size)} pixels {like}", f"{by(whole.size)} (see --size)", "shape")
        fits = channels == first.channels
        expect(fits, case.image, f"{first.channels} channel(s) {like}", f"{channels} (see --grey)", "shape")
    return outlines


def _annotated(case: FoundCase, outline: Outline) -> dict[int, list[int]]:
    """slice -> which of the raters, in the order of their names, looked at it: without the slices of none."""
    every, raters = range(outline.slices or 1), sorted(case.masks)
    for rater, slices in case.looked_at.items():
        fits = slices <= set(every)
        check(fits, f"{case.image}: notes of {rater!r} on slices beyond 0 to {every[-1]}", "place")
    looked = {z: [r for r, rater in enumerate(raters) if z in case.looked_at.get(rater, every)] for z in every}
    return {z: who for z, who in looked.items() if who}


def _cases(
    case: FoundCase,
    annotated: dict[int, list[int]],
    root: Path,
    targets: list[str],
    values: TargetValues,
    eight_bit: bool,
    kind: Kind,
    options: Options,
) -> Iterator[Case]:
    """The annotated slices of one image or volume, with the masks of those who looked at them."""
    paths = [case.images[channel] for channel in sorted(case.images)]
    files = [read_image(path) for path in paths]
    first = files[0]
    for other in files[1:]:
        check_same_place(first, other)
    channels = [_values(file, path, eight_bit, options) for file, path in zip(files, paths, strict=True)]
    image = np.concatenate(channels)  # (C, Z, H, W)
    by_rater = [
        [_masks(read_labels(files[target], first), files[target], values, options.threshold) for target in targets]
        for _, files in sorted(case.masks.items())
    ]
    masks = np.stack([np.concatenate(of_targets) for of_targets in by_rater])  # (R, K, Z, H, W)
    grid = first.grid
    if options.spacing is not None:
        known = np.isfinite(grid.spacing[-2:]).all()
        expect(known, paths[0], "an image that states its spacing, for --spacing", "none", "missing")
        if (other := at_spacing(grid, options.spacing)) is not None:
            image, masks, grid = resample(image, grid, other), _masks_at(masks, grid, other, kind), other
    height, width = masks.shape[3:]
    volume, source = case.name.replace("/", "_"), paths[0].relative_to(root).as_posix()
    size = options.size or (height, width)
    spacing = fit_spacing(grid.spacing[-2:], (height, width), size, options.fit)
    for z, raters in annotated.items():
        if options.drop_empty and not masks[raters, :, z].any():
            continue
        fitted = fit_image(image[:, z], size, options.fit), fit_labels(masks[raters, :, z], size, options.fit)
        name, part_of = (volume, "") if first.grid.planar else (f"{volume}_{z:03d}", volume)
        yield Case(name, case.patient, *fitted, part_of, spacing, source, case.split)


def _masks_at(masks: np.ndarray, grid: Grid, other: Grid, kind: Kind) -> np.ndarray:
    """(R, K, Z, H, W), Z of a picture being 1."""
    if not grid.planar:
        return resample_masks(masks, grid, other, kind)
    return resample_masks(masks[:, :, 0], grid, other, kind)[:, :, None]


def _masks(labels: np.ndarray, path: Path, values: TargetValues, threshold: float | None) -> np.ndarray:
    """(Z, H, W) of any values -> (K, Z, H, W) uint8 of 0 and 1; other values than declared are refused."""
    if threshold is not None:
        return (labels > threshold)[None].astype(np.uint8)
    found, declared = np.unique(labels), sorted(set(chain.from_iterable(values.values())))
    if declared:
        expected, fits = ", ".join(map(str, declared)), np.isin(found, [0, *declared]).all()
    else:
        expected = "one other value (see --foreground, --labels and, for JPG, --threshold)"
        fits = len(found) - (0 in found) <= 1 and found[0] >= 0
    expect(fits, path, f"the values 0 and {expected}", some_values(found))
    return np.stack([np.isin(labels, one) if one else labels != 0 for one in values.values()]).astype(np.uint8)


def _values(file: Image, path: Path, eight_bit: bool, options: Options) -> np.ndarray:
    """(C, Z, H, W) as stored where all is `eight_bit`, else float32 in [0, 1], the colours of a file together."""
    values, kind = file.values, file.values.dtype
    if options.grey and len(values) > 1:
        values = np.tensordot(_LUMA, values.astype(np.float32), axes=1)[None]
        values = values if kind.kind == "f" else np.rint(values).astype(kind)
    if eight_bit:
        return values
    fits = options.scale != "dtype" or kind in (np.uint8, np.uint16)
    expect(fits, path, "unsigned 8- or 16-bit values for --scale dtype", kind, "kind")
    rule, planar, stack = options.intensity(), file.grid.planar, file.stack
    return to_unit(values, rule, str(path), planar=planar, stack=stack, colour=True, forced=True)

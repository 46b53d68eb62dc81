"""Anyone's images and masks, told apart by their names.

These names need no options:
- `images/CASE.png`: an image a case
- `masks/CASE.png`: one rater
- `masks/CASE_RATER.png` or `masks/RATER/CASE.png`: several raters
- `masks/CASE_RATER_TARGET.png` or `masks/RATER/TARGET/CASE.png`: several raters and targets
- `train/images/...`, `train/masks/...`, and so on for val and test: a split, which is kept

Instead of .png: .jpg, .tif, .nii, .nii.gz, .dcm, .npy (an array (H, W), (H, W, 3), or slices (Z, H, W)), and for
volumes also a folder CASE/ of DICOM slices. Images may lie in folders (images/PATIENT/SCAN.png with
masks/PATIENT/SCAN.png): the case is then PATIENT/SCAN. Other names are told by templates, `--mask-name
"{target}/{case}"`, or, for several channels in several files like nnU-Net's CASE_0000, `--image-name
"{case}_{channel}"`.

Volumes become axial slices, upright whatever way they were stored; a mask must lie where its image does.
The patient, by whom splits are made, is what `--patient` finds in the case, or what `--table` says, or else the
first folder of the case, or else the case itself.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from berdiff.data.case import Case, Reading
from berdiff.data.fitting import Fit, fit_image, fit_labels, fit_spacing
from berdiff.data.sources.case_list import Listed, read_case_list
from berdiff.data.sources.folder_files import Outline, Pixels, outline, read_labels, read_pixels
from berdiff.data.sources.folder_masks import MaskRule, mask_rule
from berdiff.data.sources.folder_names import ONLY, FoundCase, find_cases
from berdiff.data.volumes import check_same_place
from berdiff.errors import InputError

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601, as Pillow's own conversion
OWN_PATIENT = "each case counts as a patient of its own, as neither --patient nor --table said otherwise"


@dataclass(frozen=True)
class Options:
    """How the folder is laid out, and what to make of it."""

    images: str = "images"
    """Folder of the images, inside the source folder."""
    masks: str = "masks"
    """Folder of the masks, inside the source folder."""
    image_name: str = "{case}"
    """How images are called, without suffix: {case}, and {channel} if each channel is a file."""
    mask_name: str | None = None
    """How masks are called, without suffix, of {case}, {rater}, {target}. Without it, the usual names are tried."""
    patient: str | None = None
    """A regular expression that finds the patient in a case's name: its first group, or else all it matches."""
    table: Path | None = None
    """A CSV file with the columns case, patient and perhaps split."""
    foreground: tuple[int, ...] = ()
    """The values that mean foreground in a mask. Without it, a mask may hold 0 and one other value."""
    labels: tuple[str, ...] = ()
    """Targets by their value in one mask, such as liver=1 tumour=2."""
    threshold: float | None = None
    """What is above it is foreground, for masks that were saved lossily (JPG: 127)."""
    missing_raters: bool = False
    """Let a case have fewer raters than others."""
    drop_empty: bool = False
    """Leave out slices that no rater marked."""
    size: tuple[int, int] | None = None
    """Height and width of the prepared slices. Without it, all must have one size."""
    fit: Fit = "crop"
    """How to get to --size: crop the centre, with zeros around a smaller image, or resize (masks: nearest pixel)."""
    grey: bool = False
    """Turn colour images to grey."""
    window: tuple[float, float] | None = None
    """The values that become 0 and 1, such as Hounsfield units -1000 400."""
    scale: Literal["auto", "dtype", "percentiles"] = "auto"
    """Without a window: by the range of the 8- or 16-bit type, or by each image's or volume's percentiles. Auto
    takes the type for pictures and percentiles for volumes and floats."""
    tails: float = 1.0
    """Percent of the values to clip at each end, for percentiles."""


def read(path: str | Path, options: Options) -> Reading:
    """Open a folder of images and masks: names and headers are checked here, pixels as the cases come."""
    root = Path(path)
    if not root.is_dir():
        raise InputError(f"{root}: expected a folder, found {'a file' if root.exists() else 'nothing'}")
    _check(options)
    rule = mask_rule(options.foreground, options.labels, options.threshold)
    found = find_cases(root, options.images, options.masks, options.image_name, options.mask_name)
    listed = _listed(found, options)
    raters = sorted({rater for case in found for rater in case.masks})
    targets = sorted({target for case in found for of in case.masks.values() for target in of})
    if options.labels and targets != [ONLY]:
        raise InputError("--labels: expected masks with all targets in one file, found targets in the files' names too")
    _check_complete(found, raters, targets, options)
    outlines = {case.name: _outline(case, found[0], options) for case in found}
    first = outlines[found[0].name]
    for case in found:
        _check_like(case, outlines[case.name], first, options)
    if len(found[0].images) > 1:
        channels = tuple(sorted(found[0].images))
    else:
        channels = ("red", "green", "blue") if first.channels == 3 else ("image",)
    eight_bit = (
        options.window is None and options.scale != "percentiles" and all(of.eight_bit for of in outlines.values())
    )
    notes = () if options.patient or options.table or any("/" in case.name for case in found) else (OWN_PATIENT,)
    return Reading(
        channels=channels,
        targets=tuple(rule.targets) if targets == [ONLY] else tuple(targets),
        raters=len(raters),
        size=options.size or first.size,
        dtype="uint8" if eight_bit else "float32",
        total=sum(of.slices or 1 for of in outlines.values()) if not options.drop_empty else None,
        cases=_cases(root, found, listed, rule, eight_bit, options),
        notes=notes,
    )


def _check(options: Options) -> None:
    if options.size is not None and min(options.size) < 1:
        raise InputError(f"--size: expected two positive numbers, found {options.size[0]} {options.size[1]}")
    if options.window is not None and not options.window[0] < options.window[1]:
        raise InputError(f"--window: expected a lower and a higher value, found {options.window}")
    if options.window is not None and options.scale != "auto":
        raise InputError(f"--window: expected no --scale beside it, found --scale {options.scale}")
    if not 0 <= options.tails < 50:
        raise InputError(f"--tails: expected a percentage from 0 to below 50, found {options.tails:g}")
    if options.patient is not None and options.table is not None:
        raise InputError("--patient: expected no --table beside it, found both")


def _listed(found: list[FoundCase], options: Options) -> dict[str, Listed]:
    """Patient and split of every case."""
    if options.table is not None:
        listed = read_case_list(options.table, {case.name for case in found})
        return {case.name: replace(of, split=of.split or case.split) for case in found for of in (listed[case.name],)}
    if options.patient is None:
        return {case.name: Listed(case.name.split("/")[0], case.split) for case in found}
    try:
        pattern = re.compile(options.patient)
    except re.error as error:
        raise InputError(f"--patient: expected a regular expression, found {options.patient!r} ({error})") from error
    listed = {}
    for case in found:
        match = pattern.search(case.name)
        patient = match and (match[1] if pattern.groups else match[0])
        if not patient:
            raise InputError(f"--patient: expected {options.patient!r} to find a patient in {case.name!r}, found none")
        listed[case.name] = Listed(patient, case.split)
    return listed


def _check_complete(found: list[FoundCase], raters: list[str], targets: list[str], options: Options) -> None:
    """Every case has the channels of the first, every rater (unless told otherwise), and of each rater every target."""
    for case in found:
        image = next(iter(case.images.values()))
        if case.images.keys() != found[0].images.keys():
            expected, shown = (", ".join(sorted(of.images)) for of in (found[0], case))
            raise InputError(f"{image}: expected the channels {expected} for the case {case.name!r}, found {shown}")
        for rater in raters:
            of_rater = case.masks.get(rater)
            if of_rater is None and not options.missing_raters:
                raise InputError(
                    f"{image}: expected a mask of the rater {rater!r} for the case {case.name!r}, found none "
                    "(--missing-raters allows it)"
                )
            for target in targets:
                if of_rater is not None and target not in of_rater:
                    raise InputError(
                        f"{image}: expected a mask of the target {target!r} by the rater {rater!r} for the case "
                        f"{case.name!r}, found none"
                    )


def _outline(case: FoundCase, first: FoundCase, options: Options) -> Outline:
    """The common outline of a case's channels, which must agree."""
    outlines = [outline(path) for path in case.images.values()]
    for path, of in zip(case.images.values(), outlines, strict=True):
        if (of.slices, of.size) != (outlines[0].slices, outlines[0].size):
            raise InputError(
                f"{path}: expected {outlines[0].size} pixels like the case's other channels, found {of.size}"
            )
        if len(first.images) > 1 and of.channels > 1 and not options.grey:
            raise InputError(f"{path}: expected a grey image where each channel is a file, found colour (see --grey)")
    channels = 1 if options.grey else outlines[0].channels
    return replace(outlines[0], channels=channels, eight_bit=all(of.eight_bit for of in outlines))


def _check_like(case: FoundCase, found: Outline, first: Outline, options: Options) -> None:
    path = next(iter(case.images.values()))
    if options.size is None and found.size != first.size:
        expected, shown = (f"{size[0]}x{size[1]}" for size in (first.size, found.size))
        raise InputError(f"{path}: expected {expected} pixels like the first image, found {shown} (see --size)")
    if found.channels != first.channels:
        raise InputError(
            f"{path}: expected {first.channels} channel(s) like the first image, found {found.channels} (see --grey)"
        )


def _cases(
    root: Path, found: list[FoundCase], listed: dict[str, Listed], rule: MaskRule, eight_bit: bool, options: Options
) -> Iterator[Case]:
    """One image or volume in memory at a time, with its masks."""
    for case in found:
        channels = [_pixels(case.images[channel], options) for channel in sorted(case.images)]
        first = channels[0]
        for other in channels[1:]:
            if first.volume is not None and other.volume is not None:
                check_same_place(first.volume, other.volume)
        limits = [None if eight_bit else _limits(channel, options) for channel in channels]
        masks = np.stack(
            [
                np.concatenate([rule.apply(read_labels(of[target], first), of[target]) for target in sorted(of)])
                for _, of in sorted(case.masks.items())
            ]
        )  # (R, K, Z, H, W)
        depth, *old = masks.shape[2:]
        name = case.name.replace("/", "_")
        size = options.size or (old[0], old[1])
        for z in range(depth):
            if options.drop_empty and not masks[:, :, z].any():
                continue
            planes = [_scaled(channel.values[:, z], of) for channel, of in zip(channels, limits, strict=True)]
            yield Case(
                name=name if first.planar else f"{name}_{z:03d}",
                patient=listed[case.name].patient,
                image=fit_image(np.concatenate(planes), size, options.fit),
                masks=fit_labels(masks[:, :, z], size, options.fit),
                volume="" if first.planar else name,
                spacing=fit_spacing(first.spacing, (old[0], old[1]), size, options.fit),
                source=first.path.relative_to(root).as_posix(),
                split=listed[case.name].split,
            )


def _pixels(path: Path, options: Options) -> Pixels:
    pixels = read_pixels(path)
    if not options.grey or len(pixels.values) == 1:
        return pixels
    grey = np.tensordot(_LUMA, pixels.values.astype(np.float32), axes=1)[None]
    stored = pixels.values.dtype
    return replace(pixels, values=grey if stored.kind == "f" else np.rint(grey).astype(stored))


def _limits(pixels: Pixels, options: Options) -> tuple[float, float]:
    """The values of an image or volume that become 0 and 1."""
    if options.window is not None:
        return options.window
    unsigned = pixels.values.dtype in (np.uint8, np.uint16)
    if options.scale == "dtype" and not unsigned:
        raise InputError(
            f"{pixels.path}: expected unsigned 8- or 16-bit values for --scale dtype, found {pixels.values.dtype}"
        )
    if options.scale == "dtype" or (options.scale == "auto" and unsigned and pixels.volume is None):
        return 0.0, float(np.iinfo(pixels.values.dtype).max)
    low, high = np.percentile(pixels.values, (options.tails, 100 - options.tails))
    if high <= low:
        raise InputError(
            f"{pixels.path}: expected values that differ, found {low:g} at both percentiles (see --window and --tails)"
        )
    return float(low), float(high)


def _scaled(image: np.ndarray, limits: tuple[float, float] | None) -> np.ndarray:
    """float32 in [0, 1], or 8-bit values as they are."""
    if limits is None:
        return image
    low, high = limits
    return np.clip((image.astype(np.float32) - np.float32(low)) / np.float32(high - low), 0, 1)

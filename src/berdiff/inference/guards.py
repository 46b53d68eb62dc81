"""Is it an image that the model can know? What cannot be is refused, or with --force segmented with a warning."""

from collections.abc import Sequence
from fnmatch import fnmatch

import numpy as np

from berdiff.data.describe import by
from berdiff.data.image import Image
from berdiff.data.input_spec import InputSpec, Range, Size
from berdiff.errors import InputError

LABEL_FILES = ("*_seg", "*_seg[-_.]*", "*_segmentation*", "mask-*", "label*")  # names, without suffix
LABEL_FOLDERS = ("mask-*", "labels*")
FEW_VALUES = 8  # different whole numbers, the background among them: a scan has more
MUCH_LARGER = 1.5  # times the side of the images of training
AIR = -900.0  # HU
WORDS = {"ct": "a CT", "mr": "an MR", "picture": "a picture"}


class LabelFile(InputError):
    """Masks or labels, where an image was expected; among the files of a folder it is only left out."""


def called_label(parts: Sequence[str]) -> bool:
    """By the parts of its path, the last one without suffix."""
    *folders, name = (part.lower() for part in parts)
    by_name = any(fnmatch(name, pattern) for pattern in LABEL_FILES)
    return by_name or any(fnmatch(folder, pattern) for folder in folders for pattern in LABEL_FOLDERS)


def refused(what: str, sentence: str, force: bool, kind: type[InputError] = InputError) -> tuple[str, ...]:
    """The sentence as a warning with `force`, else as an error."""
    if not force:
        raise kind(f"{what}: {sentence} (--force segments it all the same)")
    return (sentence,)


def check_file(
    file: Image, spec: InputSpec, what: str, force: bool, windowed: bool = False, label: bool = False
) -> tuple[str, ...]:
    """Warnings of a file as a whole. `windowed`: the user has named a window; `label`: it is called like a mask."""
    about = trained(spec)
    found: tuple[str, ...] = ()
    if label:
        found += refused(what, f"its name is that of a mask or label file; {about}", force, LabelFile)
    if spec.modality in ("ct", "mr") and _has_few_values(file.values):
        found += refused(what, f"a mask or label file by its few different values; {about}", force, LabelFile)
    if file.modality == "picture" and spec.modality in ("ct", "mr"):
        if not spec.hounsfield or windowed:
            return (*found, f"a picture does not say what it is of; {about}")
        if file.values.dtype != np.uint8:
            return found + refused(what, f"a picture, whose values are no Hounsfield units; {about}", force)
        low, high = spec.intensity.window or (0, 0)
        return (*found, f"a picture has no Hounsfield units: it is taken for a CT shown from {low:g} to {high:g} HU")
    if spec.modality == "ct" and file.modality == "unknown" and file.source.kind == "nifti":
        return (*found, f"its values do not look like those of a CT; {about}")
    return found + check_modality(file.modality, spec, what, force, stated=file.source.kind == "dicom")


def check_modality(modality: str, spec: InputSpec, what: str, force: bool, stated: bool) -> tuple[str, ...]:
    if "unknown" in (modality, spec.modality) or modality == spec.modality:
        return ()
    found = WORDS.get(modality, f"DICOM of the modality {modality.upper()}")
    return refused(what, f"{'this is' if stated else 'looks like'} {found}; {trained(spec)}", force)


def trained(spec: InputSpec) -> str:
    return f"the model was trained on {spec.trained_on}"


def check_region(ranges: Sequence[Range], size: Size, spec: InputSpec, what: str, force: bool) -> tuple[str, ...]:
    """`ranges`: what will be segmented; `size`: what the network sees at once, both in pixels of the image."""
    sides = tuple(last - first for first, last in ranges[-2:])
    if not spec.crops or all(side <= MUCH_LARGER * size for side, size in zip(sides, size[-2:], strict=True)):
        return ()
    sentence = f"much larger ({by(sides)} pixels) than what the model was trained on: {spec.trained_on}"
    advice = "; point at it with --center, or give --candidates or --centers"
    return refused(what, sentence + ("" if force else advice), force)


def nothing_to_see(values: np.ndarray, ct: bool) -> tuple[str, ...]:
    """Of the values in a region, as stored."""
    low, high = values.min(), values.max()
    if low == high:
        return (f"nothing to see: all values in the region are {low:g}",)
    return (f"nothing to see: all values in the region are below {AIR:g} HU, as of air",) if ct and high < AIR else ()


def _has_few_values(values: np.ndarray) -> bool:
    """Whether these are 0, the background, and a few other whole numbers, as of labels."""
    low, high = values.min(), values.max()
    if not (low == 0 and 0 < high <= 255):
        return False
    some = values.reshape(-1)[:: max(1, values.size // 2**16)]  # most images are settled by a glance
    if len(np.unique(some)) > FEW_VALUES or (some % 1).any():
        return False
    found = np.unique(values)
    return len(found) <= FEW_VALUES and not (found % 1).any()

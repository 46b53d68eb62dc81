"""What the values in a mask mean: which are foreground, of which target."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from berdiff.data.sources.folder_names import ONLY
from berdiff.errors import InputError


@dataclass(frozen=True)
class MaskRule:
    """How label values become binary masks."""

    targets: dict[str, tuple[int, ...]]  # target -> its values; no values: 0 and any one other
    threshold: float | None

    def apply(self, labels: np.ndarray, path: Path) -> np.ndarray:
        """(Z, H, W) of any values -> (K, Z, H, W) uint8 of 0 and 1; other values than declared are refused."""
        if self.threshold is not None:
            return (labels > self.threshold)[None].astype(np.uint8)
        found = np.unique(labels)
        declared = [value for values in self.targets.values() for value in values]
        if not declared:
            if len(found) - (0 in found) > 1 or found[0] < 0:
                _refuse(path, "0 and one other value (see --foreground, --labels and, for JPG, --threshold)", found)
            return (labels != 0)[None].astype(np.uint8)
        if not np.isin(found, [0, *declared]).all():
            _refuse(path, f"0 and {', '.join(map(str, declared))}", found)
        return np.stack([np.isin(labels, values) for values in self.targets.values()]).astype(np.uint8)


def mask_rule(foreground: tuple[int, ...], labels: tuple[str, ...], threshold: float | None) -> MaskRule:
    """The rule that --foreground, --labels or --threshold tell, of which there may be one."""
    if (bool(foreground) + bool(labels) + (threshold is not None)) > 1:
        raise InputError("--foreground, --labels, --threshold: expected one of them at most, found several")
    if 0 in foreground:
        raise InputError("--foreground: expected values other than 0, which is background, found 0")
    if not labels:
        return MaskRule({ONLY: foreground}, threshold)
    targets: dict[str, tuple[int, ...]] = {}
    for text in labels:
        name, _, value = text.partition("=")
        if not name or not value.isdecimal() or int(value) == 0 or name in targets or (int(value),) in targets.values():
            raise InputError(f"--labels: expected different names and values such as liver=1 tumour=2, found {text!r}")
        targets[name] = (int(value),)
    return MaskRule(targets, None)


def _refuse(path: Path, expected: str, found: np.ndarray) -> None:
    shown = ", ".join(f"{value:g}" for value in found[:6]) + (", ..." if len(found) > 6 else "")
    raise InputError(f"{path}: expected the values {expected}, found {shown}")

"""How several targets may lie to each other: what breaks a declared kind, and the kind of targets in one label map."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from berdiff.data.describe import expect
from berdiff.data.input_spec import Kind

TargetValues = dict[str, tuple[int, ...]]  # target -> its values in a label map
RULES: dict[Kind, str] = {
    "independent": "each may lie anywhere",
    "nested": "each lies inside the one before it",
    "exclusive": "at most one per pixel",
}


def breach(masks: np.ndarray, targets: Sequence[str], kind: Kind) -> str:
    """What of masks (R, K, H, W) breaks the kind, in words that go after "found"; "" where nothing does.

    Of several pairs of targets the worst one is named; pixels are counted over all raters.
    """
    if kind == "exclusive" and (masks.sum(1) > 1).any():
        of = {(a, b): np.count_nonzero(masks[:, a] & masks[:, b]) for a, b in combinations(range(len(targets)), 2)}
        words = "{count} pixels of both {a} and {b}"
    elif kind == "nested" and (masks[:, 1:] > masks[:, :-1]).any():
        of = {(a, b): np.count_nonzero(masks[:, b] > masks[:, a]) for a, b in pairwise(range(len(targets)))}
        words = "{count} pixels of {b} outside {a}"
    else:
        return ""
    a, b = max(of, key=lambda pair: of[pair])
    return words.format(count=of[a, b], a=targets[a], b=targets[b])


def label_values(labels: Sequence[str]) -> TargetValues:
    """What `--labels liver=1 tumour=2` or `--labels wt=1,2,4 tc=1,4 et=4` says."""
    targets: TargetValues = {}
    for text in labels:
        name, _, listed = text.partition("=")
        values = tuple(sorted(int(value) if value.isdecimal() else 0 for value in listed.split(",")))
        different = name and 0 not in values and name not in targets and values not in targets.values()
        expect(different, "--labels", "different names and values such as liver=1 tumour=2 or wt=1,2,4", f"{text!r}")
        targets[name] = values
    return targets


def implied_kind(values: TargetValues) -> Kind:
    """The kind of targets that are sets of values in ONE label map, outermost first where they are nested.

    No value twice: exclusive. Each set inside the one before it: nested. One target alone has nothing to lie to.
    """
    sets = [set(of_target) for of_target in values.values()]
    if len(sets) < 2:
        return "independent"
    if sum(map(len, sets)) == len(set().union(*sets)):
        return "exclusive"
    return "nested" if all(inner < outer for outer, inner in pairwise(sets)) else "independent"

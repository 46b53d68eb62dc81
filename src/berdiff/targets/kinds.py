"""How several targets may lie to each other, and which kind the values of a label map imply. No torch, no numpy."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from berdiff.errors import InputError

Kind = Literal["independent", "nested", "exclusive"]
TargetValues = dict[str, tuple[int, ...]]  # target -> its values in a label map
RULES: dict[Kind, str] = {
    "independent": "each may lie anywhere",
    "nested": "each lies inside the one before it",
    "exclusive": "at most one per pixel",
}
LABELS: dict[Kind, str] = {  # what a value of their label map means; independent targets have none
    "nested": "a pixel has the value of the innermost target around it: target k is where the value is k or more",
    "exclusive": "a pixel has the value of its one target",
}
MAJORITY = "more than half of the samples mark it"
ANSWERS: dict[Kind, str] = {  # where the one mask of many samples has a target
    "independent": MAJORITY,
    "nested": MAJORITY,
    "exclusive": "it is the likeliest class",
}


def label_values(labels: Sequence[str]) -> TargetValues:
    """What `--labels liver=1 tumour=2` or `--labels wt=1,2,4 tc=1,4 et=4` says."""
    targets: TargetValues = {}
    for text in labels:
        name, _, listed = text.partition("=")
        values = tuple(sorted(int(value) if value.isdecimal() else 0 for value in listed.split(",")))
        if not name or 0 in values or name in targets or values in targets.values():
            expected = "different names and values such as liver=1 tumour=2 or wt=1,2,4"
            raise InputError(f"--labels: expected {expected}, found {text!r}")
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

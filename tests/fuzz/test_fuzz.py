"""A small share of the fuzzer, the same in every run: no traceback, crash, hang, half-written result or request."""

from collections import Counter

from fuzz.__main__ import fuzz, table
from fuzz.seeds import SEEDS


def test_a_share_of_the_damaged_inputs():
    outcomes = fuzz(8 * len(SEEDS), seed=0, formats=list(SEEDS))
    faults = [f"{one['number']} {one['format']}, {one['what']}: {fault}" for one in outcomes for fault in one["faults"]]
    assert not faults
    assert Counter(one["format"] for one in outcomes) == dict.fromkeys(SEEDS, 8)
    assert sum(one["refused"] for one in outcomes) > len(outcomes) / 4  # most damage is seen
    assert "| all | 104 |" in table(outcomes)

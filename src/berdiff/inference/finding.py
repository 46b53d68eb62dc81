"""A finding: one of the places in an input that are segmented, each by itself."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from berdiff.inference.inputs import Input
from berdiff.inference.opening import ReadInput


class Finding(NamedTuple):
    name: str
    center: tuple[int, ...] = ()  # (z, y, x) of the upright volume, or (y, x)
    error: str = ""  # why it cannot be segmented


class FindingSource(Protocol):
    """Where findings come from."""

    kind: str

    def choose(self, inputs: Sequence[Input], every: bool) -> list[Input]:
        """Those inputs that have findings; `every`: the given ones are all there are, so others are unknown."""
        ...

    def asked(self, item: Input) -> Any:
        """What decides the findings of an input, in plain JSON types."""
        ...

    def find(self, item: Input, read: ReadInput) -> list[Finding]:
        """At least one."""
        ...

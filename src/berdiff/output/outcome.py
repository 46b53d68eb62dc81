"""What became of the inputs of a segmentation."""

from dataclasses import dataclass, field, fields, replace
from typing import Any


@dataclass
class Outcome:
    """Of inputs, or of their findings. `measurements` are of those segmented now, not of those found done."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # name -> the sentence
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)  # what people call them, where that is not the name
    warnings: dict[str, list[str]] = field(default_factory=dict)

    @property
    def counts(self) -> str:
        """How many, in words."""
        return f"{len(self.done)} segmented, {len(self.skipped)} found done, {len(self.failed)} failed"

    def __repr__(self) -> str:
        return "\n".join([f"Outcome: {self.counts}", *(f"  {sentence}" for sentence in self.failed.values())])

    def add(self, other: "Outcome") -> None:
        for one in fields(self):
            ours, theirs = getattr(self, one.name), getattr(other, one.name)
            ours.update(theirs) if isinstance(ours, dict) else ours.extend(theirs)

    def ordered(self, order: dict[str, int]) -> "Outcome":
        """In the order of the inputs, whoever was first."""

        def sort(values: Any) -> Any:
            names = sorted(values, key=lambda name: order.get(name, order.get(name.rpartition("/")[0], len(order))))
            return {name: values[name] for name in names} if isinstance(values, dict) else names

        return replace(self, **{one.name: sort(getattr(self, one.name)) for one in fields(self)})

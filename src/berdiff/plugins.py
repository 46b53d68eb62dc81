"""Methods, networks and sources by name: ours, and those of other packages, which join by entry points.

Nothing is imported before it is asked for, so lists of names cost nothing.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from berdiff.errors import InputError


class Registry:
    """The members of an entry-point group, such as `berdiff.methods`: name -> "module:attribute" or "module"."""

    def __init__(self, group: str, ours: dict[str, str]) -> None:
        self.group, self.ours = group, ours

    def names(self) -> list[str]:
        """All names, ours first, then those of installed packages."""
        return list(dict.fromkeys([*self.ours, *(point.name for point in entry_points(group=self.group))]))

    def load(self, name: str) -> Any:
        """What the name stands for; ours come first, so no package can take a name of ours."""
        if name in self.ours:
            return EntryPoint(name, self.ours[name], self.group).load()
        for point in entry_points(group=self.group, name=name):
            try:
                return point.load()
            except (ImportError, AttributeError) as error:
                what = f"the entry point {point.name} = {point.value} of {point.group}"
                raise InputError(f"{what}: expected something to import, found {error}", "damaged") from error
        kind = self.group.removeprefix("berdiff.").removesuffix("s")
        raise InputError(f"{kind}: expected one of {', '.join(self.names())}, found {name!r}", "name")

"""Tasks: every input, or every finding of it, as one thing to segment, with the name that its result has."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from berdiff import schema
from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff.inference.opening import ReadInput
from berdiff.inference.region import Region
from berdiff.jobs.findings import Finding, FindingSource
from berdiff.output.anonymous import input_name


@dataclass(frozen=True)
class Task:
    """One result to make."""

    item: Input
    place: Region  # of the input, that is segmented
    name: str  # seeds the noise
    case: str  # the folder of the input's results
    sources: list[dict[str, Any]]  # what the input was made of
    finding: Finding | None = None  # as files call it

    @property
    def what(self) -> str:
        """As it is called in a message."""
        return self.item.what + self.name.removeprefix(self.item.name).replace("/", ", ", 1)

    @property
    def folder(self) -> str:
        """Of the result."""
        return self.case if self.finding is None else f"{self.case}/{self.finding.name}"


class Tasks:
    """What the tasks of inputs are; anonymous, they are called by nothing that a user wrote."""

    def __init__(
        self, place: Region, findings: FindingSource | None, anonymous: bool, report: Callable[[str], None]
    ) -> None:
        """`place` is that of every input, or says how a finding's is taken. `report` is told where the results of an
        anonymous input are: no file says it."""
        self.place, self.findings, self.anonymous, self.report = place, findings, anonymous, report
        self._cases = dict[str, str]()

    def of_input(self, item: Input) -> Task:
        """The input as a whole."""
        return Task(item, self.place, item.name, self.case(item), self._sources(item))

    def of_findings(self, item: Input, read: ReadInput) -> list[Task]:
        """At least one; those that cannot be segmented among them."""
        assert self.findings is not None
        case, sources, tasks = self.case(item), self._sources(item), list[Task]()
        for number, finding in enumerate(self.findings.find(item, read), 1):
            place = Region(finding.center, pad=self.place.pad)
            if place.at_place:
                place = replace(place, extent=self.place.extent, slice=self.place.slice)
            shown = finding._replace(name=f"finding-{number}") if self.anonymous else finding
            tasks.append(Task(item, place, f"{item.name}/{finding.name}", case, sources, shown))
        return tasks

    def case(self, item: Input) -> str:
        """The folder of an input's results."""
        if not self.anonymous:
            return item.name
        if item.name not in self._cases:
            self._cases[item.name] = input_name(item)
            self.report(f"{item.name}: results in {self._cases[item.name]}")
        return self._cases[item.name]

    def about(self, item: Input) -> dict[str, Any]:
        """What decides the findings of an input and their results."""
        assert self.findings is not None
        asked = self.findings.asked(item)
        if self.anonymous:  # it names a mask, or holds the user's words
            asked = hashlib.sha256(schema.dump(asked).encode()).hexdigest()
        return {"name": self.case(item), "sources": self._sources(item), "asked": asked}

    def _sources(self, item: Input) -> list[dict[str, Any]]:
        """What an input was made of; a file of another length is another file. Without paths and names, where they are
        to stay unknown: the folder is called by what is in the files."""
        sources: list[dict[str, Any]]
        if item.store is not None:
            sources = [{"path": item.store.address, "case": str(item.store.cases.case[item.index])}]
        elif item.copies is not None:
            addresses = (item.copies.address_of(path) for path in item.paths)
            sources = [{"path": path, "bytes": size} for path, size in zip(addresses, item.sizes, strict=True)]
        else:
            try:
                sources = [{"path": str(path.resolve()), "bytes": path.stat().st_size} for path in item.paths]
            except OSError as error:
                raise InputError(f"{item.what}: the file is gone ({error.strerror or error})", "missing") from error
        return [{"bytes": of.get("bytes")} for of in sources] if self.anonymous else sources

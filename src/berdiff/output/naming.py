"""What inputs and findings are called in the results: by their names, or, anonymous, by nothing that a user wrote."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from berdiff import schema
from berdiff.inference.finding import Finding, FindingSource
from berdiff.inference.inputs import Input
from berdiff.output.anonymous import input_name
from berdiff.output.records import Record, sources_of


class Naming:
    def __init__(self, anonymous: bool, report: Callable[[str], None]) -> None:
        """`report` is told where the results of an anonymous input are: no file says it."""
        self.anonymous, self.report = anonymous, report
        self._names = dict[str, str]()

    def found(self, item: Input, findings: Sequence[Finding]) -> None:
        """These are all findings of an input."""
        self._names |= {f"{item.name}/{one.name}": f"finding-{i}" for i, one in enumerate(findings, 1)}

    def folder(self, item: Input) -> str:
        """Of the results of an input."""
        if not self.anonymous:
            return item.name
        if item.name not in self._names:
            self._names[item.name] = input_name(item)
            self.report(f"{item.name}: results in {self._names[item.name]}")
        return self._names[item.name]

    def shown(self, item: Input, finding: Finding) -> Finding:
        """As it is called in files: a name is the user's word."""
        return finding._replace(name=self._names[f"{item.name}/{finding.name}"]) if self.anonymous else finding

    def record(self, item: Input, finding: Finding | None) -> Record:
        shown = None if finding is None else self.shown(item, finding)
        return Record(self.folder(item), shown, self._sources(item))

    def about(self, item: Input, findings: FindingSource) -> dict[str, Any]:
        """What decides the findings of a case and their results."""
        asked = findings.asked(item)
        if self.anonymous:  # it names a mask, or holds the user's words
            asked = hashlib.sha256(schema.dump(asked).encode()).hexdigest()
        return {"name": self.folder(item), "sources": self._sources(item), "asked": asked}

    def failures(self, failed: dict[str, str]) -> dict[str, str]:
        """Of findings, by their shown names, for files: the sentences name files."""
        return dict.fromkeys(failed, "failed") if self.anonymous else failed

    def _sources(self, item: Input) -> list[dict[str, Any]]:
        """Without paths and names, where they are to stay unknown: the folder is called by what is in the files."""
        sources = sources_of(item)
        return [{"bytes": of.get("bytes")} for of in sources] if self.anonymous else sources

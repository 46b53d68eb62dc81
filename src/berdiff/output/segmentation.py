"""Segment many inputs into a folder: bounded memory, each result whole or not at all, one bad file fails alone.

settings.json      what was asked; another segmentation is refused in the same folder
NAME/              the files of one input, renamed into place when all are written
NAME/FINDING/      with findings, the files of each; NAME/ then has what is common to them (`case_files.py`)
.../done.json      which input and which finding it was, the files, and what tables show of it
cohort.csv, .html  all of them (`cohort.py`)

Several processes share a folder: each takes inputs that no other has claimed (`claims.py`).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

from berdiff import schema
from berdiff.boundary import refusal
from berdiff.claims import Claim, Claims
from berdiff.data.apply import Prepared, covered
from berdiff.display import note
from berdiff.errors import InputError
from berdiff.inference.finding import Finding, FindingSource
from berdiff.inference.guards import LabelFile
from berdiff.inference.inputs import Input, count_slices
from berdiff.inference.model import Model
from berdiff.inference.opening import ReadInput, meant
from berdiff.inference.region import EXTENT, Region
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings, option
from berdiff.output import exports
from berdiff.output.anonymous import anonymous_title
from berdiff.output.case_files import findings_done, write_case
from berdiff.output.cohort import write_cohort
from berdiff.output.destination import open_destination
from berdiff.output.formats import OutputSettings
from berdiff.output.naming import Naming
from berdiff.output.outcome import Outcome

SECONDS_BETWEEN_LOOKS = 0.5  # at inputs that other processes have claimed


class _Image(NamedTuple):
    """A 2D image, or a volume, that is claimed and waits for its turn."""

    item: Input
    opened: Prepared
    claim: Claim


class SegmentationJob:
    """One segmentation of many inputs. The same settings in the same folder resume it."""

    def __init__(
        self,
        model: Model,
        settings: SegmentSettings,
        output: OutputSettings,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        report: Callable[[str], None] = lambda sentence: None,
        findings: FindingSource | None = None,
        cohort: bool = True,
    ) -> None:
        """`progress` gets slices (or findings) done and in all, `report` the sentence of each that fails, at once;
        `cohort`: write the tables of all results at the end.

        Settings that do not fit the model or the folder are refused here.
        """
        schema.check(output, OutputSettings, option)
        asked = {name: value for name, value in asdict(output).items() if name != "out" and value is not False}
        if findings is not None:
            asked["findings"] = findings.kind
            if settings.region.extent is None and not settings.region.slice:
                settings = replace(settings, region=replace(settings.region, extent=EXTENT))
        self.model, self.settings, self.output, self.findings = model, settings, output, findings
        self.progress, self.report = progress, report
        self.cohort, self.naming = cohort, Naming(output.anonymous, report)
        self.work = open_destination(output.out, {**model.identity(settings), **asked}, "segmentation")
        self.claims = Claims(self.work.folder if isinstance(self.work.folder, Path) else None)
        self.outcome = Outcome()
        self._waiting: list[_Image] = []  # 2D images, up to a batch
        self._done, self._slices = 0, dict[str, int]()

    def segment(self, inputs: Sequence[Input]) -> Outcome:
        """2D images go through the network `batch_size` at a time, a volume or a finding by itself; no more is held in
        memory. What other processes have claimed comes last: by then they have done it, or died."""
        count = 1 if self.findings else None  # of each input, as far as is known before it is read
        self._slices = {item.name: count or count_slices(item, self.settings.region) for item in inputs}
        try:
            with self.work:
                left = self._pass(inputs)
                if left:
                    self.report(f"waiting for {len(left)} inputs that other processes are at")
                while left:
                    before, left = len(left), self._pass(left)
                    if len(left) == before:
                        time.sleep(SECONDS_BETWEEN_LOOKS)
                self.finish(self.outcome)
        except OSError as error:  # what cannot be read is an InputError: this is from writing, and stays so
            reason = error.strerror or error
            raise InputError(f"{self.output.out}: expected a folder that can be written, found {reason}") from error
        finally:
            for item in inputs:
                item.release()
        return self.outcome

    def finish(self, outcome: Outcome) -> None:
        """The tables of all results that are there."""
        if self.cohort and (outcome.done or outcome.skipped):
            self.work.begin()  # while its files are written too, nobody may think that he is alone
            write_cohort(self.work.files)

    def _pass(self, inputs: Sequence[Input]) -> list[Input]:
        """Those that another process is at now."""
        left = [item for item in inputs if not self._attempt(item)]
        self._finish_claimed(self._waiting)
        self._waiting = []
        return left

    def _attempt(self, item: Input) -> bool:
        """False where another process is at it."""
        if self._settled(item):
            return True
        if self.claims.taken(item.name):
            return False
        opened = self._open(item)
        if opened is None:
            return True
        self.work.begin()
        claim = self.claims.take(item.name)
        if claim is None:
            return False
        if self._settled(item):  # while it was read here
            claim.release()
        elif isinstance(opened, Prepared) and opened.image.ndim == 4:
            self._finish_claimed([_Image(item, opened, claim)])
        elif isinstance(opened, Prepared):
            self._waiting.append(_Image(item, opened, claim))
            if len(self._waiting) == self.settings.batch_size:
                self._finish_claimed(self._waiting)
                self._waiting = []
        else:
            try:
                self._finish_case(item, *opened)
            finally:
                claim.release()
                item.release()
        return True

    def _settled(self, item: Input) -> bool:
        """Whether there is nothing to do: it is done, or cannot be."""
        try:
            if item.error:
                raise InputError(item.error)
            if self.findings is not None:
                names = findings_done(self.work.files, self.naming.folder(item), self.naming.about(item, self.findings))
                skipped = None if names is None else [f"{item.name}/{name}" for name in names]
            else:
                skipped = [item.name] if self._has(item) else None
        except InputError as error:
            self._fail(item, item.name, error, self._slices[item.name])
            return True
        if skipped is None:
            return False
        self.outcome.skipped += skipped
        self._advance(self._slices[item.name])
        return True

    def _open(self, item: Input) -> Prepared | tuple[ReadInput, list[Finding]] | None:
        """The image, or what was read with its findings; None where that fails."""
        try:
            if self.findings is not None:
                read = self.model.read(item, self.settings)
                found = self.findings.find(item, read)
                self.naming.found(item, found)
                self._slices[item.name] = len(found)
                if not all(one.error for one in found):
                    return read, found
                for one in found:
                    self._fail(item, f"{item.name}/{one.name}", InputError(one.error), 1)
                return None
            opened = self.model.open(item, self.settings)
            region = meant(self.settings.region, opened.grid, opened.what)
            size = covered(self.model.size, opened.grid, opened.network)
            *slices, _, _ = region.ranges(opened.grid.shape, size, opened.what)
            self._slices[item.name] = len(range(*slices[0])) if slices else 1
            return opened
        except LabelFile as error:
            if not item.listed:
                self._fail(item, item.name, error, self._slices[item.name])
            else:  # among images of a folder it does not stop a command
                note(f"left out: {item.translated(str(error))}")
                self._advance(self._slices[item.name])
            return None
        except Exception as error:  # of any kind: one bad file fails alone
            self._fail(item, item.name, refusal(error, item.what), self._slices[item.name])
            return None

    def _finish_claimed(self, batch: list[_Image]) -> None:
        try:
            self._finish(batch)
        finally:
            for one in batch:
                one.claim.release()
                one.item.release()

    def _finish(self, batch: list[_Image]) -> None:
        """Sample and write a batch. Where the batch fails, each is tried by itself, so that only the culprit fails."""
        batch = [one for one in batch if one.item.name not in self.outcome.measurements]
        if not batch:
            return
        before = self._done
        try:
            results = self.model.results([one.opened for one in batch], self.settings, self._advance)
            for one, result in zip(batch, results, strict=True):
                self._write(one.item, result)
        except Exception as error:  # of any kind: the others are not to fail with it
            if isinstance(error, OSError):  # from writing: it would fail the others too
                raise
            if len(batch) == 1:
                self._fail(batch[0].item, batch[0].item.name, refusal(error, batch[0].item.what), 0)
            else:
                for one in batch:
                    self._finish([one])
        self._done = before  # by the inputs' own count from here on: what was tried twice counts once
        self._advance(sum(self._slices[one.item.name] for one in batch))

    def _finish_case(self, item: Input, read: ReadInput, found: list[Finding]) -> None:
        """Sample and write one finding after the other, then what is common to them."""
        assert self.findings is not None
        done, failed = list[Finding](), dict[str, str]()
        for one in found:
            try:
                if one.error:
                    raise InputError(one.error)
                self._finish_finding(item, read, one)
                done.append(self.naming.shown(item, one))
                self._advance(1)
            except Exception as error:  # as of a whole input
                if isinstance(error, OSError):
                    raise
                refused = refusal(error, f"{item.what}, {one.name}")
                failed[self.naming.shown(item, one).name] = str(refused)
                self._fail(item, f"{item.name}/{one.name}", refused, 1)
        case, about = self.naming.folder(item), self.naming.about(item, self.findings)
        write_case(self.work.files, case, about, read, done, self.naming.failures(failed), self.model)

    def _finish_finding(self, item: Input, read: ReadInput, one: Finding) -> None:
        name = f"{item.name}/{one.name}"  # seeds the noise
        if self._has(item, one):
            self.outcome.skipped.append(name)
            return
        asked = self.settings.region
        region = Region(one.center, pad=asked.pad)
        if region.at_place:
            region = replace(region, extent=asked.extent, slice=asked.slice)
        opened = read.at(region, name, whole=False)
        (result,) = self.model.results([opened], replace(self.settings, region=region))
        self._write(item, result, one)

    def _has(self, item: Input, finding: Finding | None = None) -> bool:
        return self.naming.record(item, finding).is_in(self.work, item.what)

    def _write(self, item: Input, result: Result, finding: Finding | None = None) -> None:
        kept, output = self.naming.record(item, finding), self.output
        title = anonymous_title(result) if output.anonymous else result.title
        if title and output.anonymous and finding is not None:
            title = f"{title}, {finding.name}"
        try:
            with self.work.new(kept.name) as part:
                written = exports.write(result, part, output.write or (), output.representatives, output.anonymous)
                kept.write(result, part, written, title)
        except OSError:
            if not self._has(item, finding):  # else another process has just written the same files
                raise
        self.outcome.done.append(result.name)
        self.outcome.measurements[result.name] = result.measurements()
        if title:
            self.outcome.titles[result.name] = title
        if result.warnings:
            self.outcome.warnings[result.name] = list(result.warnings)

    def _fail(self, item: Input, name: str, error: InputError, slices: int) -> None:
        self.outcome.failed[name] = item.translated(str(error))
        self.report(self.outcome.failed[name])
        self._advance(slices)

    def _advance(self, slices: int) -> None:
        self._done += slices
        self.progress(self._done, sum(self._slices.values()))

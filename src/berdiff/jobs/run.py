"""Segment many inputs: bounded memory, each result whole or not at all, one bad file fails alone.

settings.json      what was asked; another segmentation is refused in the same place
NAME/              the files of one input
NAME/FINDING/      with findings, the files of each; NAME/ then has what is common to them (`case_files.py`)
.../done.json      which input and which finding it was, the files, and what tables show of it
cohort.csv, .html  all of them (`cohort.py`)

Several processes share a store (`store.py`): each takes inputs that no other has claimed.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from berdiff import schema
from berdiff.boundary import refusal
from berdiff.data.apply import Prepared, covered
from berdiff.display import note
from berdiff.errors import InputError
from berdiff.inference.guards import LabelFile
from berdiff.inference.inputs import Input, count_slices
from berdiff.inference.model import Model
from berdiff.inference.opening import ReadInput, meant
from berdiff.inference.region import EXTENT
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings, option
from berdiff.jobs.case_files import case_done, write_case
from berdiff.jobs.cohort import write_cohort
from berdiff.jobs.done_file import DoneFile
from berdiff.jobs.findings import Finding, FindingSource
from berdiff.jobs.records import kept_record, write_record
from berdiff.jobs.store import Claim, ResultStore, unwritable
from berdiff.jobs.tasks import Task, Tasks
from berdiff.output import exports
from berdiff.output.anonymous import anonymous_title
from berdiff.output.formats import OutputSettings

SECONDS_BETWEEN_LOOKS = 0.5  # at inputs that other processes have claimed
TRIES = 2  # of an input whose process died


@dataclass
class Outcome:
    """Of inputs, or of their findings. `measurements` are of those segmented now, not of those found done."""

    done: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    failed: dict[str, str] = field(default_factory=dict[str, str])  # name -> the sentence
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    titles: dict[str, str] = field(default_factory=dict[str, str])  # what people call them, where that is not the name
    warnings: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    @property
    def counts(self) -> str:
        """How many, in words."""
        return f"{len(self.done)} segmented, {len(self.skipped)} found done, {len(self.failed)} failed"

    def __repr__(self) -> str:
        return "\n".join([f"Outcome: {self.counts}", *(f"  {sentence}" for sentence in self.failed.values())])

    def add(self, name: str, record: DoneFile, now: bool) -> None:
        """A result; `now`: it was made by this command."""
        (self.done if now else self.skipped).append(name)
        if now:
            self.measurements[name] = dict(record.measurements)
        if record.title:
            finding = f", {name.rpartition('/')[2]}" if record.finding else ""
            self.titles[name] = record.title + finding
        if record.warnings:
            self.warnings[name] = record.warnings


@dataclass(eq=False)
class _Ready:
    """An input that was read, and its tasks."""

    item: Input
    tasks: list[Task]
    opened: Prepared | None = None  # of an input that is one task
    read: ReadInput | None = None  # of one with findings
    records: dict[Finding, DoneFile] = field(default_factory=dict[Finding, DoneFile])  # of findings that are done
    claim: Claim = field(default_factory=Claim)


class SegmentationJob:
    """One segmentation of many inputs. The same settings in the same place resume it."""

    def __init__(
        self,
        model: Model,
        settings: SegmentSettings,
        output: OutputSettings,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        report: Callable[[str], None] = lambda sentence: None,
        findings: FindingSource | None = None,
        worker: bool = False,
    ) -> None:
        """`progress` gets slices (or findings) done and in all, `report` the sentence of each that fails, at once;
        `worker`: one of several of a command, which leaves tables and notes to it.

        Settings that do not fit the model or the store are refused here.
        """
        schema.check(output, OutputSettings, option)
        asked = {name: value for name, value in asdict(output).items() if name != "out" and value is not False}
        if findings is not None:
            asked["findings"] = findings.kind
            if settings.region.extent is None and not settings.region.slice:
                settings = replace(settings, region=replace(settings.region, extent=EXTENT))
        self.model, self.settings, self.output, self.findings = model, settings, output, findings
        self.progress, self.report, self.worker = progress, report, worker
        self.tasks = Tasks(settings.region, findings, output.anonymous, report)
        self.store = ResultStore(output.out, {**model.identity(settings), **asked}, "segmentation", binding)
        self.outcome = Outcome()
        self.failed = dict[str, dict[str, str]]()  # by input, and in it by finding
        self.before: set[str] | None = None  # folders of results that are not this command's; None: all that are found
        self._waiting: list[_Ready] = []  # 2D images, up to a batch
        self._done, self._slices = 0, dict[str, int]()

    def segment(self, inputs: Sequence[Input]) -> Outcome:
        """2D images go through the network `batch_size` at a time, a volume or a finding by itself; no more is held in
        memory. What other processes have claimed comes last: by then they have done it, or died."""
        with self.at_work(inputs):
            left = self._pass(inputs)
            if left:
                self.report(f"waiting for {len(left)} inputs claimed by other processes")
            while left:
                before, left = len(left), self._pass(left)
                if len(left) == before:
                    time.sleep(SECONDS_BETWEEN_LOOKS)
        return self.outcome

    @contextmanager
    def at_work(self, inputs: Sequence[Input]) -> Generator[None, None, None]:
        """The store is held meanwhile; at the end the tables of all results that are there are written."""
        count = 1 if self.findings else None  # of each input, as far as is known before it is read
        self._slices = {item.name: count or count_slices(item, self.settings.region) for item in inputs}
        try:
            with self.store:
                yield
                if not self.worker and (self.outcome.done or self.outcome.skipped):
                    write_cohort(self.store)
        except OSError as error:  # what cannot be read is an InputError: this is from writing, and stays so
            raise unwritable(self.output.out, error) from error
        finally:
            for item in inputs:
                item.release()

    def settled(self, item: Input) -> bool:
        """Whether there is nothing to do: it is done, or cannot be."""
        try:
            if item.error:
                raise InputError(item.error)
            failed = self.store.failed(item.name)  # in another process
            if self.findings is not None:
                done = case_done(self.store, self.tasks.about(item), failed=bool(failed))
            else:
                kept = kept_record(self.store, self.tasks.of_input(item))
                done = [kept] if kept is not None else [] if failed else None
        except InputError as error:
            self.fail(item, item.name, str(error))
            failed, done = {}, list[DoneFile]()
        if done is None:
            return False
        for kept in done:
            name = item.name if kept.finding is None else f"{item.name}/{kept.finding['name']}"
            self.outcome.add(name, kept, now=self.before is not None and kept.name not in self.before)
        for name, sentence in failed.items():
            self.fail(item, name, sentence)
        self._advance(self._slices[item.name])
        return True

    def fail(self, item: Input, name: str, sentence: str) -> None:
        """`name` is the input's, or of a finding in it, or empty: the input is left out."""
        self.failed.setdefault(item.name, {})[name] = sentence = item.translated(sentence)
        if name:
            self.outcome.failed[name] = sentence
            self.report(sentence)
        elif not self.worker:
            note(f"left out: {sentence}")

    def _pass(self, inputs: Sequence[Input]) -> list[Input]:
        """Those that another process has claimed."""
        left = [item for item in inputs if not self._attempt(item)]
        self._finish_waiting()
        return left

    def _attempt(self, item: Input) -> bool:
        """False where another process has claimed it."""
        if self.settled(item):
            return True
        ready = None
        if not self.store.begun:  # what cannot be read leaves nothing behind, not even a folder
            ready = self._open(item)
            if ready is None:
                return True
        self.store.begin()
        claim = self.store.take(item.name)
        if claim is None:
            return False
        if self.settled(item):  # while it was read here
            claim.release()
            return True
        if claim.attempts:  # a process died: of this input, or of one beside it
            self._finish_waiting()
        if claim.attempts >= TRIES:
            self.lose(item)
        else:
            ready = ready or self._open(item)
        if claim.attempts >= TRIES or ready is None:
            claim.release(self.failed.get(item.name))
            return True
        ready.claim = claim
        if ready.opened is None or ready.opened.image.ndim == 4:
            self._finish([ready])
        else:
            self._waiting.append(ready)
            if len(self._waiting) == self.settings.batch_size or claim.attempts:
                self._finish_waiting()
        return True

    def lose(self, item: Input) -> None:
        """An input that its processes died at."""
        self.fail(item, item.name, f"{item.what}: {TRIES} workers died at it (out of memory?)")
        self._advance(self._slices[item.name])

    def _open(self, item: Input) -> _Ready | None:
        """None where that fails."""
        try:
            if self.findings is not None:
                read = self.model.read(item, self.settings)
                tasks = self.tasks.of_findings(item, read)
                self._slices[item.name] = len(tasks)
                errors = {task.name: task.finding.error for task in tasks if task.finding and task.finding.error}
                if len(errors) < len(tasks):
                    return _Ready(item, tasks, read=read)
                for name, error in errors.items():
                    self.fail(item, name, error)
            else:
                opened = self.model.open(item, self.settings)
                region = meant(self.settings.region, opened.grid, opened.what)
                size = covered(self.model.size, opened.grid, opened.network)
                *slices, _, _ = region.ranges(opened.grid.shape, size, opened.what)
                self._slices[item.name] = len(range(*slices[0])) if slices else 1
                return _Ready(item, [self.tasks.of_input(item)], opened)
        except LabelFile as error:  # among images of a folder it does not stop a command
            self.fail(item, "" if item.listed else item.name, str(error))
        except Exception as error:  # of any kind: one bad file fails alone
            self.fail(item, item.name, str(refusal(error, item.what)))
        self._advance(self._slices[item.name])
        return None

    def _finish_waiting(self) -> None:
        batch, self._waiting = self._waiting, []
        if batch:
            self._finish(batch)

    def _finish(self, batch: list[_Ready]) -> None:
        """Sample and write what is claimed: images together, findings one after the other."""
        try:
            if self.findings is None:
                self._sample(batch)
                return
            (one,) = batch
            for task in one.tasks:
                self._sample_finding(task, one)
            assert one.read is not None
            failed = self.failed.get(one.item.name, {})
            shown = {task.finding.name: failed[task.name] for task in one.tasks if task.finding and task.name in failed}
            if self.output.anonymous:  # the sentences name files
                shown = dict.fromkeys(shown, "failed")
            write_case(self.store, self.tasks.about(one.item), one.read, one.records, shown, self.model)
        finally:
            for one in batch:
                one.claim.release(self.failed.get(one.item.name))
                one.item.release()

    def _sample(self, batch: list[_Ready]) -> None:
        """Images together. Where a batch fails, each is tried by itself, so that only the culprit fails."""
        before = self._done
        try:
            images = [one.opened for one in batch if one.opened is not None]
            for one, result in zip(batch, self.model.results(images, self.settings, self._advance), strict=True):
                self._write(one.tasks[0], one, result)
        except OSError:  # from writing: the others would fail too
            raise
        except Exception as error:  # of any kind: the others are not to fail with it
            if len(batch) == 1:
                self.fail(batch[0].item, batch[0].item.name, str(refusal(error, batch[0].item.what)))
            for one in batch if len(batch) > 1 else ():
                if one.item.name not in self.outcome.measurements:
                    self._sample([one])
        self._done = before  # by the inputs' own count from here on: what was tried twice counts once
        self._advance(sum(self._slices[one.item.name] for one in batch))

    def _sample_finding(self, task: Task, ready: _Ready) -> None:
        """Sampled and written, where it is not done."""
        assert task.finding is not None
        assert ready.read is not None
        try:
            if (kept := kept_record(self.store, task)) is not None:
                self._add(task, ready, kept, now=False)
            elif task.finding.error:
                raise InputError(task.finding.error)
            else:
                image = ready.read.at(task.place, task.name, whole=False)
                (result,) = self.model.results([image], replace(self.settings, region=task.place))
                self._write(task, ready, result)
        except OSError:
            raise
        except Exception as error:
            self.fail(task.item, task.name, str(refusal(error, task.what)))
        self._advance(1)

    def _write(self, task: Task, ready: _Ready, result: Result) -> None:
        output = self.output
        title = anonymous_title(result) if output.anonymous else result.title
        if task.finding is not None:  # which the record names by itself
            title = title.removesuffix(f", {task.finding.name}")
        try:
            with self.store.new(task.folder) as part:
                written = exports.write(result, part, output.write or (), output.representatives, output.anonymous)
                record = write_record(task, result, part, written, title)
        except OSError:
            kept = kept_record(self.store, task)
            if kept is None:  # else another process has just written the same files
                raise
            record = kept
        self._add(task, ready, record, now=True)

    def _add(self, task: Task, ready: _Ready, record: DoneFile, now: bool) -> None:
        self.outcome.add(task.name, record, now)
        if task.finding is not None:
            ready.records[task.finding] = record

    def _advance(self, slices: int) -> None:
        self._done += slices
        self.progress(self._done, sum(self._slices.values()))


def binding(settings: dict[str, Any]) -> dict[str, Any]:
    """Without padding: it changes nothing but images that could not be segmented without it, so that `--pad`, as the
    message about such an image advises, goes on where the command before it ended."""
    region = settings.get("region")
    if not isinstance(region, dict):
        return settings
    kept: dict[str, Any] = {**region}
    kept.pop("pad", None)
    return {**settings, "region": kept}

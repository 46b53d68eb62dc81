"""Segment many inputs into a folder: bounded memory, each input whole or not at all, one bad file fails alone.

settings.json      what was asked; another segmentation is refused in the same folder
NAME/              the files of one input, renamed into place when all are written
NAME/done.json     which input it was, and the files
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from berdiff import schema
from berdiff.data import volumes
from berdiff.data.describe import expect
from berdiff.data.reading import kind_of
from berdiff.errors import InputError
from berdiff.files import write_text
from berdiff.inference.inputs import Input
from berdiff.inference.model import Model
from berdiff.inference.opening import OpenedImage
from berdiff.inference.region import Region
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings, option
from berdiff.output import exports
from berdiff.output.destination import DONE, open_destination
from berdiff.output.kinds import OutputSettings


@dataclass
class Outcome:
    """What became of the inputs. `measurements` are of those segmented now, not of those found done."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # name -> the sentence
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict)


class SegmentationJob:
    """One segmentation of many inputs. The same settings in the same folder resume it."""

    def __init__(
        self,
        model: Model,
        settings: SegmentSettings,
        output: OutputSettings,
        progress: Callable[[int, int | None], None] = lambda done, total: None,
        report: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`progress` gets slices done and in all, `report` the sentence of each input that fails, at once.

        Settings that do not fit the model or the folder are refused here.
        """
        schema.check(output, OutputSettings, option)
        self.model, self.settings, self.output = model, settings, output
        self.progress, self.report = progress, report
        asked = {name: value for name, value in asdict(output).items() if name != "out"}
        self.work = open_destination(output.out, {**model.identity(settings), **asked}, "segmentation")
        self.outcome = Outcome()
        self._done, self._slices = 0, dict[str, int]()

    def segment(self, inputs: Sequence[Input]) -> Outcome:
        """2D images go through the network `batch_size` at a time, a volume by itself; no more is held in memory."""
        self._slices = {item.name: count_slices(item, self.settings.region) for item in inputs}
        waiting: list[tuple[Input, OpenedImage]] = []
        try:
            with self.work:
                for item in inputs:
                    opened = self._open(item)
                    if opened is None:
                        self._advance(self._slices[item.name])
                    elif opened.image.ndim == 4:
                        self._finish([(item, opened)])
                    else:
                        waiting.append((item, opened))
                    if len(waiting) == self.settings.batch_size:
                        self._finish(waiting)
                        waiting = []
                self._finish(waiting)
        except OSError as error:  # what cannot be read is an InputError: this is from writing, and stays so
            reason = error.strerror or error
            raise InputError(f"{self.output.out}: expected a folder that can be written, found {reason}") from error
        finally:
            for item in inputs:
                item.release()
        return self.outcome

    def _open(self, item: Input) -> OpenedImage | None:
        """The image, or None if there is nothing to do for it."""
        try:
            if not item.error and self._has(item):
                self.outcome.skipped.append(item.name)
                return None
            opened = self.model.open(item, self.settings)
            self.settings.region.ranges(opened.image.shape[1:], self.model.size, opened.what)
            self._slices[item.name] = count_slices(item, self.settings.region)  # of a remote one: known by now
            return opened
        except InputError as error:
            self._fail(item, error)
            return None

    def _finish(self, batch: list[tuple[Input, OpenedImage]]) -> None:
        """Sample and write a batch. Where the batch fails, each is tried by itself, so that only the culprit fails."""
        batch = [one for one in batch if one[0].name not in self.outcome.measurements]
        if not batch:
            return
        self.work.begin()
        before = self._done
        try:
            results = self.model.results([opened for _, opened in batch], self.settings, self._advance)
            for (item, _), result in zip(batch, results, strict=True):
                self._write(item, result)
        except InputError as error:
            if len(batch) == 1:
                self._fail(batch[0][0], error)
            else:
                for one in batch:
                    self._finish([one])
        self._done = before  # by the headers' count from here on: what was tried twice counts once
        self._advance(sum(self._slices[item.name] for item, _ in batch))
        for item, _ in batch:
            item.release()

    def _has(self, item: Input) -> bool:
        """Whether this very input is done."""
        done = self.work.done(item.name)
        if done is None:
            return False
        others = "those of another file, of an older one or of something else; remove them or take another --out"
        same = done.get("sources") == _sources(item)
        expect(same, self.work.place(item.name), f"the results of {item.what} as it is now", others)
        return True

    def _write(self, item: Input, result: Result) -> None:
        try:
            with self.work.new(item.name) as part:
                written = exports.write(result, part, self.output.write or (), self.output.representatives)
                files = [str(path.relative_to(part)) for path in written]
                done = {"name": item.name, "sources": _sources(item), "files": files}
                write_text(part / DONE, schema.dump(done))
        except OSError:
            if not self._has(item):  # else another process has just written the same files
                raise
        self.outcome.done.append(item.name)
        self.outcome.measurements[item.name] = result.measurements()

    def _fail(self, item: Input, error: InputError) -> None:
        item.release()
        self.outcome.failed[item.name] = item.translated(str(error))
        self.report(self.outcome.failed[item.name])

    def _advance(self, slices: int) -> None:
        self._done += slices
        self.progress(self._done, sum(self._slices.values()))


def count_slices(item: Input, region: Region) -> int:
    """How many slices of an input will be segmented, from names and headers: for the time that is left."""
    first, depth = item.paths[0], None
    try:
        if item.store is None and not item.error and first.exists():  # a remote one is there only when its turn comes
            if kind_of(first) == "nifti" and len(shape := volumes.stored_shape(first)) > 2:
                depth = volumes.shape_of(first, 4 if len(shape) > 3 and shape[3] > 1 else 3)[-3]
            elif len(item.paths) > 1 and kind_of(first) == "dicom":
                depth = len(item.paths)
        return 1 if depth is None else len(range(*region.slice_range(depth, item.what)))
    except InputError:
        return 1  # what is wrong is reported when its turn comes


def _sources(item: Input) -> list[dict[str, Any]]:
    """What an input was made of; a file of another length is another file."""
    if item.store is not None:
        return [{"path": item.store.address, "case": str(item.store.cases.case[item.index])}]
    if item.copies is not None:
        addresses = (item.copies.address_of(path) for path in item.paths)
        return [{"path": path, "bytes": size} for path, size in zip(addresses, item.sizes, strict=True)]
    return [{"path": str(Path(path).resolve()), "bytes": path.stat().st_size} for path in item.paths]

"""Segment many inputs into a folder: bounded memory, each input whole or not at all, one bad file fails alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berdiff.data import volumes
from berdiff.errors import InputError
from berdiff.inference import exports
from berdiff.inference.draw import Settings
from berdiff.inference.inputs import Input
from berdiff.inference.intensity import Intensity
from berdiff.inference.model import Model, plain
from berdiff.inference.reading import Opened
from berdiff.inference.record import Record
from berdiff.inference.region import Region
from berdiff.inference.result import Result

Progress = Callable[[int, int | None], None]  # slices done, slices in all

# what is written for an input of each kind, unless something else is asked for
DEFAULT_KINDS = {
    "dicom": ("dicom-seg", "json", "overlay"),
    "nifti": ("nifti", "json", "overlay"),
    "volume": ("nifti", "json", "overlay"),
    "image": ("samples", "saliency", "mask", "representatives", "json", "overlay"),
}


@dataclass
class Summary:
    """How it went. `measurements` are those of the inputs segmented now, not of those found done."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # name -> the sentence
    measurements: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Output:
    """Where results go, and which."""

    folder: Path
    kinds: tuple[str, ...] | None = None  # None: by the kind of input
    representatives: int = 3


class Run:
    """One segmentation of many inputs. The same settings in the same folder go on where they stopped."""

    def __init__(
        self,
        model: Model,
        settings: Settings,
        output: Output,
        window: tuple[float, float] | None = None,
        progress: Progress = lambda done, total: None,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        """`say` is told the sentence of each input that fails, at once. Bad settings are refused here."""
        Intensity.of(model.segmenter.about, window)
        exports.check_kinds(output.kinds or ())
        if output.representatives < 1:
            raise InputError(f"--representatives: expected at least 1, found {output.representatives}")
        self.model, self.settings, self.output, self.window = model, settings, output, window
        self.progress, self.say = progress, say
        identity = {
            "model": model.name,
            "weights_sha256": model.segmenter.weights_sha256,
            "size": model.size,
            **plain(settings),
            "window": window,
            "write": output.kinds,
            "representatives": output.representatives,
        }
        try:
            self.record = Record(output.folder, identity)
        except OSError as error:
            raise _unwritable(output.folder, error) from error
        self.summary = Summary()
        self._done, self._total = 0, 0

    def segment(self, inputs: Sequence[Input]) -> Summary:
        """2D images go through the network `batch_size` at a time, a volume by itself; no more is held in memory."""
        weights = {item.name: planes(item, self.settings.region) for item in inputs}
        self._total = sum(weights.values())
        try:
            self._segment(inputs, weights)
        except OSError as error:  # readers tell of theirs in sentences: this is from writing, and will not get better
            raise _unwritable(self.output.folder, error) from error
        return self.summary

    def _segment(self, inputs: Sequence[Input], weights: dict[str, int]) -> None:
        waiting: list[tuple[Input, Opened]] = []
        for item in inputs:
            opened = self._open(item)
            if opened is None:
                self._step(weights[item.name])
            elif opened.image.ndim == 4:
                self._finish([(item, opened)], weights)
            else:
                waiting.append((item, opened))
            if len(waiting) == self.settings.batch_size:
                self._finish(waiting, weights)
                waiting = []
        self._finish(waiting, weights)

    def _open(self, item: Input) -> Opened | None:
        """The image, or None if there is nothing to do for it."""
        try:
            if not item.error and self.record.has(item):
                self.summary.skipped.append(item.name)
                return None
            opened = self.model.open(item, self.window, region=self.settings.region)
            self.settings.region.ranges(opened.image.shape[1:], self.model.size, opened.what)
            return opened
        except InputError as error:
            self._fail(item, error)
            return None

    def _finish(self, batch: list[tuple[Input, Opened]], weights: dict[str, int]) -> None:
        """Draw and write a batch. Where the batch fails, each is tried alone, so that only the culprit fails."""
        if not batch:
            return
        before = self._done
        try:
            results = self.model.results([opened for _, opened in batch], self.settings, self._step)
            for (item, _), result in zip(batch, results, strict=True):
                self._write(item, result)
        except InputError as error:
            self._done = before
            if len(batch) > 1:
                for one in batch:
                    if one[0].name in self.summary.measurements:
                        self._step(weights[one[0].name])
                    else:
                        self._finish([one], weights)
                return
            self._fail(batch[0][0], error)
        self._done = before
        self._step(sum(weights[item.name] for item, _ in batch))

    def _write(self, item: Input, result: Result) -> None:
        kinds = self.output.kinds or default_kinds(result)
        self.record.add(item, lambda folder: exports.write(result, folder, kinds, self.output.representatives))
        self.summary.done.append(item.name)
        self.summary.measurements[item.name] = result.measurements()

    def _fail(self, item: Input, error: InputError) -> None:
        self.summary.failed[item.name] = str(error)
        self.say(str(error))

    def _step(self, slices: int) -> None:
        self._done += slices
        self.progress(self._done, self._total)


def default_kinds(result: Result) -> tuple[str, ...]:
    kind = result.source.kind
    return DEFAULT_KINDS.get(kind) or DEFAULT_KINDS["volume" if result.volume else "image"]


def planes(item: Input, region: Region) -> int:
    """How many slices of an input will be segmented, from names and headers: for the time that is left."""
    try:
        first, *others = item.paths
        if item.kind == "dicom" and others:
            depth = len(item.paths)
        elif item.kind == "nifti" and not item.error and len(shape := volumes.stored_shape(first)) > 2:
            depth = volumes.shape_of(first, 4 if len(shape) > 3 and shape[3] > 1 else 3)[-3]
        else:
            return 1
        return len(range(*region.slice_range(depth, item.what)))
    except InputError:
        return 1  # what is wrong is told when its turn comes


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(f"{folder}: expected a folder that can be written, found {error.strerror or error}")

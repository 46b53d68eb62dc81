"""berdiff segment MODEL INPUT... --out DIR"""

import sys
from dataclasses import dataclass, field
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from berdiff.data.limits import Limits, using
from berdiff.display import plain_console, progress
from berdiff.errors import InputError
from berdiff.inference.settings import FindingOptions, Precision, SegmentSettings, option
from berdiff.memory import keep_freed_memory
from berdiff.output.kinds import OutputSettings
from berdiff.schema import check

if TYPE_CHECKING:
    from berdiff.output.segmentation import Outcome

MAX_ROWS, MAX_NAME = 20, 32


@dataclass(frozen=True)
class Segment:
    """Segment images and volumes: plausible masks, how often each occurs, and their size in millimetres.

    The same command resumes where it was interrupted. A bad file is reported in one sentence and the others go on; the
    exit code is then 2.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]  # model folder, folder of a run, or name of bundled weights
    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT")]
    """PNG, JPG, TIFF, NIfTI, DICOM or .npy files, folders of them, globs, or a prepared store"""
    output: OmitArgPrefixes[OutputSettings]
    settings: Annotated[SegmentSettings, arg(name="")] = field(default_factory=SegmentSettings)
    findings: OmitArgPrefixes[FindingOptions] = field(default_factory=FindingOptions)
    limits: OmitArgPrefixes[Limits] = field(default_factory=Limits)
    size: Annotated[tuple[int, int] | None, arg(metavar="H W")] = None
    """height and width that the network sees at once; default: what it was trained at"""
    split: Literal["train", "val", "test", "all"] = "test"  # split of a prepared store
    limit: Annotated[int | None, arg(metavar="N")] = None
    """maximum number of inputs; of a store, the first of one seeded order"""
    part: Annotated[str | None, arg(metavar="I/N")] = None
    """take the I-th of N parts of the inputs, every N-th in the order of their names: for an array of jobs"""
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...
    precision: Precision = "fp32"
    """fp32, or bf16: faster where the processor has it, and masks differ by its rounding"""
    compile: bool = False  # compile the network first: half a minute or more, worth it for many inputs
    engine: Literal["local", "ray"] = "local"
    """what runs the workers: processes of this machine, or a Ray cluster (RAY_ADDRESS, or one for the occasion)"""
    workers: int = 1  # how many share the inputs, each with a thread and a model of its own
    json: bool = False  # print the outcome as JSON

    def run(self) -> None:
        with using(check(self.limits, Limits, option)):
            self._run()

    def _run(self) -> None:
        from berdiff.inference.findings import open_findings
        from berdiff.inference.inputs import find_inputs, parse_part, take_part
        from berdiff.inference.model import load
        from berdiff.output.engines import WorkerTask, segment
        from berdiff.output.segmentation import SegmentationJob

        part = parse_part(self.part or "1/1")
        findings = open_findings(self.findings, self.settings.region)
        if self.workers < 1:
            raise InputError(f"--workers: expected at least 1, found {self.workers}")
        keep_freed_memory()
        alone = self.engine == "local" and self.workers == 1
        how: dict[str, Any] = {"size": self.size, "precision": self.precision, "compile": self.compile}
        # of several workers each opens the model for itself, and this one only answers questions
        model = load(self.model, self.device if alone else "cpu", **how)
        chosen = (self.split, self.limit, self.settings.seed)
        inputs = find_inputs(self.inputs, model.input_spec.channels, *chosen, note=partial(print, file=sys.stderr))
        if findings is not None:
            found = findings.choose(inputs, every=self.limit is None)
            if without := len({item.name for item in inputs} - {item.name for item in found}):
                print(f"{without} of {len(inputs)} inputs have no finding and are left out", file=sys.stderr)
            inputs = found
        inputs = take_part(inputs, part) if self.part else inputs
        several = len(inputs) > 1 or findings is not None
        with progress(f"segmenting with {model.name}") as update:
            # the sentence of an only input is the command's own
            report = partial(print, file=sys.stderr, flush=True) if several else lambda sentence: None
            job = SegmentationJob(model, self.settings, self.output, update, report, findings)
            print(f"device: {model.device if alone else self.device}", file=sys.stderr, flush=True)
            if alone:
                outcome = job.segment(inputs)
            else:
                task = WorkerTask(
                    {"path_or_name": self.model, "device": self.device, **how},
                    self.settings,
                    self.output,
                    findings,
                    self.limits,
                )
                outcome = segment(job, task, inputs, self.engine, self.workers)
        if self.json:
            print(dumps({"out": str(self.output.out), **vars(outcome)}, indent=2))
        else:
            cohort = Path(self.output.out) / "cohort.html"
            _print(outcome, f"results in {self.output.out}" + (f", all in {cohort}" if cohort.is_file() else ""))
        if outcome.failed:
            sentence = next(iter(outcome.failed.values()))
            tried, what = len(inputs), "inputs"
            if findings is not None:
                tried, what = len({*outcome.done, *outcome.skipped, *outcome.failed}), "findings"
            raise InputError(
                f"{len(outcome.failed)} of {tried} {what} failed, as reported above" if several else sentence
            )


def _print(outcome: "Outcome", where: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console = plain_console()
    table = Table()
    for head in ("input", "target", "finding", "size (5-95 %)", "diameter (5-95 %)", "disagree"):
        table.add_column(head, overflow="fold")  # nothing is cut off
    rows = [(name, *one) for name, targets in outcome.measurements.items() for one in targets.items()]
    for name, target, of in rows[:MAX_ROWS]:
        both = (of.get("area") or of["volume"], of["longest_diameter"])
        sizes = [f"{_short(size['q50'])} ({_short(size['q05'])}-{_short(size['q95'])}) {size['unit']}" for size in both]
        apart = "" if of["disagreement"] is None else f"{of['disagreement']:.2f}"
        short = name if len(name) <= MAX_NAME else "..." + name[3 - MAX_NAME :]  # the end tells findings apart
        table.add_row(Text(short, overflow="fold"), Text(target), f"{of['finding_probability']:.0%}", *sizes, apart)
    if rows:
        console.print(table)
    if len(rows) > MAX_ROWS:
        console.print(f"... and {len(rows) - MAX_ROWS} more")
    counts = f"{len(outcome.done)} segmented, {len(outcome.skipped)} found done, {len(outcome.failed)} failed"
    console.print(f"{counts}; {where}", soft_wrap=True)
    console.print("For research; not for clinical use.")


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def command(argv: list[str]) -> None:
    tyro.cli(Segment, args=argv, prog="berdiff segment", config=(FlagCreatePairsOff,)).run()

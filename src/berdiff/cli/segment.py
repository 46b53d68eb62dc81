"""berdiff segment MODEL INPUT... --out DIR"""

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from berdiff.cli.arguments import Model, parse, print_json
from berdiff.data.limits import Limits, using
from berdiff.display import note, progress
from berdiff.errors import InputError
from berdiff.hub import is_hub
from berdiff.inference.settings import FindingOptions, Precision, SegmentSettings, option
from berdiff.memory import keep_freed_memory
from berdiff.methods.card import FOR_RESEARCH
from berdiff.output.formats import OutputSettings
from berdiff.schema import check

if TYPE_CHECKING:
    from berdiff.jobs.run import Outcome

MAX_ROWS = 20


@dataclass(frozen=True)
class Segment:
    """Segment images and volumes: plausible masks, how often each occurs, and their size in millimetres.

    The same command resumes where it was interrupted. A bad file is reported in one sentence and the others go on; the
    exit code is then 2.
    """

    model: Model
    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT ...")]
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
        from berdiff.inference.inputs import find_inputs, parse_part, take_part
        from berdiff.inference.model import load
        from berdiff.jobs.findings import open_findings
        from berdiff.jobs.run import SegmentationJob
        from berdiff.jobs.workers import Work, segment

        check(self.settings, SegmentSettings, option)
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
        inputs = find_inputs(self.inputs, model.input_spec.channels, *chosen, note=note)
        if findings is not None:
            found = findings.choose(inputs, every=self.limit is None)
            if without := len({item.name for item in inputs} - {item.name for item in found}):
                note(f"{without} of {len(inputs)} inputs have no finding and are left out")
            inputs = found
        inputs = take_part(inputs, part) if self.part else inputs
        several = len(inputs) > 1 or findings is not None
        with progress(f"segmenting with {model.name}") as update:
            # the sentence of an only input is the command's own
            report = partial(print, file=sys.stderr, flush=True) if several else lambda sentence: None
            job = SegmentationJob(model, self.settings, self.output, update, report, findings)
            note(f"device: {model.device if alone else self.device}")
            if alone:
                outcome = job.segment(inputs)
            else:
                work = Work(
                    {"path_or_name": model.name if is_hub(self.model) else self.model, "device": self.device, **how},
                    self.settings,
                    self.output,
                    findings,
                    self.limits,
                )
                outcome = segment(job, work, inputs, self.engine, self.workers)
        if self.json:
            print_json({"out": str(self.output.out), **vars(outcome)})
        else:
            cohort = Path(self.output.out) / "cohort.html"
            _print(outcome, f"results in {self.output.out}" + (f", all in {cohort}" if cohort.is_file() else ""))
        if inputs and not (outcome.done or outcome.skipped or outcome.failed):
            raise InputError(f"{self.inputs[0]}: no image to segment, only masks or labels", "kind")
        if outcome.failed:
            sentence = next(iter(outcome.failed.values()))
            tried, what = len(inputs), "inputs"
            if findings is not None:
                tried, what = len({*outcome.done, *outcome.skipped, *outcome.failed}), "findings"
            raise InputError(
                f"{len(outcome.failed)} of {tried} {what} failed, as reported above" if several else sentence
            )


def _print(outcome: "Outcome", where: str) -> None:
    from berdiff.output.captions import MARKED_BY, MARKED_MEANS, over
    from berdiff.text_tables import show

    rows = [(name, *one) for name, targets in outcome.measurements.items() for one in targets.items()]
    lines = [f"... and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []
    tables = []
    if rows:
        names, targets, found = zip(*rows[:MAX_ROWS], strict=True)
        names = [outcome.titles.get(name, name) for name in names]
        columns = [["input", *names], *([["target", *targets]] if len({*targets}) > 1 else [])]
        columns.append(["marked by", *(f"{of['finding_probability']:.0%}" for of in found)])
        columns.append(["nothing", *(f"{of['empty_share']:.0%}" for of in found)])
        if any(depths := [over(of).removeprefix(" over ") for of in found]):
            columns.append(["over", *depths])
        columns.append(_sizes("size", [of.get("area") or of["volume"] for of in found]))
        columns.append(_sizes("diameter", [of["longest_diameter"] for of in found]))
        apart = (of["disagreement"] for of in found)
        columns.append(["disagree", *("" if share is None else f"{share:.2f}" for share in apart)])
        header, *body = map(list, zip(*columns, strict=True))
        tables.append((header, body))
        lines.append(f"{MARKED_BY}: {MARKED_MEANS}")
        lines.append("nothing: share of samples that mark nothing; over: length along z that was segmented")
        lines.append("size and diameter: median [5 %, 95 %] among samples that mark it")
        lines.append("disagree: mean of 1 - IoU of two samples")
    warned = [(outcome.titles.get(name, name), of) for name, each in outcome.warnings.items() for of in each]
    lines = [f"WARNING: {name}: {of}" for name, of in warned[:MAX_ROWS]] + lines
    show(tables, [*lines, f"{outcome.counts}; {where}", FOR_RESEARCH])


def _sizes(what: str, sizes: list[Any]) -> list[str]:
    """A column of quantiles; a unit that all share stands in its header."""
    units = {size["unit"] for size in sizes}
    cells = [
        "-" if size["q50"] is None else f"{_short(size['q50'])} [{_short(size['q05'])}, {_short(size['q95'])}]"
        for size in sizes
    ]
    if len(units) == 1:
        return [f"{what} ({units.pop()})", *cells]
    return [what, *(f"{cell} {size['unit']}" for cell, size in zip(cells, sizes, strict=True))]


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}"


def command(argv: list[str]) -> None:
    parse(Segment, argv, "segment").run()

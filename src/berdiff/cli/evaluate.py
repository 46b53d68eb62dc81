"""berdiff evaluate MODEL: GED, HM-IoU, Dice and calibration of a model on a split, with reference points."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tyro.conf import OmitArgPrefixes

from berdiff import schema
from berdiff.cli.arguments import Model as ModelAddress
from berdiff.cli.arguments import parse, print_json
from berdiff.cli.opening import open_data
from berdiff.display import note, progress
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.settings import Precision
from berdiff.memory import keep_freed_memory
from berdiff.methods.sampling import SamplerOptions, choose_sampler
from berdiff.remote import typed_only

if TYPE_CHECKING:
    from berdiff.data.store import Store
    from berdiff.inference.model import Model


@dataclass(frozen=True, kw_only=True)
class ModelOnStore(schema.Settings):
    """The options of every command that runs a model on a split of a store."""

    model: ModelAddress
    out: Path  # folder for the results
    data: str | None = None  # prepared store; default: what the model's run was trained on, else the embedded one
    settings: OmitArgPrefixes[EvaluationSettings] = field(default_factory=EvaluationSettings)
    precision: Precision = "fp32"
    """fp32, or bf16: faster where the processor has it, and masks differ by its rounding"""
    compile: bool = False  # compile the network first: half a minute or more, worth it for many cases
    json: bool = False  # print JSON instead of tables

    def open(self) -> "tuple[Model, Store]":
        from berdiff.inference.model import load

        keep_freed_memory()
        model = load(self.model, self.settings.device, precision=self.precision, compile=self.compile)
        note(f"device: {model.device}")
        of_run = typed_only(model.store, f"the run of {self.model}", "--data") if self.data is None else self.data
        return model, open_data(of_run)


@dataclass(frozen=True, kw_only=True)
class Evaluate(ModelOnStore):
    """Evaluate a model on a split of a store. Interrupted, the same command resumes."""

    sampler: OmitArgPrefixes[SamplerOptions] = field(default_factory=SamplerOptions)
    """how masks are sampled; what is not given is the model's own"""


def command(argv: list[str]) -> None:
    options = parse(Evaluate, argv, "evaluate")

    from berdiff.evaluation.evaluate import evaluate
    from berdiff.evaluation.report import captions, tables_of
    from berdiff.text_tables import show

    model, store = options.open()
    settings = replace(options.settings, sampler=choose_sampler(model.segmenter, options.sampler))
    with progress(f"evaluating {model.name}") as update:
        result = evaluate(model, store, options.out, settings, update)
    if options.json:
        return print_json(result)
    show(tables_of(result), [*captions(result), f"written to {options.out}: metrics.json, per_case.csv, table.md"])

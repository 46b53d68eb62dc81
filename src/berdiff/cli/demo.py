"""berdiff demo: held-out cases with the bundled weights, as one page to look at."""

from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import OmitArgPrefixes

from berdiff import schema
from berdiff.cli.arguments import parse, print_json
from berdiff.display import note, progress
from berdiff.inference.settings import SegmentSettings
from berdiff.memory import keep_freed_memory
from berdiff.methods.card import FOR_RESEARCH
from berdiff.methods.sampling import SamplerOptions

NEXT = """\
your own data:
  berdiff segment lidc IMAGES --center Y X --out out/mine --write report samples
      (PNG, NIfTI, DICOM, .npy, folders)
  berdiff data prepare folder FOLDER my.zarr
      (images and masks of your own)
  berdiff train own --data my.zarr --out runs/mine
      (then: berdiff segment runs/mine ...)
"""


@dataclass(frozen=True)
class Demo(schema.Settings):
    """Segment held-out cases of the embedded data, score them beside the limit, and write a page to look at."""

    out: Path = Path("out/demo")  # folder for report.html
    model: str = "lidc-readers"  # name of bundled weights, model folder or folder of a run
    cases: schema.Count = 6  # number of cases, each of another patient and marked by two readers or more
    samples: schema.Count = 16  # masks sampled per case
    seed: schema.Natural = 0  # seed of the choice and of the samples
    sampler: OmitArgPrefixes[SamplerOptions] = field(default_factory=SamplerOptions)
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...
    json: bool = False  # print the scores as JSON

    def run(self) -> None:
        from berdiff.data.held_out import open_held_out
        from berdiff.inference.model import load
        from berdiff.output.demo import run_demo
        from berdiff.text_tables import show

        keep_freed_memory()
        settings = SegmentSettings(self.samples, self.seed, sampler=self.sampler)
        model = load(self.model, self.device)
        model.check(settings)
        note(f"device: {model.device}")
        store = open_held_out()
        with progress("segmenting") as update:
            done = run_demo(model, store, self.out, self.cases, settings, update)
        if self.json:
            return print_json(done)
        show([(list(done.table.header), [list(row) for row in done.table.rows])])
        print(f"report: {done.report}\n        {done.report.resolve().as_uri()}\n\n{NEXT}", end="")
        print(FOR_RESEARCH)


def command(argv: list[str]) -> None:
    parse(Demo, argv, "demo").run()

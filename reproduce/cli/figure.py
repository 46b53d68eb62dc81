"""berdiff figure NAME: the figures of the paper, and what sampling costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from berdiff import schema
from berdiff.cli.arguments import MODEL, parse, print_json
from berdiff.cli.opening import open_data
from berdiff.display import note, progress
from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory
from berdiff.methods.sampling import SamplerOptions


@dataclass(frozen=True, kw_only=True)
class _Figure(schema.Settings):
    json: bool = False  # print what was written as JSON

    def _print(self, files: Sequence[Path], *texts: str | Path) -> None:
        """The picture is the first of the files."""
        if self.json:
            return print_json({"figure": files[0], "files": files})
        from berdiff.text_tables import show_markdown

        for text in texts:
            print(text) if isinstance(text, Path) else show_markdown(text)


@dataclass(frozen=True)
class Toy(_Figure):
    """The paper's 1D toy (figure A2): Bernoulli against Gaussian diffusion on two functions. About a minute."""

    out: Path = Path("out/toy")  # folder for toy.png, toy.md and toy.json
    seeds: schema.Count = 5  # number of seeds, trained side by side

    def run(self) -> None:
        from reproduce.toy import ToyConfig, run_toy
        from reproduce.toy_figure import write_toy

        config = ToyConfig(seeds=self.seeds)
        with progress("training") as update:
            curves = run_toy(config, update)
        table, files = write_toy(config, curves, self.out), [self.out / f"toy.{kind}" for kind in ("png", "md", "json")]
        self._print(files, table, f"figure: {files[0]}")


@dataclass(frozen=True)
class Cost(_Figure):
    """The cost of sampling over masks and over steps beside one pass of a U-net. Run nothing else meanwhile."""

    out: Path = Path("out/cost")  # folder for cost.png and cost.csv
    model: Annotated[str, arg(help=MODEL)] = "lidc-readers"
    samples: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)  # numbers of masks of one image, each in 10 steps
    steps: tuple[int, ...] = (2, 5, 10, 20, 50)  # numbers of steps, each for 16 masks
    size: tuple[int, int] | None = None  # height and width of the image; default: what the model was trained at
    paper_pass: bool = True  # one pass of the paper's 85.6 M network at the same size, measured too and shown as a line
    repeats: int = 3  # number of measurements, whose median counts
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def run(self) -> None:
        from berdiff.inference.model import load
        from reproduce.cost import measure, write_cost

        model = load(self.model, self.device, self.size)
        note(f"device: {model.device}")
        with progress("measuring") as update:
            cost = measure(model, self.samples, self.steps, self.paper_pass, self.repeats, update)
        headline, files = write_cost(cost, self.out), [self.out / "cost.png", self.out / "cost.csv"]
        self._print(files, headline, f"figure: {files[0]}")


@dataclass(frozen=True)
class Examples(_Figure):
    """Image, raters, samples and saliency of some test slices of LIDC or BraTS."""

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="MODEL ...")]
    """runs, model folders or names of bundled weights, one row each"""
    data: str | None  # prepared store; default with LIDC: the embedded one
    out: Path  # picture to write, a .png
    cases: int  # number of slices, of different patients, that a rater marked: the first of one seeded order
    variance: bool  # a column for the variance of the samples
    samples: int = 16  # masks per slice; the first four are shown
    seed: int = 0  # seed of the slices and the samples
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def run(self) -> None:
        from berdiff.inference.model import load
        from reproduce.examples import make_examples, plot_examples

        _expect_png(self.out)
        store, models = open_data(self.data), [load(model, self.device) for model in self.models]
        with progress("segmenting") as update:
            examples = make_examples(models, store, self.cases, self.samples, self.seed, update)
        note(f"device: {models[0].device}")
        plot_examples(examples, self.out, store, self.samples, self.variance)
        self._print([self.out], self.out)


@dataclass(frozen=True)
class Process(_Figure):
    """The forward chain of a mask and the diverse reverse chains of its image (figure 1)."""

    out: Path = Path("out/process.png")  # picture to write, a .png
    model: str = "lidc"  # run, model folder or name of bundled weights, of a Bernoulli diffusion
    data: str | None = None  # prepared store; default: the embedded one
    case: str | None = None  # name of a case of the store; default: the first of one seeded order
    chains: int = 4  # reverse chains
    seed: int = 0  # seed of the case, of the noise and of the samples
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...
    sampler: OmitArgPrefixes[SamplerOptions] = field(default_factory=SamplerOptions)

    def run(self) -> None:
        from berdiff.inference.model import load
        from reproduce.process import expect_bernoulli, plot_process, run_process

        _expect_png(self.out)
        model = load(self.model, self.device)
        expect_bernoulli(model)  # the embedded data takes a minute to make
        store = open_data(self.data)
        note(f"device: {model.device}")
        with progress("sampling") as update:
            process = run_process(model, store, self.chains, self.case, self.seed, self.sampler, update)
        plot_process(process, self.out)
        self._print([self.out], self.out)


@dataclass(frozen=True)
class Frontier(_Figure):
    """GED, Dice or another metric against the seconds for the masks of an image, one point per evaluation."""

    evaluations: Annotated[Positional[tuple[Path, ...]], arg(metavar="EVALUATION ...")]
    """finished folders of `berdiff evaluate`, of the same data, or rows that `berdiff table --kept` has kept"""
    models: tuple[str, ...] = ()
    """their models in the same order: seconds are then measured here, side by side (run nothing else meanwhile);
    without them, those that the evaluations recorded are taken"""
    data: str | None = None
    """prepared store of kept rows, which have no weights: seconds are measured on their networks with fresh ones"""
    metric: str = "ged_16"  # metric of metrics.json: ged_16, hm_iou_16, dice_slice, dice_patient, ...
    out: Path = Path("out/frontier")  # folder for frontier.png and frontier.csv
    repeats: int = 3  # number of measurements, whose median counts
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def run(self) -> None:
        from berdiff.device import choose_device
        from berdiff.inference.model import load
        from reproduce.frontier import fresh_models, make_frontier, write_frontier

        device, fresh = choose_device(self.device), self.data is not None
        if fresh and self.models:
            raise InputError(f"--data: expected none beside --models, whose weights are measured, found {self.data}")
        models = fresh_models(self.evaluations, open_data(self.data), device) if fresh else []
        models = models or [load(model, device) for model in self.models]
        with progress("measuring") as update:
            frontier = make_frontier(self.evaluations, models, self.metric, self.repeats, update, fresh)
        points, files = write_frontier(frontier, self.out), [self.out / "frontier.png", self.out / "frontier.csv"]
        self._print(files, points, f"figure: {files[0]}")


def _expect_png(out: Path) -> None:
    if out.suffix != ".png":
        raise InputError(f"--out: expected a name ending in .png, found {out}")


LIDC = Examples(("lidc",), None, Path("out/examples-lidc.png"), 2, False)
BRATS = Examples(tyro.MISSING, tyro.MISSING, Path("out/examples-brats.png"), 4, True)
Figure = (
    Toy
    | Cost
    | Process
    | Frontier
    | Annotated[Examples, subcommand("examples-lidc", default=LIDC)]
    | Annotated[Examples, subcommand("examples-brats", default=BRATS)]
)


def command(argv: list[str]) -> None:
    about = "Plot a figure of the paper, or what sampling costs and gives."
    options = parse(Figure, argv, "figure", description=about)  # type: ignore[arg-type]
    keep_freed_memory()
    options.run()

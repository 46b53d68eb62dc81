"""berdiff figure NAME: the figures of the paper, and what sampling costs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, subcommand

from berdiff.display import progress
from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory


@dataclass(frozen=True)
class Toy:
    """The paper's 1D toy (figure A2): Bernoulli against Gaussian diffusion on two functions. About a minute."""

    out: Path = Path("out/toy")  # folder for toy.png, toy.md and toy.json
    seeds: int = 5  # number of seeds, trained side by side

    def run(self) -> None:
        if self.seeds < 1:
            raise InputError(f"--seeds: expected at least 1, found {self.seeds}")
        from berdiff.experiments.toy import ToyConfig, run_toy
        from berdiff.experiments.toy_figure import write_toy

        config = ToyConfig(seeds=self.seeds)
        with progress("training") as update:
            curves = run_toy(config, update)
        print(f"{write_toy(config, curves, self.out)}\nfigure: {self.out / 'toy.png'}")


@dataclass(frozen=True)
class Cost:
    """The cost of sampling over masks and over steps, in one run. Run nothing else meanwhile."""

    out: Path = Path("out/cost")  # folder for cost.png and cost.csv
    model: str = "lidc-readers"  # name of bundled weights, model folder or folder of a run
    samples: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)  # numbers of masks of one image, each in 10 steps
    steps: tuple[int, ...] = (2, 5, 10, 20, 50)  # numbers of steps, each for 16 masks
    size: tuple[int, int] | None = None  # height and width of the image; default: what the model was trained at
    paper_pass: bool = True  # one pass of the paper's 85.6 M network at the same size, measured too and shown as a line
    repeats: int = 3  # number of measurements, whose median counts
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def run(self) -> None:
        from berdiff.experiments.cost import measure, write_cost
        from berdiff.inference.model import load

        model = load(self.model, self.device, self.size)
        print(f"device: {model.device}", file=sys.stderr)
        with progress("measuring") as update:
            cost = measure(model, self.samples, self.steps, self.paper_pass, self.repeats, update)
        print(f"{write_cost(cost, self.out)}\nfigure: {self.out / 'cost.png'}")


@dataclass(frozen=True)
class Curves:
    """Validation GED and HM-IoU over iterations for both kernels (figure A1)."""

    table: Annotated[Positional[Path], tyro.conf.arg(metavar="TABLE")]
    """folder of `berdiff table kernel`, finished or not"""
    out: Path = Path("out/curves")  # folder for curves.png and curves.csv

    def run(self) -> None:
        from berdiff.experiments.curves import write_curves

        print(write_curves(self.table, self.out))


@dataclass(frozen=True)
class Examples:
    """Image, raters, samples and saliency of some test slices of LIDC or BraTS."""

    models: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="MODEL ...")]
    """runs, model folders or names of bundled weights, one row each"""
    data: str | None  # prepared store; default with LIDC: the embedded one
    out: Path  # picture to write, a .png
    cases: int  # number of slices, the first of one seeded order
    variance: bool  # a column for the variance of the samples
    samples: int = 16  # masks per slice; the first four are shown
    seed: int = 0  # seed of the slices and the samples
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def run(self) -> None:
        from berdiff.data.store import open_store
        from berdiff.experiments.examples import make_examples, plot_examples
        from berdiff.inference.model import load

        if self.out.suffix != ".png":
            raise InputError(f"--out: expected a name ending in .png, found {self.out}")
        store, models = open_store(self.data), [load(model, self.device) for model in self.models]
        examples = make_examples(models, store, self.cases, self.samples, self.seed)
        print(f"device: {models[0].device}", file=sys.stderr)
        plot_examples(examples, self.out, store, self.samples, self.variance)
        print(self.out)


LIDC = Examples(("lidc",), None, Path("out/examples-lidc.png"), 2, False)
BRATS = Examples(tyro.MISSING, tyro.MISSING, Path("out/examples-brats.png"), 4, True)
Figure = (
    Toy
    | Cost
    | Curves
    | Annotated[Examples, subcommand("examples-lidc", default=LIDC)]
    | Annotated[Examples, subcommand("examples-brats", default=BRATS)]
)


def command(argv: list[str]) -> None:
    about = "Plot a figure of the paper, or what sampling costs."
    config = (tyro.conf.FlagCreatePairsOff,)
    options = tyro.cli(Figure, args=argv, prog="berdiff figure", description=about, config=config)  # type: ignore[arg-type]
    keep_freed_memory()
    options.run()

"""`berdiff figure NAME`: the figures of the paper, and what sampling costs."""

from pathlib import Path
from typing import Annotated

import tyro

from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory


def toy(out: Path = Path("out/toy"), seeds: int = 5) -> None:
    """The paper's 1D toy (figure A2): Bernoulli against Gaussian diffusion on two functions. About a minute.

    Args:
        out: the folder for toy.png, toy.md and toy.json.
        seeds: how many are trained, side by side.
    """
    if seeds < 1:
        raise InputError(f"--seeds: expected at least 1, found {seeds}")
    from berdiff.cli.progress import progress
    from berdiff.experiments.toy import ToyConfig, run_toy
    from berdiff.experiments.toy_figure import write_toy

    keep_freed_memory()
    config = ToyConfig(seeds=seeds)
    with progress("training") as update:
        curves = run_toy(config, update)
    print(write_toy(config, curves, out))
    print(f"\nfigure: {out / 'toy.png'}")


def cost(
    out: Path = Path("out/cost"),
    model: str = "lidc-readers",
    samples: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    steps: tuple[int, ...] = (2, 5, 10, 20, 50),
    size: tuple[int, int] | None = None,
    paper_pass: bool = True,
    repeats: int = 3,
) -> None:
    """The cost of sampling over masks and over steps, in one run. Run nothing else meanwhile.

    Args:
        out: the folder for cost.png and cost.csv.
        model: the name of bundled weights, a model folder or the folder of a run.
        samples: masks of one image, each in 10 steps.
        steps: of 16 masks.
        size: H W of the image; default: what the model was trained at.
        paper_pass: measure one pass of the paper's 85.6 M network at the same size too, and draw it as a line.
        repeats: of which the median counts.
    """
    from berdiff.cli.progress import progress
    from berdiff.experiments.cost import SAMPLES, STEPS, measure, write_cost
    from berdiff.inference.model import load

    keep_freed_memory()
    with progress("measuring") as update:
        measured = measure(load(model, size=size), samples, steps, paper_pass, repeats, update)
    write_cost(measured, out)
    seconds, one_pass = measured.at(SAMPLES, STEPS), measured.paper_pass
    beside = "" if one_pass is None else f", {seconds / one_pass:.2f} passes of the paper's network"
    print(f"{SAMPLES} masks in {STEPS} steps: {seconds:.3g} s{beside}\nfigure: {out / 'cost.png'}")


def curves(table: Annotated[Path, tyro.conf.Positional], out: Path = Path("out/curves")) -> None:
    """Validation GED and HM-IoU over iterations for both kernels (figure A1).

    Args:
        table: the folder of `berdiff table kernel`, finished or under way
        out: the folder for curves.png and curves.csv
    """
    from berdiff.experiments.curves import write_curves

    print(write_curves(table, out))


def examples_lidc(
    models: Annotated[tuple[str, ...], tyro.conf.Positional] = ("lidc",),
    data: str | None = None,
    out: Path = Path("out/examples-lidc.png"),
    cases: int = 2,
    samples: int = 16,
    seed: int = 0,
    device: str = "cpu",
) -> None:
    """Image, readers, samples and saliency of some LIDC test slices.

    Args:
        models: runs, model folders or names of bundled weights, a row each
        data: a prepared store; default: the embedded one
        out: the picture to write, a .png
        cases: how many slices, the first of one seeded order
        samples: masks drawn for each; the first four are shown
        seed: of the slices and the samples
        device: cpu, cuda, ...
    """
    _examples(models, data, out, cases, samples, seed, device, variance=False)


def examples_brats(
    models: Annotated[tuple[str, ...], tyro.conf.Positional],
    data: str,
    out: Path = Path("out/examples-brats.png"),
    cases: int = 4,
    samples: int = 16,
    seed: int = 0,
    device: str = "cpu",
) -> None:
    """Image, mask, samples, saliency and variance of some BraTS test slices.

    Args:
        models: runs or model folders, a row each
        data: a prepared store of `berdiff data prepare brats`
        out: the picture to write, a .png
        cases: how many slices, the first of one seeded order
        samples: masks drawn for each; the first four are shown
        seed: of the slices and the samples
        device: cpu, cuda, ...
    """
    _examples(models, data, out, cases, samples, seed, device, variance=True)


def _examples(
    models: tuple[str, ...],
    data: str | None,
    out: Path,
    cases: int,
    samples: int,
    seed: int,
    device: str,
    variance: bool,
) -> None:
    from berdiff.data.store import open_store
    from berdiff.evaluation.models import open_model
    from berdiff.experiments.examples import draw_examples, examples_caption, make_examples

    if out.suffix != ".png":
        raise InputError(f"--out: expected a name ending in .png, found {out}")
    keep_freed_memory()
    store = open_store(data)
    made = make_examples([open_model(model, device) for model in models], store, cases, samples, seed, device)
    draw_examples(made, out, examples_caption(made, store, samples), variance)
    print(out)


FIGURES = {"toy": toy, "cost": cost, "curves": curves, "examples-lidc": examples_lidc, "examples-brats": examples_brats}


def command(argv: list[str]) -> None:
    tyro.extras.subcommand_cli_from_dict(
        FIGURES,
        prog="berdiff figure",
        description="Draw a figure of the paper, or of what sampling costs.",
        args=argv,
    )

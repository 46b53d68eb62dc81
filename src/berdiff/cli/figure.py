"""`berdiff figure NAME`: the figures of the paper."""

from pathlib import Path

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


def command(argv: list[str]) -> None:
    tyro.extras.subcommand_cli_from_dict(
        {"toy": toy}, prog="berdiff figure", description="Draw a figure of the paper.", args=argv
    )

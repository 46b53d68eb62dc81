"""The command line: pick the command, import only that, and run it behind the boundary that speaks in sentences."""

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from berdiff import __version__, display

# name -> what it is for; the module is berdiff.cli.<name>, which offers command(argv). Nothing is imported before it is
# asked for, so `berdiff --help` answers at once.
COMMANDS = {
    "data": "prepare data sets, verify them, show what is in them",
    "train": "train a model or resume a run",
    "runs": "list training runs",
    "plot": "plot learning curves of runs",
    "evaluate": "evaluate a model on a split: GED, HM-IoU, Dice, calibration",
    "segment": "segment images and volumes: masks, saliency, measurements",
    "view": "look at images in the browser, 3D Slicer or OHIF; masks at a click",
    "compare": "paired differences between evaluations",
    "search": "search for the best sampler of a model on the validation split",
    "doctor": "show versions, devices, data folders, and what is missing for what",
    "demo": "segment held-out cases with the bundled weights",
    "export": "export a model as ONNX or as a MONAI bundle",
    "push": "publish a model on a model hub, hf://owner/name",
    "table": "a table of the paper: train and evaluate its rows (repository)",
    "figure": "a figure of the paper, or what sampling costs (repository)",
}
REPRODUCE = ("table", "figure")  # in reproduce/cli, which is in no wheel
LINES = "\n".join(f"  {name:<10}{purpose}" for name, purpose in COMMANDS.items())
USAGE = f"""berdiff {__version__}: Bernoulli diffusion for medical image segmentation

usage: berdiff COMMAND [OPTIONS]

{LINES}

`berdiff COMMAND --help` lists the options of a command, `berdiff --version`
prints the version. Every command takes --quiet: no progress bar and no notices,
only results and errors. `berdiff --debug COMMAND` shows the traceback of an
error."""
QUIET = "every command: --quiet  no progress bar and no notices, only results and errors"


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    argv = [word for word in words if word != "--quiet"]  # of every command
    display.be_quiet(len(argv) < len(words))
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(USAGE)
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    if argv[0] == "--debug":
        os.environ["BERDIFF_DEBUG"] = "1"  # for the processes that the command starts, too
        argv = argv[1:]
    name, *rest = argv or [""]
    if name not in COMMANDS:
        print(f"berdiff: no command {name!r}; expected one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    from berdiff.boundary import run, show_any_name

    show_any_name()
    code: Any = 1
    try:
        code = run(name, lambda: _command(name)(rest))
    except SystemExit as leaving:  # as help does
        code = leaving.code or 0
        raise
    finally:
        if code == 0 and {"-h", "--help"} & {*rest}:
            print(QUIET)
    return code


def _command(name: str) -> Callable[[list[str]], None]:
    if name not in REPRODUCE:
        return import_module(f"berdiff.cli.{name}").command
    from berdiff.cli import repository

    return repository.command(name)


if __name__ == "__main__":
    sys.exit(main())

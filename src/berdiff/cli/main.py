"""The command line: pick the command, import only that, turn bad input into one sentence and exit code 2."""

import os
import sys
from importlib import import_module

from berdiff import __version__
from berdiff.errors import InputError

# name -> what it is for; the module is berdiff.cli.<name>, which offers command(argv). Nothing is imported before it is
# asked for, so `berdiff --help` answers at once.
COMMANDS = {
    "data": "bring data into a prepared store, check it and look at it",
    "train": "train a model, or go on with a run",
    "runs": "list the runs in a folder",
    "plot": "draw the curves of runs",
    "evaluate": "score a model on a split: GED, HM-IoU, Dice, calibration",
    "segment": "segment images and volumes: masks, saliency, measurements",
    "compare": "paired differences between evaluations",
    "search": "find the sampler that suits a trained model, on the validation split",
    "demo": "segment held-out cases with the bundled weights, and look at them",
    "export": "write a model as ONNX, for programs without PyTorch",
    "table": "make a table of the paper: train and judge its rows, with the paper's beside ours",
    "figure": "draw a figure of the paper, or of what sampling costs",
}


def usage() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            f"berdiff {__version__}: Bernoulli diffusion for medical image segmentation",
            "",
            "usage: berdiff COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "`berdiff COMMAND --help` tells a command's options.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if argv[0] == "--version":
        print(__version__)
        return 0
    name, *rest = argv
    if name not in COMMANDS:
        print(f"berdiff: no command {name!r}; expected one of {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        import_module(f"berdiff.cli.{name}").command(rest)
    except InputError as error:
        print(f"berdiff {name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `berdiff ... | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the flush at exit finds no broken pipe
        return 1
    except KeyboardInterrupt:
        print(f"berdiff {name}: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""berdiff segment MODEL INPUT... --out DIR"""

import sys
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg

from berdiff.cli.progress import progress
from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory

Kind = Literal[
    "samples",
    "saliency",
    "variance",
    "mask",
    "contours",
    "representatives",
    "json",
    "overlay",
    "panel",
    "nifti",
    "dicom-seg",
    "report",
]
_MOST_ROWS = 20


def segment(
    model: Annotated[Positional[str], arg(metavar="MODEL")],
    inputs: Annotated[Positional[tuple[str, ...]], arg(metavar="INPUT")],
    out: Path,
    samples: int = 16,
    steps: tuple[int, ...] | None = None,
    sampler: Literal["ddim", "ddpm"] | None = None,
    posterior: Literal["soft", "marginal"] | None = None,
    last_step: Literal["threshold", "sample"] | None = None,
    latent: Literal["pixel", "shared"] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    center: tuple[int, ...] | None = None,
    box: tuple[int, ...] | None = None,
    slices: str | None = None,
    pad: bool = False,
    size: tuple[int, int] | None = None,
    overlap: float = 0.25,
    window: tuple[float, float] | None = None,
    write: tuple[Kind, ...] | None = None,
    representatives: int = 3,
    split: str = "test",
    limit: int | None = None,
    device: str = "cpu",
    json_: Annotated[bool, arg(name="json")] = False,
) -> None:
    """Segment images and volumes: plausible masks, how often each occurs, and what they mean in millimetres.

    The same command goes on where it was interrupted. A bad file is told in one sentence and the others go on; the exit
    code is then 2.

    Args:
        model: a model folder, the folder of a run, or the name of bundled weights
        inputs: PNG, JPG, TIFF, NIfTI, DICOM or .npy files, folders of them, globs, or a prepared store
        out: where results go, a folder for each input
        samples: masks drawn for each image
        steps: of the sampler: how many, at most the model's T, or the steps themselves, falling; default, as for the
            next four: the model's own
        sampler: the rule of a step
        posterior: of DDPM's rule: the paper's soft form, or the exact marginal
        last_step: threshold the last estimate (paper) or draw from it
        latent: draw each pixel by itself (paper), or all of a mask by one level: for few steps
        seed: of the samples: a mask depends on it, the input's name, the slice and the sample's number alone
        batch_size: images or slices drawn together
        center: Y X, or Z Y X for one slice: segment a region of the network's size around it
        box: Y0 X0 Y1 X1, or Z0 Y0 X0 Z1 Y1 X1: segment this region
        slices: A:B: of a volume only these slices, counted from 0 at the feet
        pad: put zeros around images that are smaller than the network
        size: H W that the network sees at once; default: what it was trained at
        overlap: of neighbouring windows, where an image is larger than the network
        window: the values that become 0 and 1, such as Hounsfield units -1000 400; default: the model's own
        write: what to write; default: samples saliency mask representatives json overlay for images, nifti json overlay
            for NIfTI and other volumes, dicom-seg json overlay for DICOM
        representatives: how many masks are to stand for all
        split: of a prepared store: train, val, test or all
        limit: only so many inputs; of a store, the first of one seeded order
        device: cpu, cuda, cuda:1, ...
        json_: print the summary as JSON
    """
    from berdiff.inference.draw import Settings
    from berdiff.inference.inputs import find
    from berdiff.inference.model import load
    from berdiff.inference.region import Region
    from berdiff.inference.run import Output, Run
    from berdiff.methods.sampler import choose_sampler

    region = Region(center, box, _slices(slices), pad)
    keep_freed_memory()
    loaded = load(model, device, size)
    asked = {"rule": sampler, "posterior": posterior, "last_step": last_step, "latent": latent}
    chosen = choose_sampler(loaded.segmenter, steps, **asked)
    settings = Settings(samples, chosen, seed, region, overlap, batch_size)
    found = find(inputs, loaded.channels, split, limit, seed)
    alone = len(found) == 1
    with progress(f"segmenting with {loaded.name}") as step:
        say = (lambda sentence: None) if alone else (lambda sentence: print(sentence, file=sys.stderr, flush=True))
        summary = Run(loaded, settings, Output(out, write, representatives), window, step, say).segment(found)
    if json_:
        print(dumps({"out": str(out), **vars(summary)}, indent=2))
    else:
        _print(summary, out)
    if summary.failed:
        sentence = next(iter(summary.failed.values()))
        raise InputError(sentence if alone else f"{len(summary.failed)} of {len(found)} inputs failed, as told above")


def _slices(text: str | None) -> tuple[int | None, int | None] | None:
    if text is None:
        return None
    first, colon, last = text.partition(":")
    try:
        ends = (int(first) if first else None, int(last) if last else None)
    except ValueError:
        ends = (-1, -1)
    if not colon or any(end is not None and end < 0 for end in ends):
        raise InputError(f"--slices: expected A:B with whole numbers, either of which may be left out, found {text!r}")
    return ends


def _print(summary: Any, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    rows = [
        (
            name,
            target,
            f"{of['finding_probability']:.0%}",
            _range(of.get("area") or of["volume"]),
            _range(of["longest_diameter"]),
        )
        for name, targets in summary.measurements.items()
        for target, of in targets.items()
    ]
    if rows:
        table = Table("input", "target", "finding", "size: median (5-95 %)", "longest diameter: median (5-95 %)")
        for row in rows[:_MOST_ROWS]:
            table.add_row(*row)
        console.print(table)
        if len(rows) > _MOST_ROWS:
            console.print(f"... and {len(rows) - _MOST_ROWS} more")
    counts = f"{len(summary.done)} segmented, {len(summary.skipped)} found done, {len(summary.failed)} failed"
    console.print(f"{counts}; results in {out}", markup=False, highlight=False)
    console.print("For research; not for clinical use.")


def _range(of: dict[str, Any]) -> str:
    return f"{of['q50']:.1f} ({of['q05']:.1f}-{of['q95']:.1f}) {of['unit']}"


def command(argv: list[str]) -> None:
    tyro.cli(segment, args=argv, prog="berdiff segment", config=(FlagCreatePairsOff,))

"""berdiff data prepare | verify | info | show"""

import dataclasses
import sys
from json import dumps
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from berdiff.cli.progress import progress
from berdiff.errors import InputError


def command(argv: list[str]) -> None:
    if argv[:1] == ["prepare"]:
        prepare(argv[1:])
    else:
        tyro.extras.subcommand_cli_from_dict(
            {"prepare": _prepare_help, "verify": verify, "info": info, "show": show},
            args=argv,
            prog="berdiff data",
            config=(FlagCreatePairsOff,),
            description="Bring data into a prepared store, check it and look at it.",
        )


def _prepare_help() -> None:
    """Bring a data set into a prepared store: berdiff data prepare SOURCE PATH OUT."""


def prepare(argv: list[str]) -> None:
    """Read one layout and write a store. Only the source that is asked for is imported."""
    from berdiff.data.sources import SOURCES, source

    if not argv or argv[0] in ("-h", "--help"):
        width = max(map(len, SOURCES))
        print("usage: berdiff data prepare SOURCE PATH OUT [OPTIONS]\n")
        print("\n".join(f"  {name:<{width}}  {purpose}" for name, purpose in SOURCES.items()))
        print("\n`berdiff data prepare SOURCE --help` tells a source's options.")
        return
    name, *rest = argv
    asked = tyro.cli(
        _arguments(name, source(name)), args=rest, prog=f"berdiff data prepare {name}", config=(FlagCreatePairsOff,)
    )
    from berdiff.data.prepare import prepare as write

    with progress(f"preparing {asked.out}") as step:
        manifest = write(
            name,
            getattr(asked, "path", None),
            asked.out,
            asked.source,
            seed=asked.seed if hasattr(asked, "seed") else asked.source.seed,
            val=asked.val,
            test=asked.test,
            resplit=asked.resplit,
            progress=step,
        )
    if asked.json:
        print(dumps(_summary(str(asked.out), manifest)))
    else:
        _print(str(asked.out), manifest)


@dataclasses.dataclass(frozen=True)
class _Path:
    path: Positional[Path]
    """The file or folder to read."""


@dataclasses.dataclass(frozen=True)
class _Seed:
    seed: int = 0
    """Of the split by patient."""


@dataclasses.dataclass(frozen=True)
class _Prepare:
    out: Annotated[Positional[Path], arg(metavar="OUT")]
    """The store to write; it must not exist yet."""
    val: float = 0.1
    """Fraction of the patients for validation, where the source has no split of its own."""
    test: float = 0.2
    """Fraction of the patients for test, where the source has no split of its own."""
    resplit: bool = False
    """Split by patient even where the source has a split of its own."""
    json: bool = False
    """Print the summary as JSON."""


def _arguments(name: str, module: ModuleType) -> Any:
    """The command line of a source: PATH (unless it reads none), OUT, and its own options as flags.

    One --seed is for all that is random: where the source has one, the split by patient takes that.
    """
    bases: tuple[type, ...] = (_Prepare,) if name == "lidc-readers" else (_Prepare, _Path)  # the last comes first
    if "seed" not in {option.name for option in dataclasses.fields(module.Options)}:
        bases = (_Seed, *bases)
    options = (
        "source",
        OmitArgPrefixes[module.Options],  # type: ignore[name-defined]
        dataclasses.field(default_factory=module.Options),
    )
    made = dataclasses.make_dataclass("Prepare", [options], bases=bases, frozen=True)
    made.__doc__ = module.__doc__
    return made


def verify(store: Annotated[Positional[str], arg(metavar="STORE")], json: bool = False) -> None:
    """Check a store: every byte, count and value, and that no patient is in two splits.

    Args:
        store: A folder or any fsspec address.
        json: Print the faults as JSON.
    """
    from berdiff.data.verify import verify as faults_of

    with progress(f"verifying {store}") as step:
        faults = faults_of(store, step)
    if json:
        print(dumps({"store": store, "faults": faults}))
    else:
        for fault in faults[1:]:
            print(fault, file=sys.stderr)
        print(f"{store}: {'whole' if not faults else f'{len(faults)} faults'}")
    if faults:
        raise InputError(faults[0])


def info(store: Annotated[Positional[str | None], arg(metavar="[STORE]")] = None, json: bool = False) -> None:
    """Tell what a store holds; without STORE, the embedded one.

    Args:
        store: A folder or any fsspec address.
        json: Print it as JSON.
    """
    from berdiff.data.store import open_store

    with progress("preparing the embedded data, once") as step:
        opened = open_store(store, step)
    if json:
        print(dumps(_summary(opened.address, opened.manifest)))
    else:
        _print(opened.address, opened.manifest)


def show(
    store: Annotated[Positional[str | None], arg(metavar="[STORE]")] = None,
    out: Path = Path("contact-sheet.png"),
    split: str = "all",
    count: int = 8,
    seed: int = 0,
) -> None:
    """Write a contact sheet: image, each reader, and their agreement.

    Args:
        store: A folder or any fsspec address; without it, the embedded store.
        out: The picture to write (PNG).
        split: train, val, test or all.
        count: How many cases.
        seed: Of the choice of cases.
    """
    from berdiff.data.sheet import choose, contact_sheet
    from berdiff.data.store import open_store

    with progress("preparing the embedded data, once") as step:
        opened = open_store(store, step)
    contact_sheet(opened, choose(opened, split, count, seed), out)
    print(out)


def _summary(address: str, manifest: Any) -> dict[str, Any]:
    """The manifest without the checksums, which are for `verify`."""
    values = {key: value for key, value in dataclasses.asdict(manifest).items() if key != "files"}
    return {"store": address, **values}


def _print(address: str, manifest: Any) -> None:
    height, width = manifest.size
    if manifest.split["by"] == "patient":
        split = "by patient, seed {seed}, val {val}, test {test}".format(**manifest.split)
    else:
        split = "the source's own"
    lines = {
        "store": address,
        "source": f"{manifest.source} {manifest.path}".strip(),
        "options": ", ".join(f"{key}={value}" for key, value in manifest.options.items()) or "none",
        "images": f"{height}x{width} {manifest.dtype}, channels {', '.join(manifest.channels)}",
        "masks": f"up to {manifest.raters} readers, targets {', '.join(manifest.targets)}",
        "split": split,
        **{f"note {i + 1}": note for i, note in enumerate(manifest.notes)},
    }
    for key, value in lines.items():
        print(f"{key:<8} {value}")
    print(f"\n{'split':<8} {'cases':>8} {'patients':>8}")
    for name in ("train", "val", "test", "all"):
        count = manifest.counts[name]
        print(f"{name:<8} {count['cases']:>8} {count['patients']:>8}")

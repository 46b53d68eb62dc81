"""berdiff data prepare | verify | info | show"""

import dataclasses
import sys
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from berdiff.cli.opening import open_data
from berdiff.data.limits import Limits, using
from berdiff.display import progress
from berdiff.errors import InputError
from berdiff.schema import check

ADDRESS = "A folder or the address of an object store, such as s3://bucket/store"
Address = Annotated[Positional[str | None], arg(metavar="[STORE]", help=f"{ADDRESS}; without it, the embedded store.")]
Json = Annotated[bool, arg(help="Print the result as JSON.")]


def command(argv: list[str]) -> None:
    if argv[:1] == ["prepare"]:
        prepare(argv[1:])
    else:
        commands: Any = {"prepare": Prepare, "verify": verify, "info": info, "show": show}
        purpose = "Bring data into a prepared store, check it and look at it."
        tyro.extras.subcommand_cli_from_dict(
            commands, args=argv, prog="berdiff data", description=purpose, config=(FlagCreatePairsOff,)
        )


def prepare(argv: list[str]) -> None:
    """Read one layout and write a store. Only the source that is asked for is imported."""
    from berdiff.data.sources import find_source, purposes

    if not argv or argv[0] in ("-h", "--help"):
        listed = "\n".join(f"  {name:<12}  {purpose}" for name, purpose in purposes().items())
        print(f"usage: berdiff data prepare SOURCE PATH OUT [OPTIONS]\n\n{listed}\n")
        return print("`berdiff data prepare SOURCE --help` lists a source's options.")
    name, *rest = argv
    arguments = _arguments(find_source(name))
    asked = tyro.cli(arguments, args=rest, prog=f"berdiff data prepare {name}", config=(FlagCreatePairsOff,))
    from berdiff.data.prepare import prepare as write

    if asked.seed < 0:
        raise InputError(f"--seed: expected at least 0, found {asked.seed}")
    split = {option: getattr(asked, option) for option in ("seed", "val", "test", "resplit")}
    limits = check(asked.limits, Limits, lambda setting: f"--{setting.replace('_', '-')}")
    with using(limits), progress(f"preparing {asked.out}") as step:
        manifest = write(name, getattr(asked, "path", None), asked.out, asked.source, **split, progress=step)
    _print(asked.out, manifest, asked.json)


@dataclass(frozen=True)
class _Path:
    path: Positional[Path]
    """The file or folder to read."""


@dataclass(frozen=True)
class Prepare:
    """Bring a data set into a prepared store: berdiff data prepare SOURCE PATH OUT."""

    out: Annotated[Positional[str], arg(metavar="OUT")]
    """The store to write, a folder or an address such as s3://bucket/store; it must not exist yet."""
    seed: int = 0
    """Of the split by patient."""
    val: float = 0.1
    """Fraction of the patients for validation, where the source has no split of its own."""
    test: float = 0.2
    """Fraction of the patients for test, where the source has no split of its own."""
    resplit: bool = False
    """Split by patient even where the source has a split of its own."""
    limits: OmitArgPrefixes[Limits] = dataclasses.field(default_factory=Limits)
    json: Json = False


def _arguments(source: ModuleType) -> Any:
    """The command line of a source: PATH (unless it reads none), OUT, and its own options as flags."""
    bases = (Prepare, _Path) if getattr(source, "NEEDS_PATH", True) else (Prepare,)  # the last comes first
    options = ("source", OmitArgPrefixes[source.Options], dataclasses.field(default_factory=source.Options))
    return dataclasses.make_dataclass(
        "Prepare", [options], bases=bases, namespace={"__doc__": source.__doc__}, frozen=True
    )


def verify(store: Annotated[Positional[str], arg(metavar="STORE", help=ADDRESS + ".")], json: Json = False) -> None:
    """Check a store: every byte, count and value, and that no patient is in two splits."""
    from berdiff.data.verify import verify as find_faults

    with progress(f"verifying {store}") as step:
        faults = find_faults(store, step)
    if not json:
        print("".join(f"{fault}\n" for fault in faults[1:]), end="", file=sys.stderr)
    found = f"{len(faults)} faults" if faults else "whole"
    print(dumps({"store": store, "faults": faults}) if json else f"{store}: {found}")
    if faults:
        raise InputError(faults[0])


def info(store: Address = None, json: Json = False) -> None:
    """Print what a store holds."""
    opened = open_data(store)
    _print(opened.address, opened.manifest, json)


def show(
    store: Address = None,
    out: Annotated[Path, arg(help="The picture to write (PNG).")] = Path("contact-sheet.png"),
    split: Annotated[str, arg(help="train, val, test or all.")] = "all",
    count: Annotated[int, arg(help="How many cases.")] = 8,
    seed: Annotated[int, arg(help="Of the choice of cases.")] = 0,
    json: Json = False,
) -> None:
    """Write a contact sheet: image, each rater, and their agreement."""
    from berdiff.data.subset import choose_cases
    from berdiff.output.contact_sheet import contact_sheet

    opened = open_data(store)
    chosen = choose_cases(opened, split, count, seed, spread=True, option="--count")
    contact_sheet(opened, chosen, out)
    cases = [str(name) for name in opened.cases.case[chosen]]
    print(dumps({"figure": str(out), "cases": cases}) if json else out)


def _print(address: str, manifest: Any, json: bool) -> None:
    """The manifest without the checksums, which are for `verify`."""
    from berdiff.schema import plain
    from berdiff.targets.kinds import RULES
    from berdiff.text_tables import show_pairs

    values = {key: value for key, value in plain(manifest).items() if key != "files"}
    values = {"store": address, **values.pop("input_spec"), **values}
    if json:
        return print(dumps(values))
    kind = f" ({manifest.input_spec.kind}: {RULES[manifest.input_spec.kind]})" if len(values["targets"]) > 1 else ""
    by_patient = "by patient, seed {seed}, val {val}, test {test}"
    lines = {
        "store": address,
        "source": f"{values['source']} {values['path']}".strip(),
        "options": ", ".join(f"{key}={value}" for key, value in values["options"].items()) or "none",
        "images": "{size[0]}x{size[1]} {dtype}, channels ".format(**values) + ", ".join(values["channels"]),
        "values": f"in [0, 1] by the rule {values['intensity']['rule']}",
        "masks": f"up to {values['raters']} raters, targets {', '.join(values['targets'])}{kind}",
        "split": by_patient.format(**values["split"]) if values["split"]["by"] == "patient" else "the source's own",
        **{f"note {i + 1}": note for i, note in enumerate(values["notes"])},
    }
    show_pairs([*lines.items()])
    print(f"\n{'split':<8} {'cases':>8} {'patients':>8}")
    for name in ("train", "val", "test", "all"):
        print("{0:<8} {cases:>8} {patients:>8}".format(name, **values["counts"][name]))

"""berdiff data prepare | verify | info | show"""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from berdiff import schema
from berdiff.cli.arguments import parse, print_json
from berdiff.cli.opening import open_data
from berdiff.data.limits import Limits, using
from berdiff.display import progress
from berdiff.errors import InputError

ADDRESS = "a folder or the address of an object store, such as s3://bucket/store"
StoreOrNone = Annotated[
    Positional[str | None], arg(metavar="[STORE]", help=f"{ADDRESS}; without it, the embedded store")
]
COMMANDS = {
    "prepare": "bring a data set (SOURCE PATH) into a prepared store (OUT)",
    "verify": "check every byte, count, value and split of a store",
    "info": "print what a store holds",
    "show": "write a contact sheet: image, each rater, and their agreement",
}


def command(argv: list[str]) -> None:
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        listed = "\n".join(f"  {name:<9}{purpose}" for name, purpose in COMMANDS.items())
        return print(f"usage: berdiff data COMMAND [OPTIONS]\n\n{listed}\n")
    if name == "prepare":
        return prepare(rest)
    if name not in COMMANDS:
        raise InputError(f"data: expected one of {', '.join(COMMANDS)}, found {name!r}", "name")
    parse({"verify": Verify, "info": Info, "show": Show}[name], rest, f"data {name}").run()


def prepare(argv: list[str]) -> None:
    """Read one layout and write a store. Only the source that is asked for is imported."""
    from berdiff.data.sources import find_source, purposes

    if not argv or argv[0] in ("-h", "--help"):
        listed = "\n".join(f"  {name:<12}  {purpose}" for name, purpose in purposes().items())
        print(f"usage: berdiff data prepare SOURCE PATH OUT [OPTIONS]\n\n{listed}\n")
        return print("`berdiff data prepare SOURCE --help` lists a source's options.")
    name, *rest = argv
    asked = parse(_arguments(find_source(name)), rest, f"data prepare {name}")
    from berdiff.data.prepare import prepare as write

    split = {option: getattr(asked, option) for option in ("seed", "val", "test", "resplit")}
    with using(asked.limits), progress(f"preparing {asked.out}") as step:
        manifest = write(name, getattr(asked, "path", None), asked.out, asked.source, **split, progress=step)
    _print(asked.out, manifest, asked.json)


@dataclass(frozen=True)
class _Path:
    path: Positional[Path]
    """the file or folder to read"""


@dataclass(frozen=True)
class Prepare(schema.Settings):
    """Bring a data set into a prepared store: berdiff data prepare SOURCE PATH OUT."""

    out: Annotated[Positional[str], arg(metavar="OUT")]
    """the store to write, a folder or an address such as s3://bucket/store; it must not exist yet"""
    seed: schema.Natural = 0
    """seed of the split by patient"""
    val: float = 0.1
    """fraction of the patients for validation, where the source has no split of its own"""
    test: float = 0.2
    """fraction of the patients for test, where the source has no split of its own"""
    resplit: bool = False
    """split by patient even where the source has a split of its own"""
    limits: OmitArgPrefixes[Limits] = dataclasses.field(default_factory=Limits)
    json: bool = False
    """print the result as JSON"""


def _arguments(source: ModuleType) -> Any:
    """The command line of a source: PATH (unless it reads none), OUT, and its own options as flags."""
    bases = (Prepare, _Path) if getattr(source, "NEEDS_PATH", True) else (Prepare,)  # the last comes first
    options = ("source", OmitArgPrefixes[source.Options], dataclasses.field(default_factory=source.Options))
    return dataclasses.make_dataclass(
        "Prepare", [options], bases=bases, namespace={"__doc__": source.__doc__}, frozen=True
    )


@dataclass(frozen=True)
class Verify:
    """Check a store: every byte, count and value, and that no patient is in two splits."""

    store: Annotated[Positional[str], arg(metavar="STORE", help=ADDRESS)]
    json: bool = False  # print the result as JSON

    def run(self) -> None:
        from berdiff.data.verify import verify

        with progress(f"verifying {self.store}") as step:
            faults = verify(self.store, step)
        if self.json:
            print_json({"store": self.store, "faults": faults})
        else:
            print("".join(f"{fault}\n" for fault in faults[1:]), end="", file=sys.stderr)
            print(f"{self.store}: {f'{len(faults)} faults' if faults else 'whole'}")
        if faults:
            raise InputError(faults[0], "damaged")


@dataclass(frozen=True)
class Info:
    """Print what a store holds."""

    store: StoreOrNone = None
    json: bool = False  # print the result as JSON

    def run(self) -> None:
        opened = open_data(self.store)
        _print(opened.address, opened.manifest, self.json)


@dataclass(frozen=True)
class Show:
    """Write a contact sheet: image, each rater, and their agreement."""

    store: StoreOrNone = None
    out: Path = Path("contact-sheet.png")  # the picture to write (PNG)
    split: str = "all"  # train, val, test or all
    count: int = 8  # number of cases
    seed: int = 0  # seed of the choice of cases
    json: bool = False  # print the result as JSON

    def run(self) -> None:
        from berdiff.data.subset import choose_cases
        from berdiff.output.contact_sheet import contact_sheet

        opened = open_data(self.store)
        chosen = choose_cases(opened, self.split, self.count, self.seed, spread=True, option="--count")
        contact_sheet(opened, chosen, self.out)
        if self.json:
            return print_json({"figure": self.out, "cases": [str(name) for name in opened.cases.case[chosen]]})
        print(self.out)


def _print(address: str, manifest: Any, json: bool) -> None:
    """The manifest without the checksums, which are for `verify`."""
    from berdiff.targets.kinds import RULES
    from berdiff.text_tables import show_pairs

    values = {key: value for key, value in schema.plain(manifest).items() if key != "files"}
    values = {"store": address, **values.pop("input_spec"), **values}
    if json:
        return print_json(values)
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

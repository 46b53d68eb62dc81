"""Every command in README, docs and notebooks is one: it parses, and it runs here, with stand-ins for data and models,
a few steps; or commands-not-run.toml lists it, with the reason and the test that runs it elsewhere."""

import importlib.util
import io
import os
import re
import shutil
import tomllib
from contextlib import redirect_stdout
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from dicom_writer import write_slice
from layouts import blobs, save

from berdiff.cli.main import COMMANDS, main
from berdiff.data.sources import SOURCES
from document_commands import ROOT, Command, commands, inline, not_run, parse

ALL, LISTED = commands(), not_run()
RUN = [command for command in ALL if not any(entry.covers(command) for entry in LISTED)]
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*")

# what makes a command small: these options take the place of its own
SMALL = {
    "train": "--max-steps 1 --validation.every 0 --loop.batch-size 2 --engine.devices 1 --engine.accelerator cpu",
    "evaluate": "--limit 2 --samples 2 --device cpu",
    "search": "--limit 2 --samples 2 --counts 5 --device cpu",
    "segment": "--samples 2 --steps 1 --views 1 --device cpu",
    "demo": "--cases 1 --samples 2 --device cpu",
    "table": "--steps 2 --slices 2 --device cpu",
}


def of_page(command: Command) -> str:
    return f"{command.page}: {command.line}"


def test_there_are_commands_and_most_are_run():
    assert len(ALL) > 100
    assert len(RUN) > 35
    assert {command.page.split("/")[-1] for command in ALL} >= {"README.md", "segment.md", "many-machines.md"}


def test_every_command_is_understood_by_the_real_parsers():
    incomplete = [entry for entry in LISTED if not entry.parses]
    wrong = [
        f"{of_page(command)}\n{said}"
        for command in ALL
        if command.argv[0] == "berdiff" and not any(entry.covers(command) for entry in incomplete)
        if (said := parse(command.argv[1:]))
    ]
    assert not wrong, "\n".join(wrong)


def test_an_unknown_option_is_found():
    assert "--no-such" in parse(["segment", "lidc", "scan.png", "--out", "results", "--no-such"])
    assert "--no-such" in parse(["runs", "--no-such"])
    assert parse(["train", "no-such-recipe"])


def test_the_list_of_what_is_not_run_is_true():
    """Every entry is about something, has a reason, and names a test that is there."""
    assert not [entry for entry in LISTED if not any(entry.covers(command) for command in ALL)]
    assert all(entry.reason for entry in LISTED)
    assert not [entry.by for entry in LISTED if entry.by and not (ROOT / entry.by).is_file()]


def test_options_inside_texts_exist():
    """`berdiff evaluate ... --limit 200` in a sentence: a command that exists, and options that it has."""
    texts: dict[str, str] = {}
    wrong = []
    for command in inline():
        words = [word for word in command.line.split()[1:] if word != "--debug"]  # of every command
        name = next((word for word in words if not word.startswith("-")), "")
        if name and name not in COMMANDS:
            wrong.append(of_page(command))
            continue
        options = set(OPTION.findall(command.line)) - {"--help", "--version", "--debug"}
        if options and command.page != "docs/results.md":  # which shows commands as run with 0.1.0
            text = texts.setdefault(key := " ".join(call(words)), "") or help_of(call(words))
            texts[key] = text
            wrong += [f"{of_page(command)}: {option}" for option in options if option not in text]
    assert not wrong, "\n".join(wrong)


def call(words: list[str]) -> list[str]:
    """Whose --help has the options of a command."""
    if words[0] == "train":
        return ["train", "lidc-cpu"]
    if words[:2] == ["data", "prepare"]:
        return ["data", "prepare", words[2] if words[2] in SOURCES.names() else "folder"]
    return words[:2] if words[0] in ("data", "figure") else words[:1]


def help_of(words: list[str]) -> str:
    said = io.StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit):
        main([*words, "--help"])
    return said.getvalue()


def test_other_programs_are_called_with_what_is_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT)  # `python -m` looks there
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    assert set(re.findall(r"`make ([\w-]+)`", text)) <= set(targets)
    assert set(re.findall(r"(?:berdiff|\.)\[([\w,]+)\]", text)) <= set(extras)
    for module in re.findall(r"`python -m ([\w.]+)", text):
        assert importlib.util.find_spec(module) is not None, module
    for path in re.findall(r"`pytest ([\w/.]+)`", text):
        assert (ROOT / path).exists(), path


# --- running them ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that commands name: small data, scans, a model of one step, evaluations."""
    place = tmp_path_factory.mktemp("stand-ins")
    images, masks = blobs(20, readers=2, size=128)
    for i in range(20):
        case = f"p{i // 2:02d}_{'ab'[i % 2]}"
        for folder in ("mine", "corrections", "DIR"):
            save(place / folder / f"images/{case}.png", images[i])
            for reader, mask in zip(("alice", "bob"), masks[i], strict=True):
                save(place / folder / f"masks/{case}_{reader}.png", mask * np.uint8(255))
        save(place / f"new-images/{case}.png", images[i]) if i < 2 else None
    rng = np.random.default_rng(0)
    large = rng.integers(0, 255, (400, 400), dtype=np.uint8)
    for name in ("scan.png", "slices/a.png"):
        save(place / name, large if name == "scan.png" else large[:64, :64])
    for z in range(9):
        for folder in ("ct-series", "incoming/DOE^JOHN/ct"):
            stored = np.pad(large.astype(np.int16), 20) if folder == "ct-series" else large[:64, :64].astype(np.int16)
            write_slice(place / f"{folder}/{z}.dcm", stored, 2.5 * z, FrameOfReferenceUID="1.2.5")
    volume = rng.integers(-1000, 400, (96, 96, 6)).astype(np.int16)
    marked = np.zeros((96, 96, 6), np.uint8)
    marked[40:50, 40:50, 2:4] = 1
    for name in ("scan.nii.gz", "scans/LIDC-IDRI-0001.nii.gz", "scans/LIDC-IDRI-0002.nii.gz"):
        save_nifti(place / name, volume)
    for name in ("detections.nii.gz", "masks/LIDC-IDRI-0001.nii.gz", "masks/LIDC-IDRI-0002.nii.gz"):
        save_nifti(place / name, marked)
    (place / "nodules.csv").write_text("case,z,y,x\nLIDC-IDRI-0001,2,45,45\nLIDC-IDRI-0002,3,50,50\n")
    (place / "annotations.csv").write_text("case,z,y,x\nLIDC-IDRI-0001,3,45,45\nLIDC-IDRI-0002,3,50,50\n")
    os.chdir(place)
    run("data prepare folder mine mine.zarr --patient ^(p\\d+)")
    for name in ("lidc.zarr", "OUT", "STORE", "store", "store.zarr"):
        os.symlink("mine.zarr", name)
    run(f"train demo --data mine.zarr --out runs/mine {SMALL['train']}")
    shutil.copytree("runs/mine", "runs/a")
    os.symlink("runs/mine", "MODEL")
    run(f"evaluate runs/mine --out evals/a {SMALL['evaluate']}")
    run(f"evaluate runs/mine --out evals/b --seed 1 {SMALL['evaluate']}")
    for name, of in (("EVAL", "evals/a"), ("EVAL_PAPER", "evals/b")):
        os.symlink(of, name)
    return place


def save_nifti(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(array, np.diag([1, 1, 2, 1])), path)  # type: ignore[attr-defined]


def run(words: str | list[str]) -> None:
    argv = words.split() if isinstance(words, str) else words
    assert main(argv) == 0, argv


def small(argv: list[str]) -> list[str]:
    """The command with its expensive options replaced."""
    for option, *values in (part.split() for part in re.split(r" (?=--)", SMALL.get(argv[0], "")) if part):
        if option in argv:
            first = argv.index(option)
            last = next((i for i in range(first + 1, len(argv)) if argv[i].startswith("--")), len(argv))
            argv = argv[:first] + argv[last:]
        argv = [*argv, option, *values]
    return argv


@pytest.mark.slow
@pytest.mark.parametrize("command", RUN, ids=of_page)
def test_a_command_runs(command: Command, stand_ins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a copy of the stand-ins without what it is to write."""
    place = tmp_path / "here"
    shutil.copytree(stand_ins, place, symlinks=True)
    monkeypatch.chdir(place)
    argv = small(command.argv[1:])
    written = [argv[argv.index("--out") + 1]] if "--out" in argv else argv[4:5] if argv[1:2] == ["prepare"] else []
    for name in written:
        remove(Path(name))
    run(argv)
    assert all(Path(name).exists() for name in written if "--dry-run" not in argv)


def remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)

"""What a user would do with each kind of input: the commands themselves, in this process, with a small model."""

import contextlib
import io
import os
import socket
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from berdiff import boundary
from berdiff.cli import data, segment
from berdiff.errors import InputError
from berdiff.inference import model as models
from fakes import bright_model, make_spec

Ran = Callable[[Path, Path], None]  # the folder of the input, and where results go


class Fault(NamedTuple):
    kind: str  # traceback, half-written, request
    text: str


@cache
def _model() -> models.Model:
    return bright_model(make_spec(rule="auto"))


def _segment(paths: Callable[[Path], list[str]], *options: str) -> Ran:
    def run(root: Path, out: Path) -> None:
        given = paths(root)
        if given:
            few = ("--samples", "2", "--write", "json", "mask", "--steps", "2", "--pad", "--window", "-1000", "1000")
            segment.command(["x", *given, "--out", str(out), *few, *options])

    return run


def _prepare(source: str, path: Callable[[Path], Path], *options: str) -> Ran:
    def run(root: Path, out: Path) -> None:
        data.command(["prepare", source, str(path(root)), str(out), *(one.format(root=root) for one in options)])

    return run


def _store(root: Path, out: Path) -> None:
    """Each by itself: what one refuses, another must not trip over."""
    store = str(root / "store")
    for argv in (["info", store], ["verify", store]):
        with contextlib.suppress(InputError):
            data.command(argv)
    _segment(lambda root: [store], "--split", "all")(root, out)


def _whole(root: Path) -> list[str]:
    return [str(root)]


def _each(root: Path) -> list[str]:
    return [os.path.join(root, name) for name in sorted(os.listdir(root)) if not name.startswith("-")]


def _one(root: Path) -> Path:
    """The file that was damaged: copies keep the time of their seeds."""
    return max(root.iterdir(), key=lambda path: path.lstat().st_mtime_ns)


def _centers(root: Path, out: Path) -> None:
    _segment(lambda root: [str(root / "scan.png")], "--centers", str(root / "centers.csv"))(root, out)


TARGETS: dict[str, list[Ran]] = {
    "pictures": [_segment(_whole), _segment(_each)],
    "tiff": [_segment(_whole), _segment(_each)],
    "nifti": [_segment(_whole), _segment(_each)],
    "dicom": [_segment(_whole), _segment(_each)],
    "npy": [_segment(_whole), _segment(_each)],
    "folder": [
        _prepare("folder", lambda root: root, "--table", "{root}/table.csv"),
        _prepare("folder", lambda root: root),
    ],
    "nnunet": [_prepare("nnunet", lambda root: root)],
    "hdf5": [_prepare("hdf5", lambda root: root / "data.h5"), _prepare("lidc-hdf5", lambda root: root / "data.h5")],
    "brats-h5": [_prepare("brats-h5", lambda root: root, "--bottom", "80", "--top", "0", "--size", "16", "16")],
    "pickle": [_prepare("lidc-pickle", _one)],
    "store": [_store],
    "centers": [_centers],
    "brats": [_prepare("brats", lambda root: root, "--bottom", "1", "--top", "2", "--size", "16", "16")],
}


def attempt(run: Ran, root: Path, out: Path) -> tuple[bool, list[Fault]]:
    """Whether it was refused in a sentence, and what must not be."""
    faults: list[Fault] = []
    refused, printed = False, io.StringIO()
    models.load, before = lambda *_, **__: _model(), models.load

    def unforeseen(error: BaseException, what: str) -> str:
        """What the boundary tells in a sentence after all is a fault here."""
        faults.append(Fault("traceback", _told(error)))
        return "expected to finish, found an error that should not happen"

    boundary.unforeseen, told = unforeseen, boundary.unforeseen
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), _no_network(faults):
            run(root, out)
    except InputError as error:
        refused = True
        if "\n" in str(error) or not str(error):
            faults.append(Fault("traceback", f"no sentence: {error}"))
    except SystemExit as error:  # tyro's own: an option that is none
        faults.append(Fault("traceback", f"exit {error.code}: {printed.getvalue()[-300:]}"))
    except BaseException as error:
        faults.append(Fault("traceback", _told(error)))
    finally:
        models.load, boundary.unforeseen = before, told
    return refused, faults + [Fault("half-written", text) for text in _half_written(out, refused)]


def _told(error: BaseException) -> str:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames if "berdiff" in frame.filename]
    last = frames[-1]
    return f"{type(error).__name__} at {' < '.join(ours[::-1][:3])} ({Path(last.filename).name}:{last.lineno}): {error}"


def _half_written(out: Path, refused: bool) -> Iterator[str]:
    for path in out.parent.rglob("*"):
        if path.name.endswith((".part", ".lock")) or path.name.startswith(".claim"):
            yield f"left behind: {path.name}"
    for folder in {path.parent for path in out.rglob("*.png")} if out.exists() else ():
        if not any((place / "done.json").exists() for place in (folder, *folder.parents)):
            yield f"a result without done.json: {folder.name}"
    prepared = (out / "images").exists() or (out / "masks").exists()
    if prepared and not (out / "manifest.json").exists():
        yield "a store without a manifest"


@contextlib.contextmanager
def _no_network(faults: list[Fault]) -> Iterator[None]:
    """Whoever asks for another machine is written down, and gets no answer."""

    def refuse(*given: object, **named: object) -> None:
        faults.append(Fault("request", str(given)[:200]))
        raise ConnectionRefusedError("no network while fuzzing")

    before = socket.socket.connect, socket.getaddrinfo
    socket.socket.connect, socket.getaddrinfo = refuse, refuse  # type: ignore[assignment]
    try:
        yield
    finally:
        socket.socket.connect, socket.getaddrinfo = before  # type: ignore[method-assign]

"""A store of results: a folder, or an address on an object store, in which each result is whole or not there.

settings.json   what was asked; another job is refused in the same place
NAME/           the files of a result; its done.json, written last, lists them with their sizes: they say it is whole
.claim-*.part   which process works on what. The lock dies with its process; the file counts the attempts,
                or says what has failed, for the others at the same job

Several processes may work in one folder at a time. Nobody removes what a living process is writing: leftovers are
removed only by a process that is alone in the folder. An object store has no locks: two processes that meet in it write
the same bytes to the same names.
"""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from berdiff import schema
from berdiff.errors import InputError
from berdiff.files import lock, only_holder, remove_folder, remove_leftovers, share, whole_file, whole_folder
from berdiff.remote import filesystem, place, require_bucket, speaking, upload

SETTINGS, DONE, LOCK = "settings.json", "done.json", ".lock"
SHOWN = 200  # characters of a setting in a message
Plain = dict[str, Any]


class ResultFiles:
    """Files under a folder or an address, by names with `/` between their parts. What fails is an OSError."""

    def __init__(self, where: Path | str) -> None:
        self.where = where
        self.folder = where if isinstance(where, Path) else None
        if self.folder is None:
            self.fs, self.root = filesystem(where)

    def address(self, name: str) -> str:
        """As it is called in a message."""
        return f"{self.where}/{name}"

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The contents of those that are there; of an object store all at once, for each by itself would wait."""
        if self.folder is not None:
            return {name: (self.folder / name).read_bytes() for name in names if (self.folder / name).is_file()}
        contents: list[Any] = []
        with self._reaching():
            contents = self.fs.cat_ranges([f"{self.root}/{name}" for name in names], None, None) if names else []
            for content in contents:
                if isinstance(content, Exception) and not isinstance(content, FileNotFoundError):
                    raise content
        return {name: content for name, content in zip(names, contents, strict=True) if isinstance(content, bytes)}

    def sizes(self, folder: str = "") -> dict[str, int]:
        """Of the files in a folder, in bytes, by their names from there; hidden ones do not count."""
        if self.folder is not None:
            return dict(_local_sizes(self.folder / folder))
        root = f"{self.root}/{folder}".rstrip("/")
        with self._reaching():
            files = self.fs.find(root, detail=True)
        names = {path.removeprefix(f"{root}/"): about["size"] for path, about in files.items()}
        return {name: size for name, size in names.items() if not f"/{name}".count("/.")}

    def results(self) -> list[str]:
        """The folders of all results, in the order of their names; what is in them is not looked at."""
        outermost: list[list[str]] = []
        for parts in sorted(name.split("/")[:-1] for name in self.sizes() if name.endswith(f"/{DONE}")):
            if not outermost or parts[: len(outermost[-1])] != outermost[-1]:
                outermost.append(parts)
        return ["/".join(parts) for parts in outermost]

    def write(self, name: str, content: bytes) -> None:
        """Whole, or not at all."""
        if self.folder is None:
            with self._reaching():
                self.fs.pipe_file(f"{self.root}/{name}", content)
        else:
            with whole_file(self.folder / name) as part:
                part.write_bytes(content)

    @contextmanager
    def new(self, name: str) -> Generator[Path, None, None]:
        """A folder to fill, which becomes a result: renamed into place, or uploaded with its done.json at the end.

        Whoever asks has claimed it and found it missing or damaged, so what is left of a damaged one is removed.
        """
        if self.folder is None:
            with TemporaryDirectory(prefix="berdiff-") as folder:
                yield Path(folder)
                with self._reaching():
                    upload(Path(folder), self.fs, f"{self.root}/{name}", last=DONE)
        else:
            if (self.folder / name / DONE).is_file():
                remove_folder(self.folder / name)
            with whole_folder(self.folder / name) as part:
                yield part

    def is_foreign(self, name: str) -> bool:
        """Whether something that is no result has its place; an upload that broke off is only written again."""
        return self.folder is not None and (self.folder / name).exists() and not (self.folder / name / DONE).is_file()

    @contextmanager
    def alone(self, name: str) -> Generator[None, None, None]:
        """One process at a time; of two at an object store the last one's files stay, which are whole."""
        path = self.folder / name if self.folder is not None else None
        held = lock(path) if path is not None else None
        try:
            yield
        finally:
            if path is not None and held is not None:
                path.unlink(missing_ok=True)
                held.close()

    @contextmanager
    def _reaching(self) -> Generator[None, None, None]:
        try:
            with speaking(self.where, "an address that can be written"):
                yield
        except InputError as error:
            raise OSError(str(error).partition(", found ")[2]) from error


def _local_sizes(root: Path) -> Iterator[tuple[str, int]]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(folder, name) for name in names if not name.startswith(".")):
            with suppress(FileNotFoundError):  # another process has removed it meanwhile
                yield path.relative_to(root).as_posix(), path.stat().st_size


class Claim:
    """The right to work on one input of a job."""

    def __init__(self, path: Path | None = None, file: IO[str] | None = None) -> None:
        self._path, self._file = path, file
        text = "" if path is None else path.read_text()
        self.attempts = 0 if text.startswith("{") else len(text)  # that were begun before and not finished
        if file is not None and not text.startswith("{"):
            file.write(".")
            file.flush()

    def release(self, failed: Mapping[str, str] | None = None) -> None:
        """Again costs nothing. `failed`, the sentences, stays for the other processes until the last one ends."""
        if self._path is None or self._file is None or self._file.closed:
            return
        if failed:
            self._file.truncate(0)
            self._file.write(json.dumps(failed))
        elif not self._path.read_text().startswith("{"):
            self._path.unlink(missing_ok=True)  # while it is held: whoever waits for the old file takes a new one
        self._file.close()


class ResultStore(ResultFiles, AbstractContextManager["ResultStore"]):
    """Opens the job in a place, or prepares to begin it. `what` is the job ("evaluation"), for messages.

    Settings are written by `begin`, with the first result: a command that fails before that leaves nothing behind that
    would refuse a corrected one. `binding` picks those that must be the same for a job to go on.
    """

    def __init__(
        self,
        where: Path | str,
        settings: Plain,
        what: str,
        binding: Callable[[Plain], Plain] = lambda settings: settings,
    ) -> None:
        self.what, self.settings, self._binding = what, {"job": what, **schema.plain(settings)}, binding
        self._lock: IO[str] | None = None
        where = place(where)
        with speaking(where, f"an address for the {what}") if isinstance(where, str) else nullcontext():
            super().__init__(where)
            names = self._names()
            old = self._old() if names else None
        self.claims = self.folder  # where claims are; None: an object store, which has no locks
        self.begun = bool(names)  # here, by whomever
        self._ready = self.folder is None and old == self.settings
        if names and old is None:
            raise InputError(f"{where}: expected a new folder or one of this {what}, found other files in it", "kind")
        if any(name != SETTINGS for name in names):  # settings without a result do not bind
            self._refuse_other_settings()

    def begin(self) -> None:
        """Before the first result: the settings are there, and a folder is locked against cleaning."""
        if self._ready:
            return
        try:
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = lock(self.folder / LOCK, wait=False)
                if self._lock is not None:  # no other process is at work
                    remove_leftovers(self.folder)
                    share(self._lock)
                else:
                    self._lock = lock(self.folder / LOCK, shared=True)
                    self._refuse_other_settings()  # there may be no result yet
            if self.folder is None or self._old() != self.settings:
                self.write(SETTINGS, schema.dump(self.settings).encode())
            self.begun = self._ready = True
        except OSError as error:
            raise unwritable(self.where, error) from error

    def take(self, name: str) -> Claim | None:
        """The claim on an input; None where another process has it. The job is begun."""
        if self.claims is None:
            return Claim()
        path = self._claim(self.claims, name)
        file = lock(path, wait=False)
        return None if file is None else Claim(path, file)

    def failed(self, name: str) -> dict[str, str]:
        """What has failed in an input, and why, in a process at this job; before it is begun, that may be old."""
        if self.claims is None or not self._ready:
            return {}
        try:
            return dict(json.loads(self._claim(self.claims, name).read_text()))
        except (OSError, ValueError, TypeError):  # nothing, or attempts
            return {}

    @contextmanager
    def alone(self, name: str) -> Generator[None, None, None]:
        self.begin()  # so that no process cleans meanwhile
        with super().alone(name):
            yield

    def close(self) -> None:
        if self._lock is not None and self.folder is not None:
            if only_holder(self._lock):
                remove_leftovers(self.folder)  # of others that died meanwhile
                (self.folder / LOCK).unlink(missing_ok=True)
            self._lock.close()
            self._lock, self._ready = None, False

    def __exit__(self, *error: object) -> None:
        self.close()

    def _names(self) -> list[str]:
        """What is there already; hidden files do not count."""
        if self.folder is None:
            require_bucket(self.fs, self.root, str(self.where))
            with suppress(FileNotFoundError):
                paths = [path.rstrip("/").rpartition("/")[2] for path in self.fs.ls(self.root, detail=False)]
                return [name for name in paths if not name.startswith(".")]
            return []
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder}: expected a folder for the {self.what}, found a file", "kind")
        return [path.name for path in self.folder.iterdir() if path.name[0] != "."] if self.folder.is_dir() else []

    def _refuse_other_settings(self) -> None:
        """InputError that shows the difference, where there is one."""
        now, old = self._binding(self.settings), self._binding(self._old() or self.settings)
        names = [name for name in {**old, **now} if old.get(name) != now.get(name)]
        if names:
            self.close()
            changed = "; ".join(f"{name}: there {_short(old.get(name))}, now {_short(now.get(name))}" for name in names)
            raise InputError(f"{self.where}: this {self.what} was begun with other settings ({changed})", "changed")

    def _old(self) -> Plain | None:
        """The settings that are there; None where there are none, or the file is of another program."""
        try:
            content = self.read([SETTINGS]).get(SETTINGS, b"")
            found: Any = schema.loads(content, SETTINGS, f"the settings of the {self.what}")
        except InputError:
            return None
        old: Plain = {**found} if isinstance(found, dict) else {}
        return old if old.get("job") == self.what else None

    def _claim(self, folder: Path, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return folder / f".claim-{digest[8:32]}.{digest[:8]}.part"  # called like a leftover, and goes with them


@contextmanager
def sole_worker(folder: Path, what: str) -> Generator[None, None, None]:
    """The folder belongs to this process inside the block; InputError where another one has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock(folder / LOCK, wait=False)
    except OSError as error:
        raise unwritable(folder, error) from error
    if held is None:
        raise InputError(f"{folder}: there is another process at work on this {what}", "conflict")
    with held:
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def unwritable(where: object, error: OSError) -> InputError:
    return InputError(f"{where}: expected a folder that can be written, found {error.strerror or error}", "access")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

"""Where the results of many inputs go: a folder, or an address on an object store, with one interface.

A folder is renamed into place when it is whole. An object store cannot rename: there an input is done when its
done.json is there, which is uploaded last. Two processes that meet in it write the same bytes to the same names.
"""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from berdiff import schema
from berdiff.errors import InputError
from berdiff.files import whole_folder
from berdiff.output.result_files import DONE, LocalFiles, RemoteFiles
from berdiff.remote import filesystem, place, require_bucket, speaking, upload
from berdiff.workfolder import SETTINGS, WorkFolder, own_settings, refuse_other_settings


class LocalDestination(WorkFolder):
    @property
    def files(self) -> LocalFiles:
        return LocalFiles(self.folder)

    def place(self, name: str) -> Path:
        """As the results of an input are called in a message."""
        return self.folder / name

    def done(self, name: str) -> dict[str, Any] | None:
        """The done.json of an input; None where nothing is there, {} where something else is."""
        folder = self.folder / name
        if not folder.exists():
            return None
        return schema.read_json(folder / DONE, "a list of files") if (folder / DONE).is_file() else {}

    def new(self, name: str) -> AbstractContextManager[Path]:
        """A folder to fill, which becomes the results of an input."""
        return whole_folder(self.folder / name)


class RemoteDestination(AbstractContextManager["RemoteDestination"]):
    """As `LocalDestination`. What fails while it works is an OSError, as on a disk that cannot be written."""

    def __init__(self, address: str, settings: dict[str, Any], what: str) -> None:
        self.folder, self.what = address, what
        self.settings = {"job": what, **schema.plain(settings)}
        self.fs, self.root = filesystem(address)
        self.files = RemoteFiles(self.fs, self.root, address)
        with speaking(address, f"an address for the {what}"):
            require_bucket(self.fs, self.root, address)
            names = self._names()
            old = own_settings(self._read(f"{self.root}/{SETTINGS}"), what)
        if names and old is None:
            raise InputError(f"{address}: expected a new folder or one of this {what}, found other files in it")
        if any(name != SETTINGS for name in names):
            refuse_other_settings(address, what, old, self.settings)
        self._begun = old == self.settings

    def begin(self) -> None:
        """Before the first result: the settings are there."""
        if not self._begun:
            with self.files.reaching():
                self.fs.pipe_file(f"{self.root}/{SETTINGS}", schema.dump(self.settings).encode())
            self._begun = True

    def place(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def done(self, name: str) -> dict[str, Any] | None:
        """None also where an upload was interrupted: the next one replaces it."""
        with self.files.reaching():
            return self._read(f"{self.root}/{name}/{DONE}")

    @contextmanager
    def new(self, name: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix="berdiff-") as folder:
            yield Path(folder)
            with self.files.reaching():
                upload(Path(folder), self.fs, f"{self.root}/{name}", last=DONE)

    def __exit__(self, *error: object) -> None:
        """Nothing is held."""

    def _names(self) -> list[str]:
        try:
            return [path.rstrip("/").rpartition("/")[2] for path in self.fs.ls(self.root, detail=False)]
        except FileNotFoundError:
            return []

    def _read(self, path: str) -> dict[str, Any] | None:
        """The content of a JSON file; None where there is none, {} where it is something else."""
        try:
            content = json.loads(self.fs.cat_file(path))
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}


Destination = LocalDestination | RemoteDestination


def open_destination(out: Path | str, settings: dict[str, Any], what: str) -> Destination:
    where = place(out)
    return (
        RemoteDestination(where, settings, what) if isinstance(where, str) else LocalDestination(where, settings, what)
    )

"""Where the results of many inputs go: a folder, or an address on an object store, with one interface.

A folder is renamed into place when it is whole. An object store cannot rename: there an input is done when its
done.json is there, which is uploaded last. Two processes that meet in it write the same bytes to the same names.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from berdiff import schema
from berdiff.errors import InputError
from berdiff.files import remove_folder, whole_folder
from berdiff.output.done_file import DoneFile, whole_result
from berdiff.output.result_files import DONE, LocalFiles, RemoteFiles
from berdiff.remote import filesystem, place, require_bucket, speaking, upload
from berdiff.workfolder import SETTINGS, WorkFolder, own_settings, refuse_other_settings


def binding(settings: dict[str, Any]) -> dict[str, Any]:
    """Without padding: it changes nothing but images that could not be segmented without it, so that `--pad`, as the
    message about such an image advises, goes on where the command before it ended."""
    region = settings.get("region")
    if not isinstance(region, dict):
        return settings
    return {**settings, "region": {name: value for name, value in region.items() if name != "pad"}}


class LocalDestination(WorkFolder):
    binding = staticmethod(binding)

    @property
    def files(self) -> LocalFiles:
        return LocalFiles(self.folder)

    def place(self, name: str) -> Path:
        """As the results of an input are called in a message."""
        return self.folder / name

    def done(self, name: str) -> DoneFile | None:
        """The done.json of an input, an empty one where something else is in its place.

        None where nothing is there, or a result whose files are not all as they were written: it is made again.
        """
        folder = self.folder / name
        if not folder.exists():
            return None
        return whole_result(self.files, name) if (folder / DONE).is_file() else DoneFile()

    def new(self, name: str) -> AbstractContextManager[Path]:
        """A folder to fill, which becomes the results of an input; a damaged one in its place is removed.

        Whoever asks for it has claimed the input, so nobody else has made it whole meanwhile.
        """
        if (self.folder / name / DONE).is_file() and self.done(name) is None:
            remove_folder(self.folder / name)
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
            old = own_settings(self._settings(), what)
        if names and old is None:
            raise InputError(f"{address}: expected a new folder or one of this {what}, found other files in it")
        if any(name != SETTINGS for name in names):
            refuse_other_settings(address, what, None if old is None else binding(old), binding(self.settings))
        self._begun = old == self.settings

    def begin(self) -> None:
        """Before the first result: the settings are there."""
        if not self._begun:
            with self.files.reaching():
                self.fs.pipe_file(f"{self.root}/{SETTINGS}", schema.dump(self.settings).encode())
            self._begun = True

    def place(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def done(self, name: str) -> DoneFile | None:
        """None also where an upload was interrupted or a file is not as it was: the next one replaces it."""
        return whole_result(self.files, name)

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

    def _settings(self) -> Any:
        """What stands in the settings; None where that is nothing of ours."""
        path = f"{self.root}/{SETTINGS}"
        try:
            if self.fs.size(path) <= schema.MAX_BYTES:
                return schema.loads(self.fs.cat_file(path), path, "settings")
        except (FileNotFoundError, InputError):
            pass
        return None


Destination = LocalDestination | RemoteDestination


def open_destination(out: Path | str, settings: dict[str, Any], what: str) -> Destination:
    where = place(out)
    return (
        RemoteDestination(where, settings, what) if isinstance(where, str) else LocalDestination(where, settings, what)
    )

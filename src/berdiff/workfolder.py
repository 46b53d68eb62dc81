"""The folder of a long job: its settings, results that appear whole, and nothing of another job.

Several processes may work in one folder at a time. Nobody removes what a living process is writing: leftovers are
removed only by a process that is alone in the folder.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from berdiff import schema
from berdiff.errors import InputError
from berdiff.files import lock, only_holder, remove_leftovers, share, write_text

SETTINGS, LOCK = "settings.json", ".lock"


class WorkFolder(AbstractContextManager["WorkFolder"]):
    """Opens the job in `folder`, or prepares to begin it. `what` is the job ("evaluation"), for messages.

    Settings are written by `begin`, with the first result: a command that fails before that leaves nothing behind that
    would refuse a corrected one.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any], what: str) -> None:
        self.folder, self.what = Path(folder), what
        self.settings = {"job": what, **schema.plain(settings)}
        self._lock: IO[str] | None = None
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{folder}: expected a folder for the {what}, found a file")
        files = [p for p in self.folder.iterdir() if p.name[0] != "."] if self.folder.is_dir() else []
        if files and self._old() is None:
            raise InputError(f"{folder}: expected a new folder or one of this {what}, found other files in it")
        if any(path.name != SETTINGS for path in files):  # settings without a result bind nobody
            self._refuse_other_settings()

    def begin(self) -> None:
        """Before the first result: the folder is there, locked against cleaning, with the settings in it."""
        if self._lock is not None:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.folder / LOCK, shared=True)
            assert self._lock is not None  # it waits until it has it
            if only_holder(self._lock):
                remove_leftovers(self.folder)
                share(self._lock)
            else:  # somebody is at work on a first result
                self._refuse_other_settings()
            if self._old() != self.settings:
                write_text(self.folder / SETTINGS, schema.dump(self.settings))
        except OSError as error:
            raise InputError(
                f"{self.folder}: expected a folder that can be written, found {error.strerror or error}"
            ) from error

    def close(self) -> None:
        if self._lock is not None:
            if only_holder(self._lock):
                remove_leftovers(self.folder)  # of others that died meanwhile
                (self.folder / LOCK).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def __exit__(self, *error: object) -> None:
        self.close()

    def _refuse_other_settings(self) -> None:
        old = self._old() or self.settings
        names = [name for name in {**old, **self.settings} if old.get(name) != self.settings.get(name)]
        if names:
            self.close()
            changed = "; ".join(f"{name}: there {old.get(name)!r}, now {self.settings.get(name)!r}" for name in names)
            raise InputError(
                f"{self.folder}: expected the settings this {self.what} was begun with, found others ({changed})"
            )

    def _old(self) -> dict[str, Any] | None:
        """The settings in the folder; None where there are none, or the file is somebody else's."""
        try:
            old = schema.read_json(self.folder / SETTINGS, f"the settings of the {self.what}")
        except InputError:
            return None
        return old if isinstance(old, dict) and old.get("job") == self.what else None

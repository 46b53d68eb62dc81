"""The folder of a long job: its settings, results that appear whole, and nothing of another job.

Several processes may work in one folder at a time. Nobody removes what a living process is writing: leftovers are
removed only by a process that is alone in the folder.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

from berdiff import schema
from berdiff.errors import InputError
from berdiff.files import is_lock_of, lock, only_holder, remove_leftovers, share, write_text

SETTINGS, LOCK = "settings.json", ".lock"
SHOWN = 200  # characters of a setting in a message


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
            alone = self._take_lock()
            if not alone:  # somebody is at work on a first result
                self._refuse_other_settings()
            if self._old() != self.settings:
                write_text(self.folder / SETTINGS, schema.dump(self.settings))
        except OSError as error:
            raise InputError(
                f"{self.folder}: expected a folder that can be written, found {error.strerror or error}"
            ) from error

    def _take_lock(self) -> bool:
        """Whether nobody else has it; leftovers are removed then."""
        while True:
            held = lock(self.folder / LOCK, shared=True)
            assert held is not None  # it waits until it has it
            alone = only_holder(held)
            if alone:
                remove_leftovers(self.folder)
                share(held)
            if alone or is_lock_of(held, self.folder / LOCK):
                self._lock = held
                return alone
            held.close()  # the last of the others has removed it meanwhile

    def close(self) -> None:
        if self._lock is not None:
            if only_holder(self._lock):
                remove_leftovers(self.folder)  # of others that died meanwhile
                (self.folder / LOCK).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None

    def __exit__(self, *error: object) -> None:
        self.close()

    @staticmethod
    def binding(settings: dict[str, Any]) -> dict[str, Any]:
        """Those of the settings that must be the same for a job to go on."""
        return settings

    def _refuse_other_settings(self) -> None:
        try:
            old = self._old()
            now = self.binding(self.settings)
            refuse_other_settings(self.folder, self.what, None if old is None else self.binding(old), now)
        except InputError:
            self.close()
            raise

    def _old(self) -> dict[str, Any] | None:
        """The settings in the folder; None where there are none, or the file is somebody else's."""
        try:
            return own_settings(schema.read_json(self.folder / SETTINGS, f"the settings of the {self.what}"), self.what)
        except InputError:
            return None


@contextmanager
def sole_worker(folder: Path, what: str) -> Iterator[None]:
    """The folder belongs to this process inside the block; InputError where another one has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock(folder / LOCK, wait=False)
    except OSError as error:
        raise InputError(f"{folder}: expected a folder that can be written, found {error.strerror or error}") from error
    if held is None:
        raise InputError(f"{folder}: expected a folder for this {what} alone, found another process at work in it")
    with held:
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)


def own_settings(found: Any, what: str) -> dict[str, Any] | None:
    """What was found as settings, if it is that of such a job."""
    return found if isinstance(found, dict) and found.get("job") == what else None


def refuse_other_settings(where: object, what: str, old: dict[str, Any] | None, new: dict[str, Any]) -> None:
    """InputError that shows the difference, where there is one."""
    old = old or new
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if names:
        changed = "; ".join(f"{name}: there {_short(old.get(name))}, now {_short(new.get(name))}" for name in names)
        raise InputError(f"{where}: expected the settings this {what} was begun with, found others ({changed})")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."

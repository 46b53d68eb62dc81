"""The folder of a segmentation: its settings, and a folder for each input that appears whole or not at all.

settings.json      what was asked; another segmentation may not go on in the same folder
NAME/              the files of one input, renamed into place when all are written
NAME/done.json     which input it was, and the files
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from berdiff.errors import InputError
from berdiff.files import whole_folder, write_text
from berdiff.inference.inputs import Input

FORMAT = 1
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.part")  # as berdiff.files calls what is not finished


class Record:
    """Opens or begins the segmentation in `folder`; `settings` must be plain JSON types."""

    def __init__(self, folder: str | Path, settings: dict[str, Any]) -> None:
        self.folder = Path(folder)
        settings = json.loads(json.dumps({"format": FORMAT, **settings}))
        file = self.folder / "settings.json"
        if file.is_file():
            _refuse_other(file, settings)
            self._clean()
        elif self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise InputError(f"{folder}: expected a new folder or one of this segmentation, found other files in it")
        else:
            write_text(file, json.dumps(settings, indent=2) + "\n")

    def has(self, item: Input) -> bool:
        """Whether this very input is done."""
        folder = self.folder / item.name
        if not folder.exists():
            return False
        try:
            done = json.loads((folder / "done.json").read_text(encoding="utf-8"))["sources"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{folder}: expected the results of {item.what}, found a folder of another kind"
            ) from error
        if done != _sources(item):
            raise InputError(
                f"{folder}: expected the results of {item.what} as it is now, found those of another file or of an "
                "older one; remove them or take another --out"
            )
        return True

    def add(self, item: Input, write: Callable[[Path], list[Path]]) -> None:
        """`write(folder)` writes the files of an input and returns them."""
        with whole_folder(self.folder / item.name) as part:
            files = [str(path.relative_to(part)) for path in write(part)]
            content = {"name": item.name, "sources": _sources(item), "files": files}
            write_text(part / "done.json", json.dumps(content, indent=2) + "\n")

    def _clean(self) -> None:
        """Remove what a killed run left unfinished."""
        for path in list(self.folder.rglob("*.part")):
            if _LEFTOVER.fullmatch(path.name) and path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _sources(item: Input) -> list[dict[str, Any]]:
    """What an input was made of; a file of another length is another file."""
    if item.store is not None:
        return [{"path": item.store.address, "case": str(item.store.cases.case[item.index])}]
    return [{"path": str(path.resolve()), "bytes": path.stat().st_size} for path in item.paths]


def _refuse_other(file: Path, settings: dict[str, Any]) -> None:
    try:
        old = json.loads(file.read_text(encoding="utf-8"))
        names = [name for name in {**old, **settings} if old.get(name) != settings.get(name)]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: expected the settings of a segmentation, found something else") from error
    if names:
        changed = "; ".join(f"{name}: there {old.get(name)!r}, now {settings.get(name)!r}" for name in names)
        raise InputError(f"{file.parent}: expected the settings it was begun with, found others ({changed})")

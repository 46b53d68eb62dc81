"""The models that clients may ask for, by name: bundled ones and those of the command line. No client names a path."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berdiff import schema
from berdiff.data.describe import check
from berdiff.data.input_spec import InputSpec
from berdiff.methods import folder
from berdiff.methods.config import MethodConfig
from berdiff_viewer.server.common import Refused

if TYPE_CHECKING:
    from berdiff.inference.model import Model


@dataclass(eq=False)
class ModelEntry:
    """What is known of a model before its weights are read, which happens at its first use."""

    name: str
    path: Path
    config: MethodConfig
    spec: InputSpec
    device: str
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _model: "Model | None" = None

    def load(self) -> "Model":
        from berdiff.inference.model import load

        with self._lock:
            if self._model is None:
                self._model = load(self.path, self.device)
            return self._model

    def shown(self) -> dict[str, Any]:
        names = ("size", "channels", "targets", "kind", "patches", "trained_on", "notes")
        sampler = getattr(self.config, "sampler", None)
        told = {name: getattr(self.spec, name) for name in names}
        return {"name": self.name, **told, "sampler": sampler and schema.plain(sampler)}


class Models:
    """The one that was asked for first, then the others of the command line, then the bundled ones."""

    def __init__(self, first: str, others: Sequence[str] = (), device: str = "auto") -> None:
        self._entries: dict[str, ModelEntry] = {}
        for given in dict.fromkeys((first, *others, *folder.bundled())):
            path = folder.resolve(given)
            config, spec, _ = folder.read_config(path / folder.CONFIG)
            name = (path.parent if path.name == "model" else path).resolve().name
            other = self._entries.get(name)
            if other is not None and given in folder.bundled():
                continue  # a model of the user's own with the name of a bundled one hides it
            check(other is None, f"{given}: another model is called {name!r} too", "name")
            self._entries[name] = ModelEntry(name, path, config, spec, device)

    def __iter__(self):
        return iter(self._entries.values())

    @property
    def first(self) -> ModelEntry:
        return next(iter(self._entries.values()))

    def get(self, name: str | None) -> ModelEntry:
        """By the name that a client gives."""
        if not name:
            return self.first
        if name not in self._entries:
            raise Refused(404, f"model: only {', '.join(self._entries)} can be chosen")
        return self._entries[name]


def is_model(given: str) -> bool:
    """Whether it is a model folder, the folder of a run or a bundled name, and not an image."""
    return given in folder.bundled() or any((Path(given) / part / folder.CONFIG).is_file() for part in ("", "model"))

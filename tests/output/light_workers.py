"""Workers that segment nothing, for tests of what holds them together: they start in a second, without torch."""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

from berdiff.errors import InputError


@dataclass
class Done:
    """As `Outcome`."""

    done: list = field(default_factory=list)
    skipped: list = field(default_factory=list)
    failed: dict = field(default_factory=dict)
    measurements: dict = field(default_factory=dict)


@dataclass
class LightJob:
    folder: Path  # a file for each attempt
    outcome: Done = field(default_factory=Done)

    def segment(self, chunk):
        for item in chunk:
            attempt = sum(1 for _ in self.folder.glob(f"{item.name}-*"))
            (self.folder / f"{item.name}-{attempt}-{os.getpid()}").touch()
            if item.name == "deadly" or (item.name == "once" and attempt == 0):
                os.kill(os.getpid(), signal.SIGKILL)
            if item.name == "refused":
                raise InputError("disk: expected room, found none")
            if item.name == "broken":
                raise KeyError("a mistake of ours")
            self.outcome.done.append(item.name)
        return self.outcome


@dataclass(frozen=True)
class LightTask:
    folder: Path
    fate: str = ""

    def open(self, number):
        if self.fate == "stillborn":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fate == "refused":
            raise InputError("--device: expected one, found none")
        return LightJob(self.folder)

"""Claims: which process works on which input of a folder that several share.

A claim is a locked file. The lock dies with its process, so the input of a killed one is free again at once; the file
that it leaves is called like any leftover, and goes with them.
"""

import hashlib
from pathlib import Path
from typing import IO

from berdiff.files import lock


class Claim:
    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path, self._file = path, file

    def release(self) -> None:
        """Again costs nothing."""
        if not self._file.closed:
            self._path.unlink(missing_ok=True)  # while it is held: whoever waits for the old file takes a new one
            self._file.close()


class Claims:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, name: str) -> Claim | None:
        """The claim on an input; None where another one has it. The folder is there."""
        path = self._path(name)
        file = lock(path, wait=False)
        return None if file is None else Claim(path, file)

    def taken(self, name: str) -> bool:
        """Whether a living process has it now; leaves nothing behind."""
        if not self._path(name).exists():
            return False
        claim = self.take(name)
        if claim is not None:
            claim.release()
        return claim is None

    def _path(self, name: str) -> Path:
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self._folder / f".claim-{digest[8:32]}.{digest[:8]}.part"

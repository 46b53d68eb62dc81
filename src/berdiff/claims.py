"""Claims: which process works on which input, or batch, of a folder that several share.

A claim is a locked file. The lock dies with its process, so the input of a killed one is free again at once; the file
that it leaves is called like any leftover, and goes with them.
"""

import hashlib
from pathlib import Path
from typing import IO

from berdiff.files import lock


class Claim:
    def __init__(self, path: Path | None = None, file: IO[str] | None = None) -> None:
        self._path, self._file = path, file

    def release(self) -> None:
        """Again costs nothing."""
        if self._path is not None and self._file is not None and not self._file.closed:
            self._path.unlink(missing_ok=True)  # while it is held: whoever waits for the old file takes a new one
            self._file.close()


class Claims:
    def __init__(self, folder: Path | None) -> None:
        """None: an object store, which has no locks; there two processes may do the same twice."""
        self._folder = folder

    def take(self, name: str) -> Claim | None:
        """The claim on an input; None where another one has it. The folder is there."""
        path = self._path(name)
        if path is None:
            return Claim()
        file = lock(path, wait=False)
        return None if file is None else Claim(path, file)

    def taken(self, name: str) -> bool:
        """Whether a living process has it now; leaves nothing behind."""
        path = self._path(name)
        if path is None or not path.exists():
            return False
        claim = self.take(name)
        if claim is not None:
            claim.release()
        return claim is None

    def _path(self, name: str) -> Path | None:
        if self._folder is None:
            return None
        digest = hashlib.sha256(name.encode()).hexdigest()
        return self._folder / f".claim-{digest[8:32]}.{digest[:8]}.part"

"""Files at a remote address as local copies in FOLDER/s3/bucket/key: listed at once, fetched one input at a time,
removed when it is written. Their paths are known before anything is fetched, so names and groups are made as for local
files."""

import atexit
import glob
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from berdiff.data import manifest
from berdiff.data.dicom import SUFFIXES as DICOM
from berdiff.errors import InputError
from berdiff.remote import filesystem, speaking

HEAD = 64 * 1024  # bytes in which the pixels of nearly every DICOM file begin: its header is before them
_PIXELS = b"\xe0\x7f\x10\x00"  # the tag PixelData


class Found(NamedTuple):
    path: Path  # of the copy to come
    size: int  # in bytes
    listed: bool  # found in a folder


class Copies:
    """The files under one address. It may be sent to other processes and machines: each fetches for itself."""

    def __init__(self, address: str, folder: Path) -> None:
        protocol, _, rest = address.partition("://")
        self.address, self.protocol, self.base = address.rstrip("/"), protocol, folder / protocol
        self.given = self._path(rest)

    def fs(self) -> Any:
        return filesystem(self.address)[0]

    # --- names -------------------------------------------------------------------------------------------------------

    def address_of(self, path: Path) -> str:
        return f"{self.protocol}://{path.relative_to(self.base).as_posix()}"

    def translated(self, text: str) -> str:
        """A sentence about copies, about the addresses that they are of."""
        return text.replace(f"{self.base}/", f"{self.protocol}://")

    def is_store(self) -> bool:
        with speaking(self.address, "an image, a folder, a glob or a store"):
            return self.fs().exists(f"{self.address}/{manifest.NAME}")

    def find(self) -> tuple[Path, list[Found]]:
        """The folder that names are counted from, and the files that the address means."""
        fs, web = self.fs(), self.protocol in ("http", "https")  # which have files, but no folders to rely on
        with speaking(self.address, "an image, a folder, a glob or a store"):
            try:
                about = fs.info(self.address)
            except FileNotFoundError:
                about = None
            if about is not None and about["type"] == "file":
                return self.given.parent, self._found({self.address: about}, listed=False)
            if about is not None and not web:
                return self.given, self._in_folder(self.address)
            root = Path(*takewhile(lambda part: not glob.has_magic(part), self.given.parts))
            matches = fs.glob(self.address, detail=True) if glob.has_magic(self.address) and not web else {}
            found = self._found(matches, listed=False)
            for key, about in matches.items():
                found += self._in_folder(key) if about["type"] == "directory" else []
            return root, found

    def _in_folder(self, key: str) -> list[Found]:
        """At any depth, without hidden ones."""
        folder = self._path(key.rstrip("/"))
        found = self._found(self.fs().find(key, detail=True), listed=True)
        return [one for one in found if not any(p[0] == "." for p in one.path.relative_to(folder).parts)]

    def _found(self, keys: dict[str, dict[str, Any]], listed: bool) -> list[Found]:
        files = {key: about for key, about in keys.items() if about["type"] == "file" and not key.endswith("/")}
        return [Found(self._path(key), int(about["size"] or 0), listed) for key, about in files.items()]

    def _path(self, key: str) -> Path:
        """Where the copy goes. A key may be any text: one that would lead out of the folder is refused."""
        rest = PurePosixPath(key.partition("://")[2] if "://" in key else key.lstrip("/"))
        if ".." in rest.parts or "\\" in key or "\0" in key:
            raise InputError(f"{self.address}: expected names of files, found {key!r}, which leads elsewhere", "name")
        return self.base / rest

    # --- bytes -------------------------------------------------------------------------------------------------------

    def fetch(self, paths: Sequence[Path]) -> None:
        for path in paths:
            if not path.exists():
                _make_folder(path.parent, self.base.parent)
                with speaking(self.address_of(path), "a file that can be read"):
                    part = path.with_name(f".{path.name}.part")
                    self.fs().get_file(self.address_of(path), str(part))
                    part.replace(path)

    def release(self, paths: Sequence[Path]) -> None:
        """Remove the copies, and the folders that are empty then."""
        for path in paths:
            path.unlink(missing_ok=True)
            for parent in takewhile(lambda folder: folder != self.base.parent.parent, path.parents):
                try:
                    parent.rmdir()
                except OSError:  # not empty, or gone already
                    break

    @contextmanager
    def headers(self, paths: Sequence[Path]) -> Iterator[None]:
        """What is needed to tell kinds and series apart is there meanwhile: the heads of those that may be DICOM."""
        maybe = [path for path in paths if path.suffix.lower() in DICOM or not path.suffix[1:].isalpha()]
        try:
            for path in maybe:
                with speaking(self.address_of(path), "a file that can be read"):
                    head = self.fs().cat_file(self.address_of(path), start=0, end=HEAD)
                if head[128:132] == b"DICM" and len(head) == HEAD and _PIXELS not in head:
                    self.fetch([path])
                else:
                    _make_folder(path.parent, self.base.parent)
                    path.write_bytes(head)
            yield
        finally:
            self.release(maybe)


def new_folder() -> Path:
    """Where copies of this process go; it is made with the first of them."""
    return Path(tempfile.gettempdir()) / f"berdiff-{uuid.uuid4().hex}"


def _make_folder(folder: Path, top: Path) -> None:
    """`top` can be read by its owner alone: there are patients in it."""
    if not top.exists():
        top.mkdir(mode=0o700)
        atexit.register(shutil.rmtree, top, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)

"""Files from a client into a folder: bounded in number and size, no path leads out of it, and only images are kept."""

import gzip
import stat
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from berdiff.data import dicom
from berdiff.data.describe import check, refusing
from berdiff.data.reading import SUFFIXES
from berdiff_viewer.server.common import MIB, Limits

LONGEST_NAME = 120
DAMAGED = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


@dataclass
class Upload:
    """One upload on its way into `folder`, which is new and empty."""

    folder: Path
    limits: Limits
    room: int  # bytes that are left on the server
    files: list[Path] = field(default_factory=list[Path])
    unpacked: int = 0

    def add(self, name: str, source: IO[bytes]) -> None:
        """A file as the client calls it; an archive is unpacked."""
        if name.lower().endswith(".zip"):
            with refusing(DAMAGED, _shown(name), "a whole zip archive", "a damaged or foreign one"):
                self._unzip(_shown(name), source)
        else:
            self._write(name, source)

    def _unzip(self, shown: str, source: IO[bytes]) -> None:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            self._check_count(len(members))
            self._check_size(sum(member.file_size for member in members))
            for member in members:  # every one, before the first file is written
                mode = member.external_attr >> 16
                regular = not stat.S_IFMT(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)
                check(regular, f"{shown}: there is a link or a device in the archive", "kind")
                check(not member.flag_bits & 1, f"{shown}: the archive has a password", "unsupported")
                relative(member.filename)
            for member in members:
                if not member.is_dir():
                    with archive.open(member) as content:  # no more than it declares
                        self._write(member.filename, content)

    def _write(self, name: str, source: IO[bytes]) -> None:
        """Only what is an image by its suffix or its first bytes stays: nothing else is ever opened. A .nii.gz is
        unpacked, so that later readers meet no bomb."""
        self._check_count(len(self.files) + 1)
        content: Any = source
        if name.lower().endswith(".nii.gz"):
            name, content = name[:-3], gzip.GzipFile(fileobj=source, mode="rb")
        path = self._free(self.folder / relative(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file, refusing(DAMAGED, _shown(name), "a whole file", "a damaged one"):
            while chunk := content.read(MIB):
                self.unpacked += len(chunk)
                self._check_size(self.unpacked)
                file.write(chunk)
        if path.name.lower().endswith(SUFFIXES) or dicom.is_dicom(path):
            self.files.append(path)
        else:
            path.unlink()

    def _free(self, path: Path) -> Path:
        """Slices of a series that were flattened may share a name."""
        number = 1
        while path.exists():
            path, number = path.with_name(f"{number}-{path.name}"), number + 1
        return path

    def _check_count(self, count: int) -> None:
        most = self.limits.upload_files
        check(count <= most, f"upload: {count} files are more than {most}", "limit")

    def _check_size(self, size: int) -> None:
        most = self.limits.unpacked_bytes
        check(size <= most, f"upload: it is larger than {most // MIB} MiB when unpacked", "limit")
        check(size <= self.room, f"upload: it is larger than {self.room // MIB} MiB, the room that is left", "limit")


def relative(name: str) -> PurePosixPath:
    """A client's name as a path that stays inside its folder; whatever tries to leave it is refused."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/")
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]
    check(inside, f"{_shown(name)}: the name leads out of the upload", "name")
    clean = ["".join(c if c.isprintable() else "_" for c in part).lstrip(".")[-LONGEST_NAME:] for part in path.parts]
    check(all(clean) and len(clean) <= 8, f"{_shown(name)}: a name is empty, or there are more than 8 folders", "name")
    return PurePosixPath(*clean)


def _shown(name: str) -> str:
    """A client's name in a message: short, and without control characters."""
    return "".join(c if c.isprintable() else "_" for c in PurePosixPath(name.replace("\\", "/")).name)[-LONGEST_NAME:]

"""Files from a client into a folder: bounded in number and size, no path leads out of it, and only images are kept."""

import gzip
import stat
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath
from typing import IO

import tifffile
from PIL import Image
from pydicom.filereader import read_file_meta_info

from berdiff.data import dicom, images, volumes
from berdiff.data.describe import by, decoding, expect
from berdiff.data.reading import SUFFIXES, open_numpy
from berdiff.errors import InputError
from berdiff_viewer.server.common import MIB, Limits

CHUNK = MIB
LONGEST_NAME = 120
DEFLATED = "1.2.840.10008.1.2.1.99"


@dataclass
class Upload:
    """One upload on its way into `folder`, which is new and empty."""

    folder: Path
    limits: Limits
    room: int  # bytes that are left on the server
    files: list[Path] = field(default_factory=list)
    unpacked: int = 0

    def add(self, name: str, source: IO[bytes]) -> None:
        """A file as the client calls it; an archive is unpacked, as is a .gz, so that later readers meet no bomb."""
        lower = name.lower()
        if lower.endswith(".zip"):
            self._unzip(name, source)
        elif lower.endswith(".nii.gz"):
            self._write(name[:-3], _gunzipped(name, source))
        else:
            self._write(name, _chunks(source))

    def _unzip(self, name: str, source: IO[bytes]) -> None:
        shown = _shown(name)
        try:
            with zipfile.ZipFile(source) as archive:
                members = archive.infolist()
                self._check_count(len(members))
                declared = sum(member.file_size for member in members)
                self._check_size(declared)
                for member in members:
                    mode = member.external_attr >> 16
                    regular = not stat.S_IFMT(mode) or stat.S_ISREG(mode) or stat.S_ISDIR(mode)
                    expect(regular, shown, "an archive of regular files", "a link or a device in it")
                    expect(not member.flag_bits & 1, shown, "an archive without a password", "an encrypted one")
                    relative(member.filename)  # every name, before the first file is written
                for member in members:
                    if member.is_dir():
                        continue
                    with archive.open(member) as content:
                        if member.filename.lower().endswith(".nii.gz"):
                            self._write(member.filename[:-3], _gunzipped(member.filename, content))
                        else:
                            self._write(member.filename, _declared(content, member.file_size, shown))
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise InputError(f"{shown}: expected a whole zip archive, found a damaged or foreign one") from error

    def _write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Only what is an image by its suffix or its first bytes stays: nothing else is ever opened."""
        self._check_count(len(self.files) + 1)
        path = self._free(self.folder / relative(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            for chunk in chunks:
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
        expect(count <= most, "upload", f"at most {most} files", count)

    def _check_size(self, size: int) -> None:
        most = self.limits.unpacked_bytes
        expect(size <= most, "upload", f"at most {most // MIB} MiB when unpacked", "more")
        expect(size <= self.room, "upload", f"at most {self.room // MIB} MiB, the room that is left", "more")


def relative(name: str) -> PurePosixPath:
    """A client's name as a path that stays inside its folder; whatever tries to leave it is refused."""
    name = unicodedata.normalize("NFC", name).replace("\\", "/")
    path = PurePosixPath(name)
    inside = bool(path.parts) and not path.is_absolute() and ".." not in path.parts and ":" not in path.parts[0]
    expect(inside, _shown(name), "a file name that stays inside the upload", "one that leads out of it")
    clean = ["".join(c if c.isprintable() else "_" for c in part).lstrip(".")[-LONGEST_NAME:] for part in path.parts]
    expect(all(clean) and len(clean) <= 8, _shown(name), "file names and at most 8 folders", "others")
    return PurePosixPath(*clean)


def check_headers(files: Iterable[Path], limits: Limits) -> None:
    """By their headers alone: no image is larger than the limits. Called before any of them is decoded."""
    by_series: Counter[str] = Counter()  # a series is one volume
    for path in files:
        shape, series = _declared_shape(path)
        by_series[series] += prod(max(1, length) for length in shape)
        fits = by_series[series] <= limits.pixels and all(length <= limits.side for length in shape)
        found = by(shape) + (" and other slices" if series != str(path) else "")
        expect(fits, path.name, f"at most {limits.pixels} pixels and {limits.side} along a side", found)


def _declared_shape(path: Path) -> tuple[tuple[int, ...], str]:
    """The shape, and what the file is a part of. No more is read than the header: `reading.outline` may read pixels."""
    lower, one = path.name.lower(), str(path)
    if lower.endswith(volumes.SUFFIXES):
        return volumes.stored_shape(path), one
    if lower.endswith(".npy"):
        return open_numpy(path).shape, one
    if lower.endswith(images.SUFFIXES):
        return _picture_shape(path, lower.endswith((".tif", ".tiff"))), one
    with decoding(path.name, "a DICOM file", "one that cannot be read"):
        syntax = read_file_meta_info(path).get("TransferSyntaxUID")
    # pydicom inflates such a file as a whole, however large it becomes, before it reads a tag
    expect(syntax != DEFLATED, path.name, "a DICOM file that is not deflated", "a deflated one")
    header = dicom.read_header(path)
    return (*header.shape, header.frames, header.channels), header.series_uid


def _picture_shape(path: Path, tiff: bool) -> tuple[int, ...]:
    try:
        if tiff:
            with tifffile.TiffFile(path) as file:
                return (len(file.pages), *file.pages.first.shape)
        with Image.open(path, formats=("PNG", "JPEG")) as picture:  # by content: other formats bring other dangers
            return picture.size
    except Exception as error:  # whatever a library meets; its own words may have the path
        raise InputError(f"{path.name}: expected a whole picture, found a damaged or too large one") from error


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK):
        yield chunk


def _declared(source: IO[bytes], size: int, name: str) -> Iterator[bytes]:
    """The size that an archive declares is checked first; here that its content keeps to it."""
    seen = 0
    for chunk in _chunks(source):
        seen += len(chunk)
        expect(seen <= size, name, "files of the size that the archive declares", "larger ones")
        yield chunk


def _gunzipped(name: str, source: IO[bytes]) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=source, mode="rb") as file:
            yield from _chunks(file)  # type: ignore[arg-type]  # it reads like one
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"{_shown(name)}: expected a whole .gz file, found a damaged one") from error


def _shown(name: str) -> str:
    """A client's name in a message: short, and without control characters."""
    return "".join(c if c.isprintable() else "_" for c in PurePosixPath(name.replace("\\", "/")).name)[-LONGEST_NAME:]

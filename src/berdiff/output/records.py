"""What is kept of every result beside the files that were asked for: done.json, and small pictures and crops.

A result is recorded when its done.json is there: it says what was segmented, so that another file, or another place, of
the same name is noticed, and holds what the tables of cases and cohorts show.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from berdiff import schema
from berdiff.data.describe import expect
from berdiff.errors import InputError
from berdiff.files import whole_file, write_text
from berdiff.inference.finding import Finding
from berdiff.inference.inputs import Input
from berdiff.inference.result import Result
from berdiff.output.captions import notes
from berdiff.output.destination import Destination
from berdiff.output.done_file import DoneFile, Measured, sizes_of
from berdiff.output.pictures import enlarged, outlined
from berdiff.output.result_files import DONE
from berdiff.output.tiles import contours_tile, masks_tile, picture_bytes
from berdiff.output.views import close_up

THUMBNAIL, CROP = "thumbnail.png", "crop.npz"
SIDE = 160  # pixels of a thumbnail, at most


def sources_of(item: Input) -> list[dict[str, Any]]:
    """What an input was made of; a file of another length is another file."""
    if item.store is not None:
        return [{"path": item.store.address, "case": str(item.store.cases.case[item.index])}]
    if item.copies is not None:
        addresses = (item.copies.address_of(path) for path in item.paths)
        return [{"path": path, "bytes": size} for path, size in zip(addresses, item.sizes, strict=True)]
    try:
        return [{"path": str(path.resolve()), "bytes": path.stat().st_size} for path in item.paths]
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{item.what}: expected the file that was found before, found it gone ({reason})") from error


@dataclass(frozen=True)
class Record:
    """Of one result: the case, the finding in it, and what it was made of."""

    case: str
    finding: Finding | None
    sources: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.case if self.finding is None else f"{self.case}/{self.finding.name}"

    def is_in(self, out: Destination, what: str) -> bool:
        """Whether the result of this very input, `what`, or finding, is there; another one in its place is refused."""
        done = out.done(self.name)
        if done is None:
            return False
        same = done.sources == self.sources and done.finding == self._about
        others = "those of another file or place, or of something else; remove them or take another --out"
        expect(same, out.place(self.name), f"the results of {what} as it is now", others)
        return True

    def write(self, result: Result, folder: Path, written: Sequence[Path], title: str) -> None:
        """The last file of a folder that appears whole. `title`: what people call it."""
        files = [str(path.relative_to(folder)) for path in written]
        if self.finding is not None and result.volume:
            files.append(write_crop(result, folder))
        with whole_file(folder / THUMBNAIL) as picture:
            picture.write_bytes(thumbnail(result))
        done = DoneFile(
            self.name,
            self.case,
            self._about,
            self.sources,
            sizes_of(folder, [*files, THUMBNAIL]),
            cast(dict[str, Measured], result.measurements()),
            notes(result),
            title if self.finding is None else title.removesuffix(f", {self.finding.name}"),
            list(result.warnings),
        )
        write_text(folder / DONE, schema.dump(done))

    @property
    def _about(self) -> dict[str, Any] | None:
        return None if self.finding is None else {"name": self.finding.name, "center": list(self.finding.center)}


def write_crop(result: Result, folder: Path) -> str:
    """Saliency and majority of the region alone."""
    first = np.array([start for start, _ in result.region or [(0, 0)] * 3])
    with whole_file(folder / CROP) as part, part.open("wb") as file:
        np.savez_compressed(file, first=first, saliency=result.saliency, majority=result.majority())
    return CROP


def thumbnail(result: Result) -> bytes:
    """A small picture of the finding: the contours of one target, or the majority of several, close up."""
    close = close_up(result)
    # every so many pixels of a large picture: outlines of all of them would take long, and then not be seen
    step = -(-max(close.image.shape[-2:]) // (4 * SIDE))
    few = (..., slice(None, None, step), slice(None, None, step))
    under = close.image[close.channel][few]
    if len(result.targets) == 1:
        tile = replace(contours_tile("", under, close.of(result.saliency[0])[few], 0, 1), key=())
    else:
        tile = masks_tile("", under, close.of(result.majority())[few], result.kind)
    picture = outlined(tile, enlarged(tile, result.grid.aspect, SIDE // 2), 1)
    picture.thumbnail((SIDE, SIDE))
    return picture_bytes(picture)

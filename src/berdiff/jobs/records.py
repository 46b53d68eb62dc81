"""What is kept of every result beside the files that were asked for: done.json, and small pictures and crops.

A result is recorded when its done.json is there: it says what was segmented, so that another file, or another place, of
the same name is noticed, and holds what the tables of cases and cohorts show.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from berdiff import schema
from berdiff.data.describe import check
from berdiff.inference.result import Result
from berdiff.jobs.done_file import DoneFile, Measured, read_done, whole_result
from berdiff.jobs.store import DONE, ResultFiles
from berdiff.jobs.tasks import Task
from berdiff.output.captions import notes
from berdiff.output.pictures import fitted, outlined
from berdiff.output.tiles import contours_tile, masks_tile, picture_bytes
from berdiff.output.views import close_up

THUMBNAIL, CROP = "thumbnail.png", "crop.npz"
SIDE = 160  # pixels of a thumbnail, at most


def write_record(task: Task, result: Result, folder: Path, written: Sequence[Path], title: str) -> DoneFile:
    """done.json, the last file of a folder that appears whole. `title`: what people call it."""
    (folder / THUMBNAIL).write_bytes(thumbnail(result))
    files = [*written, folder / THUMBNAIL]
    if task.finding is not None and result.volume:  # saliency and majority of the region alone
        first = np.array([start for start, _ in result.region or [(0, 0)] * 3])
        np.savez_compressed(folder / CROP, first=first, saliency=result.saliency, majority=result.majority())
        files.append(folder / CROP)
    done = DoneFile(
        task.folder,
        task.case,
        _finding_of(task),
        task.sources,
        {str(path.relative_to(folder)): path.stat().st_size for path in files},
        cast(dict[str, Measured], result.measurements()),
        notes(result),
        title,
        list(result.warnings),
    )
    (folder / DONE).write_text(schema.dump(done), encoding="utf-8")
    return read_done(folder)  # as a later run reads it


def kept_record(files: ResultFiles, task: Task) -> DoneFile | None:
    """The done.json of a task's result; None where there is none, or files are not all as they were written: it is made
    again. What is of another input, or of something else, is refused."""
    done = whole_result(files, task.folder)
    if done is None and not files.is_foreign(task.folder):
        return None
    same = done is not None and done.sources == task.sources and done.finding == _finding_of(task)
    others = f"the files there are not of {task.item.what} as it is now; remove them or take another --out"
    check(same, f"{files.address(task.folder)}: {others}", "changed")
    return done


def _finding_of(task: Task) -> dict[str, Any] | None:
    return None if task.finding is None else {"name": task.finding.name, "center": list(task.finding.center)}


def thumbnail(result: Result) -> bytes:
    """A small picture of the finding: the contours of one target, or the majority of several, close up."""
    close = close_up(result)
    under = close.image[close.channel]
    if len(result.targets) == 1:
        tile = replace(contours_tile("", under, close.of(result.saliency[0]), 0, 1), key=())
    else:
        tile = masks_tile("", under, close.of(result.majority()))
    return picture_bytes(outlined(tile, fitted(tile, result.grid.aspect, SIDE, SIDE), 1))

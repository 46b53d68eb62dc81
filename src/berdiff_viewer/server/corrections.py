"""Raters' masks on the disk, in the names that `berdiff data prepare folder` reads.

DIR/images/CASE.*                        the image, without a patient's name in it
DIR/masks/RATER/TARGET/CASE.*            a rater's mask
DIR/notes/RATER/TARGET/CASE.json         who, when, which slices of a volume the rater looked at, with which model,
                                         corrected from which sample

A case is called by its image's name and a part of the checksum of its values: the same image is the same case.
"""

import hashlib
import io
import json
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as Picture

from berdiff import __version__, schema
from berdiff.data.describe import by, check, expect
from berdiff.data.image import Image
from berdiff.data.reading import read_labels, stem
from berdiff.files import whole_file, write_text
from berdiff.output.nifti import nifti_bytes
from berdiff_viewer.server.items import Item

Note = Mapping[str, Any]


@dataclass
class Saved:
    """What one rater saved of one image."""

    rater: str
    case: str
    tag: str = ""  # that the client gave it
    when: float = 0.0
    masks: dict[str, Path] = field(default_factory=dict[str, Path])  # by target
    values: dict[str, int] = field(default_factory=dict[str, int])  # of each target in a label map


class Corrections:
    """A folder of raters' masks."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, threading.Lock()

    def save(
        self,
        item: Item,
        file: Image,
        masks: Mapping[str, np.ndarray],
        rater: str,
        note: Note,
        slices: Sequence[int] | None = None,
    ) -> list[str]:
        """`masks`: target -> ([Z,] H, W) of 0 and 1, upright. The paths written, counted from the folder.

        `slices`: those of a volume that the rater looked at, which alone are prepared; without it, those in which any
        of the masks marks anything, of empty ones all. A rater's later mask of a case takes the place of the earlier
        one, with `slices` in these alone.
        """
        name, shape, case = safe_name(rater, "name"), plane_shape(file), case_name(item, file)
        targets = {safe_name(target, "target"): mask for target, mask in masks.items()}
        for target, mask in targets.items():
            expect(mask.shape == shape, target, f"a mask of {by(shape)} like its image", by(mask.shape), "shape")
        if file.grid.planar:
            check(slices is None, "slices: only a volume has them", "conflict")
        else:
            marked = np.flatnonzero(np.any([mask.any((1, 2)) for mask in masks.values()], 0)).tolist()
            # an empty mask says that nothing is there
            looked_at = sorted(set(slices)) if slices is not None else marked or list(range(shape[0]))
            inside = all(0 <= z < shape[0] for z in looked_at)
            expect(inside, "slices", f"numbers from 0 to {shape[0] - 1}", looked_at, "place")
            note = {**note, "slices": looked_at}
            seen = np.zeros((shape[0], 1, 1), np.uint8)
            seen[looked_at] = 1  # what a model drew where nobody looked is nobody's opinion
            targets = {target: mask * seen for target, mask in targets.items()}
        written: list[str] = []
        with self._lock:
            for path, content in image_files(item, file, case):
                written += [path] if not (self.folder / path).exists() else []
                _write(self.folder / path, content)
            for target, mask in targets.items():
                own, folder = note, f"{name}/{target}"
                if slices is not None:
                    mask, own = self._with_earlier(file, mask, note, folder, case)
                suffix, content = mask_file(file, (mask > 0).astype(np.uint8))
                path, note_path = f"masks/{folder}/{case}{suffix}", f"notes/{folder}/{case}.json"
                _write(self.folder / path, content)
                when = datetime.now(UTC).isoformat(timespec="seconds")
                facts = {"berdiff": __version__, "rater": rater, "target": target, "case": case, "saved": when}
                write_text(self.folder / note_path, schema.dump({**facts, "image": item.name, **own}))
                written += [path, note_path]
        return written

    def _with_earlier(
        self, file: Image, mask: np.ndarray, note: Note, folder: str, case: str
    ) -> tuple[np.ndarray, Note]:
        """A volume's mask and note, with the slices that were saved before and are not saved now."""
        path = self.folder / f"notes/{folder}/{case}.json"
        saved = next((self.folder / "masks" / folder).glob(f"{case}.*"), None)
        if saved is None:
            return mask, note
        earlier: Note = json.loads(path.read_text("utf-8")) if path.exists() else {}
        before: Sequence[int] = earlier.get(
            "slices", range(len(mask))
        )  # without them it is of all, as preparing has it
        kept = sorted(set(before) - set(note["slices"]))
        mask[kept] = read_labels(saved, file)[kept]
        return mask, {**note, "slices": sorted({*kept, *note["slices"]})}

    def targets(self) -> list[str]:
        """Those that any rater has saved."""
        return sorted({path.name for path in self.folder.glob("masks/*/*") if path.is_dir()})

    def missing(self, item: Item, file: Image, rater: str, targets: Sequence[str]) -> list[str]:
        """Of these targets, those that the rater has not saved yet: a store takes all of them or none."""
        notes, case = self.folder / "notes" / safe_name(rater, "name"), case_name(item, file)
        return [one for one in targets if not (notes / safe_name(one, "target") / f"{case}.json").exists()]

    def saved(self) -> dict[str, list[Saved]]:
        """By the image's name, what raters saved of it, the last saved at the end."""
        notes: list[tuple[float, Path, Path, dict[str, Any]]] = []
        for path in self.folder.glob("notes/*/*/*.json"):
            masks = (self.folder / "masks" / path.parent.relative_to(self.folder / "notes")).glob(f"{path.stem}.*")
            with suppress(OSError, ValueError):  # not ours, or just being replaced
                note = json.loads(path.read_text("utf-8"))
                notes += [(path.stat().st_mtime, path, mask, note) for mask in masks if isinstance(note, dict)]
        latest: dict[tuple[str, str, str], Saved] = {}
        for when, path, mask, note in sorted(notes, key=lambda one: one[0]):
            image, rater, tag = (str(note.get(name, "")) for name in ("image", "rater", "tag"))
            one = latest.pop((image, rater, path.stem), None) or Saved(rater, path.stem)
            latest[image, rater, path.stem] = one  # at the end
            target = path.parent.name
            value = note.get("label_names", {}).get(target, 0)  # the client's own, where it is still free
            if value < 1 or value in one.values.values():
                value = max(one.values.values(), default=0) + 1
            one.values.setdefault(target, value)
            one.masks[target], one.tag, one.when = mask, tag, when
        by_image: dict[str, list[Saved]] = {}
        for (image, *_), one in latest.items():
            by_image.setdefault(image, []).append(one)
        return by_image


def safe_name(text: str, what: str) -> str:
    """A name that is a folder of its own on every file system."""
    clean = re.sub(r"[^\w.-]+", "-", text.strip()).strip(".-")[:64]
    check(clean, f"{what}: it must have letters or digits", "name")
    return clean


def file_name(item: Item) -> str:
    """What a file that a client gets of an item is called."""
    return safe_name(item.name.replace("/", "-"), "name").encode("ascii", "replace").decode().replace("?", "-")


def plane_shape(file: Image) -> tuple[int, ...]:
    """([Z,] H, W) of its masks."""
    return file.values.shape[2 if file.grid.planar else 1 :]


def digest_of(file: Image) -> str:
    digest = hashlib.sha256(repr((file.values.shape, file.values.dtype.str)).encode())
    digest.update(np.ascontiguousarray(file.values).data)
    return digest.hexdigest()[:8]


def case_name(item: Item, file: Image) -> str:
    return f"{safe_name(item.name.replace('/', '-'), 'image')[-80:]}-{digest_of(file)}"


def image_files(item: Item, file: Image, case: str) -> list[tuple[str, bytes]]:
    """(relative path, content). DICOM becomes NIfTI or .npy: its values and place, and nothing of the patient."""
    if file.source.kind in ("png", "nifti", "npy"):
        parts = [(path.name[len(stem(path)) :].lower(), path.read_bytes()) for path in item.paths]
    elif file.source.kind == "dicom" and not file.grid.planar:
        parts = [(".nii.gz", nifti_bytes(file.values[0], file.grid))]
    else:
        parts = [(".npy", _npy(plane[0])) for plane in file.values]
    # a file per channel: `--image-name "{case}_{channel}"`
    names = [f"{case}_{i:04d}" for i in range(len(parts))] if len(parts) > 1 else [case]
    return [(f"images/{name}{suffix}", content) for name, (suffix, content) in zip(names, parts, strict=True)]


def mask_file(file: Image, mask: np.ndarray) -> tuple[str, bytes]:
    """(suffix, content) of a mask ([Z,] H, W) of 0 and 1."""
    kind = file.source.kind
    if kind == "nifti" or (kind == "dicom" and not file.grid.planar):
        return ".nii.gz", nifti_bytes(mask, file.grid)
    if file.grid.planar:
        picture = io.BytesIO()
        Picture.fromarray(mask * np.uint8(255)).save(picture, "PNG")
        return ".png", picture.getvalue()
    return ".npy", _npy(mask)


def _npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


def _write(path: Path, content: bytes) -> None:
    with whole_file(path) as part:
        part.write_bytes(content)

"""Small files in LIDC's public layouts, and a source made of cases, for the tests of sources and stores."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from berdiff.data.case import Case, Reading
from berdiff.data.input_spec import Intensity
from berdiff.errors import InputError


def refused(read: Callable[[], object], *parts: str) -> str:
    """The one sentence with which `read` refuses its input; each of `parts` is in it."""
    with pytest.raises(InputError) as caught:
        read()
    sentence = str(caught.value)
    assert "\n" not in sentence
    for part in parts:
        assert part in sentence
    return sentence


def blobs(n: int, readers: int = 4, size: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, H, W) uint8 and masks (n, readers, H, W) of 0 and 1: discs, one per rater, some empty."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (n, size, size), dtype=np.uint8)
    y, x = np.mgrid[:size, :size]
    radius = rng.integers(0, size // 3, (n, readers))[..., None, None]
    masks = (np.hypot(y - size / 2, x - size / 2) < radius).astype(np.uint8)
    return images, masks


def make_cases(n: int = 10, patients: int = 5, readers: int = 4, size: int = 32, **fields: Any) -> list[Case]:
    """Case i belongs to patient i % patients and has 1 + i % readers readers."""
    images, masks = blobs(n, readers, size)
    return [
        Case(
            **{
                "name": f"case {i}",
                "patient": f"patient {i % patients}",
                "image": images[i][None],
                "masks": masks[i, : 1 + i % readers, None],
                "volume": f"scan {i % patients}",
                "spacing": (0.5, 0.7),
                "source": f"file-{i}",
                **fields,
            }
        )
        for i in range(n)
    ]


@dataclass(frozen=True)
class NoOptions:
    pass


def as_source(cases: Iterable[Case], **fields: Any) -> SimpleNamespace:
    """A source module whose reading consists of these cases; `fields` replace what the reading states of them."""
    cases = list(cases)

    def read(path: Path | None, options: NoOptions) -> Reading:
        values = {
            "channels": ("ct",),
            "targets": ("nodule",),
            "intensity": Intensity(),
            "raters": 4,
            "size": (32, 32),
            "dtype": "uint8",
            "total": len(cases),
            "cases": iter(cases),
            "notes": ("made for a test",),
        }
        return Reading(**{**values, **fields})

    return SimpleNamespace(Options=NoOptions, read=read)


def write_hdf5(path: Path, counts: dict[str, int] | None = None, **changes: Any) -> dict[str, Any]:
    """A v1 file with uint8 images and readers last; `changes` replaces datasets by their path, None leaves one out.

    Returns split -> (images, masks).
    """
    made: dict[str, Any] = {}
    with h5py.File(path, "w") as file:
        for number, (split, n) in enumerate((counts or {"train": 6, "val": 2, "test": 3}).items()):
            images, masks = blobs(n, seed=number)
            made[split] = images, masks
            content = {
                "images": images,
                "labels": np.moveaxis(masks, 1, -1),
                "uids": np.array([f"{split}-{i // 2}".encode() for i in range(n)]),
            }
            for name, data in content.items():
                data = changes.get(f"{split}_{name}", data)
                if data is not None:
                    file[f"{split}/{name}"] = data
    return made


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def write_png_tree(root: Path, patients: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Two nodules per patient, two slices per nodule, packed in one more folder as in the public archive."""
    images, masks = blobs(patients * 4)
    for i, (image, readers) in enumerate(zip(images, masks, strict=True)):
        nodule = root / "LIDC-IDRI-slices" / f"LIDC-IDRI-{i // 4:04d}" / f"nodule-{i // 2 % 2}"
        save(nodule / "images" / f"slice-{i % 2}.png", image)
        for k, mask in enumerate(readers):
            save(nodule / f"mask-{k}" / f"slice-{i % 2}.png", mask * np.uint8(255))
    return images, masks


def write_crops(root: Path, counts: dict[str, int] | None = None) -> dict[str, Any]:
    """The v2 crops, smaller: 44x44 for 180x180. Returns split -> (images, masks)."""
    made = {}
    for number, (split, n) in enumerate((counts or {"train": 3, "val": 2, "test": 2}).items()):
        images, masks = made[split] = blobs(n, size=44, seed=number)
        for i in range(n):
            base, name = root / f"lidc_crops_{split}" / split, f"LIDC-IDRI-{number}{i // 2:03d}"
            save(base / "images" / name / f"z-{i}.5_c0.png", images[i])
            for k in range(4):
                save(base / "gt" / name / f"z-{i}.5_c0_l{k}.png", masks[i, k] * np.uint8(255))
    return made


def write_jpg_folders(root: Path, counts: dict[str, int] | None = None) -> dict[str, Any]:
    """CIMD's folders. Returns split folder -> (images, masks); the JPGs only come near them."""
    made = {}
    for number, (split, n) in enumerate((counts or {"training": 3, "testing": 2}).items()):
        images, masks = made[split] = blobs(n, seed=number)
        for i in range(n):
            save(root / split / str(i) / f"image_{i + 1}.jpg", images[i])
            for k in range(4):
                save(root / split / str(i) / f"label{k}_.jpg", masks[i, k] * np.uint8(255))
    return made

"""Find the cases of a BraTS folder, whichever of the three layouts it has.

| layout | files |
| --- | --- |
| case folders (BraTS 2018 to 2021) | `CASE/CASE_{t1,t1ce,t2,flair,seg}.nii.gz` or `.nii`, at any depth |
| Decathlon | `imagesTr/CASE.nii.gz` of four channels, `labelsTr/CASE.nii.gz`, labels in an order of their own |
| 2D slices | `CASE_{t1,...,seg}_NUMBER.nii.gz` or `..._NUMBER_w.nii.gz`, at any depth |

Only names and headers are read here, so a missing sequence or a differing shape is told before the long work begins.
"""

import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from berdiff.data import volumes
from berdiff.data.paths import SPLIT_FOLDERS, files_under, inside
from berdiff.errors import InputError

SEQUENCES = ("t1", "t1ce", "t2", "flair")
LABELS = (0, 1, 2, 4)  # background, necrotic core, edema, enhancing tumour
GRID_DEPTH = 155  # axial slices of every BraTS scan: where "the top 26" begins in an export of single slices
# Decathlon: channels in this order; labels 1 edema, 2 non-enhancing (necrotic) core, 3 enhancing tumour
DECATHLON_CHANNELS = ("flair", "t1", "t1ce", "t2")
DECATHLON_MODALITIES = {"0": "FLAIR", "1": "T1w", "2": "t1gd", "3": "T2w"}
DECATHLON_TO_BRATS = np.array([0, 2, 1, 4], np.uint8)
_PARTS = "|".join((*SEQUENCES, "seg"))
_VOLUME = re.compile(rf"(?P<case>.+)_(?P<part>{_PARTS})\.nii(\.gz)?")
_SLICE = re.compile(rf"(?P<case>.+)_(?P<part>{_PARTS})_(?P<number>\d+)(_w)?\.nii(\.gz)?")
_STRAY_SEG = re.compile(r".+_Segm\.nii(\.gz)?")  # BraTS20_Training_355 was published with its seg under such a name


@dataclass(frozen=True, eq=False)
class Scan:
    """Slices of one case, as stored: sequences in the order asked for, labels as BraTS numbers them."""

    images: np.ndarray  # (C, Z, H, W) float32
    labels: np.ndarray  # (Z, H, W) uint8 of LABELS
    spacing: tuple[float, float]


class FoundCase(Protocol):
    """One case of any layout."""

    @property
    def name(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def numbers(self) -> tuple[int, ...]: ...  # of its axial slices, counted from 0 at the bottom
    @property
    def depth(self) -> int: ...  # slices of the whole scan

    def load(self, sequences: tuple[str, ...]) -> Scan: ...


@dataclass(frozen=True)
class VolumeCase:
    """A case folder: one file a sequence."""

    name: str
    split: str
    source: str
    files: dict[str, Path]
    depth: int

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.depth))

    def load(self, sequences: tuple[str, ...]) -> Scan:
        seg = volumes.read_volume(self.files["seg"])
        images = []
        for sequence in sequences:
            volume = volumes.read_volume(self.files[sequence])
            volumes.check_same_place(seg, volume)
            images.append(volume.voxels.astype(np.float32))
        return Scan(np.stack(images), volumes.whole_labels(seg.voxels, LABELS, seg.path), seg.spacing)


@dataclass(frozen=True)
class DecathlonCase:
    """One 4D file and its labels."""

    name: str
    source: str
    image: Path
    labels: Path
    depth: int
    split: str = ""

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(range(self.depth))

    def load(self, sequences: tuple[str, ...]) -> Scan:
        labels = volumes.read_volume(self.labels)
        image = volumes.read_volume(self.image, ndim=4)
        volumes.check_same_place(image, labels)
        order = [DECATHLON_CHANNELS.index(sequence) for sequence in sequences]
        stored = volumes.whole_labels(labels.voxels, (0, 1, 2, 3), labels.path)
        return Scan(image.voxels[order].astype(np.float32, copy=False), DECATHLON_TO_BRATS[stored], labels.spacing)


@dataclass(frozen=True)
class SlicesCase:
    """A case exported slice by slice: one 2D file a sequence and slice."""

    name: str
    split: str
    source: str
    slices: dict[int, dict[str, Path]]  # number -> part -> file
    depth: int = GRID_DEPTH

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(sorted(self.slices))

    def load(self, sequences: tuple[str, ...]) -> Scan:
        images, labels = [], []
        for number in self.numbers:
            files = self.slices[number]
            seg = volumes.whole_labels(volumes.read_plane(files["seg"]), LABELS, files["seg"])
            planes = [volumes.read_plane(files[sequence]) for sequence in sequences]
            for sequence, plane in zip((*sequences, "seg"), (*planes, seg), strict=True):
                expected = labels[0].shape if labels else planes[0].shape
                if plane.shape != expected:
                    raise InputError(
                        f"{files[sequence]}: expected {expected[0]}x{expected[1]} like the case's other slices, "
                        f"found {plane.shape[0]}x{plane.shape[1]}"
                    )
            images.append(np.stack(planes).astype(np.float32))
            labels.append(seg)
        # an exported picture carries no spacing to trust: BraTS has 1 mm in every direction
        return Scan(np.stack(images, axis=1), np.stack(labels), (1.0, 1.0))


def find_cases(root: Path, sequences: tuple[str, ...]) -> tuple[list[FoundCase], list[str]]:
    """All labelled cases under `root`, by name, and notes on what was left out."""
    if not root.is_dir():
        raise InputError(f"{root}: expected a folder of BraTS cases, found {'a file' if root.exists() else 'nothing'}")
    if (root / "imagesTr").is_dir():
        return _decathlon(root), []
    by_volume: dict[str, dict[str, Path]] = defaultdict(dict)
    by_slice: dict[str, dict[int, dict[str, Path]]] = defaultdict(lambda: defaultdict(dict))
    stray: dict[Path, Path] = {}
    for path in files_under(root):
        if match := _SLICE.fullmatch(path.name):
            _add(by_slice[match["case"]][int(match["number"])], match["part"], path)
        elif match := _VOLUME.fullmatch(path.name):
            _add(by_volume[match["case"]], match["part"], path)
        elif _STRAY_SEG.fullmatch(path.name):
            stray[path.parent] = path
    for files in by_volume.values():
        folder = next(iter(files.values())).parent
        if "seg" not in files and folder in stray:
            files["seg"] = stray[folder]
    if by_volume and by_slice:
        raise InputError(f"{root}: expected whole volumes or 2D slices, found both (give one of the folders)")
    if by_volume:
        labelled, notes = _labelled(root, {(case, 0): files for case, files in by_volume.items()}, sequences)
        return _volume_cases(root, labelled), notes
    slices = {(case, number): files for case, of in by_slice.items() for number, files in of.items()}
    if not slices:
        raise InputError(
            f"{root}: expected BraTS cases (CASE_t1.nii.gz, ..., CASE_seg.nii.gz, 2D slices of them, or Decathlon's "
            "imagesTr), found none"
        )
    labelled, notes = _labelled(root, slices, sequences)
    return _slice_cases(root, labelled), notes


Labelled = dict[tuple[str, int], tuple[str, dict[str, Path]]]  # (case, number) -> (split, files)


def _labelled(
    root: Path, found: dict[tuple[str, int], dict[str, Path]], sequences: tuple[str, ...]
) -> tuple[Labelled, list[str]]:
    """Those with labels and all sequences. A `testing` folder in which nothing has labels is left out, and said so."""
    of_split: dict[str, Labelled] = defaultdict(dict)
    for key, files in sorted(found.items()):
        top = next(iter(files.values())).relative_to(root).parts[0]
        of_split[SPLIT_FOLDERS.get(top.lower(), "")][key] = (top, files)
    notes = []
    for split, cases in list(of_split.items()):
        if split and not any("seg" in files for _, files in cases.values()):
            folder = next(iter(cases.values()))[0]
            notes.append(f"{folder}/ has no seg files: {len(cases)} slices or cases left out")
            del of_split[split]
    for cases in of_split.values():
        for _, files in cases.values():
            some = next(iter(files.values()))
            for part in (*sequences, "seg"):
                if part not in files:
                    raise InputError(
                        f"{some.parent}: expected a {part} file beside {some.name}, found only {', '.join(files)}"
                    )
    if not of_split:
        raise InputError(f"{root}: expected cases with seg files, found none that have one")
    # one folder called `training` is no split: the store makes one
    keep = len([split for split in of_split if split]) > 1
    return {
        key: (split if keep else "", files) for split, cases in of_split.items() for key, (_, files) in cases.items()
    }, notes


def _volume_cases(root: Path, labelled: Labelled) -> list[FoundCase]:
    cases: list[FoundCase] = []
    for (name, _), (split, files) in sorted(labelled.items()):
        shape = volumes.shape_of(files["seg"])
        for path in files.values():
            _check_shape(path, volumes.shape_of(path), shape)
        source = files["seg"].parent.relative_to(root).as_posix()
        cases.append(VolumeCase(name, split, source, files, shape[0]))
    return cases


def _slice_cases(root: Path, labelled: Labelled) -> list[FoundCase]:
    slices: dict[str, dict[int, dict[str, Path]]] = defaultdict(dict)
    splits: dict[str, str] = {}
    for (name, number), (split, files) in labelled.items():
        slices[name][number] = files
        if splits.setdefault(name, split) != split:
            raise InputError(
                f"{files['seg']}: expected the patient {name} in one split, found it in {splits[name]} and {split}"
            )
    sources = {name: next(iter(of.values()))["seg"].relative_to(root).as_posix() for name, of in slices.items()}
    return [SlicesCase(name, splits[name], sources[name], slices[name]) for name in sorted(slices)]


def _decathlon(root: Path) -> list[FoundCase]:
    _check_modalities(inside(root, root / "dataset.json"))
    cases: list[FoundCase] = []
    for image in files_under(root / "imagesTr", root):
        if not image.name.endswith(volumes.SUFFIXES):
            continue
        labels = inside(root, root / "labelsTr" / image.name)
        if not labels.is_file():
            raise InputError(f"{labels}: expected the labels of imagesTr/{image.name}, found no such file")
        channels, *shape = volumes.shape_of(image, ndim=4)
        if channels != len(DECATHLON_CHANNELS):
            raise InputError(f"{image}: expected the 4 channels FLAIR, T1w, T1gd, T2w, found {channels}")
        _check_shape(labels, volumes.shape_of(labels), tuple(shape))
        name = image.name.removesuffix(".gz").removesuffix(".nii")
        cases.append(DecathlonCase(name, image.relative_to(root).as_posix(), image, labels, shape[0]))
    if not cases:
        raise InputError(f"{root / 'imagesTr'}: expected 4D NIfTI files, found none")
    return cases


def _check_modalities(path: Path) -> None:
    """dataset.json, where there is one, must tell the channel order that this reader relies on."""
    if not path.is_file():
        return
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["modality"]
        same = {key: value.lower() for key, value in found.items()} == {
            key: value.lower() for key, value in DECATHLON_MODALITIES.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: expected JSON with the entry 'modality', found none ({error})") from error
    if not same:
        raise InputError(f"{path}: expected the modalities {DECATHLON_MODALITIES}, found {found}")


def _check_shape(path: Path, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        shown, want = ("x".join(map(str, shape)) for shape in (found, expected))
        raise InputError(f"{path}: expected {want} slices, rows, columns like the case's other files, found {shown}")


def _add(files: dict[str, Path], part: str, path: Path) -> None:
    if part in files:
        raise InputError(f"{path}: expected each case once, found it also as {files[part]}")
    files[part] = path

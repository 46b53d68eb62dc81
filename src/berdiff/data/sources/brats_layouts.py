"""Find the cases of a BraTS folder, whichever of the three layouts it has.

Case folders (BraTS 2018 to 2021, and 2023's names) and 2D slices, `CASE_{t1,...,seg}_NUMBER.nii.gz` or
`..._NUMBER_w.nii.gz`, may lie at any depth; the Decathlon's are `imagesTr/CASE.nii.gz` of four channels and
`labelsTr/CASE.nii.gz`.

Only names, headers and one label map or a few are read here, so a missing sequence or a differing shape is found
before the long work begins. The label maps say how enhancing tumour is written: 4, or 3 since BraTS 2023. Both in one
data set are refused, as 3 had another meaning before (non-enhancing tumour, until 2016).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from berdiff import schema
from berdiff.data import volumes
from berdiff.data.describe import by, check, expect, some_values
from berdiff.data.image import check_same_place
from berdiff.data.paths import SPLIT_FOLDERS, add_once, exists, expect_file, expect_folder, files_under, inside
from berdiff.data.reading import stem

SEQUENCES = ("t1", "t1ce", "t2", "flair")
ENHANCING = 4  # beside 0 background, 1 necrotic core, 2 edema
NEW_ENHANCING = 3  # the same since BraTS 2023
NEW_NOTE = "enhancing tumour is 3 in these files, as in BraTS 2023; read as the 4 of the years before"
GRID_DEPTH = 155  # axial slices of every BraTS scan: where "the top 26" begins in an export of single slices
# Decathlon: channels in this order; labels 1 edema, 2 non-enhancing (necrotic) core, 3 enhancing tumour
DECATHLON_CHANNELS = ("flair", "t1", "t1ce", "t2")
DECATHLON_MODALITIES = {"0": "flair", "1": "t1w", "2": "t1gd", "3": "t2w"}
DECATHLON_TO_BRATS = np.array([0, 2, 1, 4], np.uint8)
_PARTS = "|".join((*SEQUENCES, "seg"))
_FILE = re.compile(rf"(?P<case>.+)_(?P<part>{_PARTS})(_(?P<number>\d+)(_w)?)?\.nii(\.gz)?")
NEW_PARTS = {"t1n": "t1", "t1c": "t1ce", "t2w": "t2", "t2f": "flair", "seg": "seg"}
_NEW_FILE = re.compile(rf"(?P<case>.+)-(?P<part>{'|'.join(NEW_PARTS)})\.nii(\.gz)?")
_TIME_POINT = re.compile(r"(?P<patient>.+-\d{5})-\d{3}")  # BraTS-GLI-00006-000
_STRAY_SEG = re.compile(r".+_Segm\.nii(\.gz)?")  # BraTS20_Training_355 was published with its seg under such a name
WHOLE = -1  # in place of the number of a slice
Found = dict[tuple[str, int], dict[str, Path]]  # (case, number of a slice) -> part -> file
# Slices of one case, as stored: the sequences asked for (C, Z, H, W) float32, labels (Z, H, W) uint8 of 0, 1, 2 and
# ENHANCING, and mm per pixel (row, column)
Scan = tuple[np.ndarray, np.ndarray, tuple[float, ...]]


@dataclass(frozen=True)
class Decathlon:
    """What matters of dataset.json."""

    modality: dict[str, str]


@dataclass(frozen=True)
class FoundCase:
    """One case of any layout."""

    name: str
    split: str
    source: str
    numbers: Sequence[int]  # of its axial slices, counted from 0 at the bottom
    depth: int  # slices of the whole scan
    load: Callable[[tuple[str, ...]], Scan]  # from the sequences that are wanted, in their order
    planar: bool = False  # exported slice by slice

    @property
    def patient(self) -> str:
        """Since BraTS 2023 a case is a time point of a patient."""
        match = _TIME_POINT.fullmatch(self.name)
        return match["patient"] if match else self.name


def _labels(values: np.ndarray, enhancing: int, path: Path) -> np.ndarray:
    """A label map of the data set's own codes with ENHANCING for `enhancing`; no other value may appear."""
    allowed = (0, 1, 2, enhancing)
    unknown = np.setdiff1d(values, allowed)
    like = " like other cases of this data" if np.isin(unknown, (ENHANCING, NEW_ENHANCING)).any() else ""
    expect(not len(unknown), path, f"the labels {', '.join(map(str, allowed))}{like}", f"{some_values(unknown)} too")
    return np.where(values == enhancing, ENHANCING, values).astype(np.uint8)


def _load_volumes(files: dict[str, Path], enhancing: int, sequences: tuple[str, ...]) -> Scan:
    """A case folder: one file per sequence."""
    seg, *images = (volumes.read_volume(files[part]) for part in ("seg", *sequences))
    for image in images:
        check_same_place(seg, image)
    voxels = np.concatenate([image.values.astype(np.float32) for image in images])
    return voxels, _labels(seg.values[0], enhancing, files["seg"]), seg.grid.spacing[1:]


def _load_decathlon(image_path: Path, labels_path: Path, sequences: tuple[str, ...]) -> Scan:
    """One 4D file and its labels."""
    labels = volumes.read_volume(labels_path)
    image = volumes.read_volume(image_path, ndim=4)
    check_same_place(image, labels)
    order = [DECATHLON_CHANNELS.index(sequence) for sequence in sequences]
    stored = volumes.whole_labels(labels.values[0], (0, 1, 2, 3), labels_path)
    return image.values[order].astype(np.float32, copy=False), DECATHLON_TO_BRATS[stored], labels.grid.spacing[1:]


def _load_slices(slices: list[dict[str, Path]], enhancing: int, sequences: tuple[str, ...]) -> Scan:
    """One 2D file per sequence and slice."""
    images, labels = [], []
    for files in slices:
        seg = _labels(volumes.read_plane(files["seg"]), enhancing, files["seg"])
        planes = [volumes.read_plane(files[sequence]) for sequence in sequences]
        expected = (labels or planes)[0].shape
        for sequence, plane in zip((*sequences, "seg"), (*planes, seg), strict=True):
            like = f"{by(expected)} like the case's other slices"
            expect(plane.shape == expected, files[sequence], like, by(plane.shape), "shape")
        images.append(np.stack(planes).astype(np.float32))
        labels.append(seg)
    # an exported picture carries no spacing to trust: BraTS has 1 mm in every direction
    return np.stack(images, axis=1), np.stack(labels), (1.0, 1.0)


def find_cases(root: Path, sequences: tuple[str, ...]) -> tuple[list[FoundCase], list[str]]:
    """All labelled cases under `root`, by name, and notes on what was left out."""
    expect_folder(root, "a folder of BraTS cases")
    if (root / "imagesTr").is_dir():
        return _decathlon(root), []
    found: Found = defaultdict(dict)
    stray: dict[Path, Path] = {}
    for path in files_under(root):
        if match := _NEW_FILE.fullmatch(path.name):
            add_once(found[match["case"], WHOLE], NEW_PARTS[match["part"]], path)
        elif match := _FILE.fullmatch(path.name):
            add_once(found[match["case"], int(match["number"] or WHOLE)], match["part"], path)
        elif _STRAY_SEG.fullmatch(path.name):
            stray[path.parent] = path
    for files in found.values():
        folder = next(iter(files.values())).parent
        if "seg" not in files and folder in stray:
            files["seg"] = stray[folder]
    names = "(CASE_t1.nii.gz, ..., CASE_seg.nii.gz, or CASE-t1n.nii.gz, 2D slices of them, or Decathlon's imagesTr)"
    expect(found, root, f"BraTS cases {names}")
    whole = {number == WHOLE for _, number in found}
    check(len(whole) == 1, f"{root}: both whole volumes and 2D slices; give one of the folders", "conflict")
    splits, notes = _labelled(root, found, sequences)
    segs = (found[key]["seg"] for key in sorted(splits))
    label_maps = (volumes.read_volume(seg).values[0] if whole == {True} else volumes.read_plane(seg) for seg in segs)
    enhancing = _enhancing_code(label_maps)
    return _cases(root, found, splits, enhancing), notes + [NEW_NOTE] * (enhancing == NEW_ENHANCING)


def _enhancing_code(label_maps: Iterable[np.ndarray]) -> int:
    """How the first label map with enhancing tumour writes it; loading holds all others to that."""
    for values in label_maps:
        for code in (ENHANCING, NEW_ENHANCING):
            if (values == code).any():
                return code
    return ENHANCING


def _cases(root: Path, found: Found, splits: dict[tuple[str, int], str], enhancing: int) -> list[FoundCase]:
    cases = []
    for name, keys in groupby(sorted(splits), key=lambda key: key[0]):
        slices = {number: found[name, number] for _, number in keys}
        first = min(slices)
        seg, split = slices[first]["seg"], splits[name, first]
        for number, files in slices.items():
            other = splits[name, number]
            check(other == split, f"{files['seg']}: patient {name} is in {split} and in {other}", "conflict")
        if first == WHOLE:
            shape = volumes.shape_of(seg)
            for path in slices[WHOLE].values():
                _check_shape(path, shape)
            source, load = seg.parent.relative_to(root).as_posix(), partial(_load_volumes, slices[WHOLE], enhancing)
            cases.append(FoundCase(name, split, source, range(shape[0]), shape[0], load))
        else:
            source, load = seg.relative_to(root).as_posix(), partial(_load_slices, list(slices.values()), enhancing)
            cases.append(FoundCase(name, split, source, list(slices), GRID_DEPTH, load, planar=True))
    return cases


def _labelled(root: Path, found: Found, sequences: tuple[str, ...]) -> tuple[dict[tuple[str, int], str], list[str]]:
    """The split of each one to read, and notes: a `testing` folder in which nothing has labels is left out."""
    tops = {key: next(iter(files.values())).relative_to(root).parts[0] for key, files in sorted(found.items())}
    splits = {key: SPLIT_FOLDERS.get(top.lower(), "") for key, top in tops.items()}
    labelled = {splits[key] for key, files in found.items() if "seg" in files} | {""}
    left_out = Counter(top for key, top in tops.items() if splits[key] not in labelled)
    notes = [f"{top}/ has no seg files: {count} slices or cases left out" for top, count in left_out.items()]
    splits = {key: split for key, split in splits.items() if split in labelled}
    check(splits, f"{root}: no case has a seg file", "missing")
    for files in (found[key] for key in splits):
        some = next(iter(files.values()))
        for part in (*sequences, "seg"):
            check(part in files, f"{some.parent}: no {part} file beside {some.name}", "missing")
    # one folder called `training` is no split: the store makes one
    several = len(set(splits.values()) - {""}) > 1
    return {key: split if several else "" for key, split in splits.items()}, notes


def _decathlon(root: Path) -> list[FoundCase]:
    described = inside(root, root / "dataset.json")
    if exists(described):  # then it must state the channel order that this reader relies on
        expect_file(described, "the Decathlon's dataset.json")
        found = schema.read(described, Decathlon, "the Decathlon's dataset.json").modality
        same = {key: value.lower() for key, value in found.items()} == DECATHLON_MODALITIES
        expect(same, described, f"the modalities {DECATHLON_MODALITIES}", found)
    cases: list[FoundCase] = []
    for image in files_under(root / "imagesTr", root):
        if not image.name.endswith(volumes.SUFFIXES):
            continue
        labels = inside(root, root / "labelsTr" / image.name)
        expect(labels.is_file(), labels, f"the labels of imagesTr/{image.name}", "no such file", "missing")
        channels, *shape = volumes.shape_of(image, ndim=4)
        expect(channels == len(DECATHLON_CHANNELS), image, "the 4 channels FLAIR, T1w, T1gd, T2w", channels, "shape")
        _check_shape(labels, tuple(shape))
        source, load = image.relative_to(root).as_posix(), partial(_load_decathlon, image, labels)
        cases.append(FoundCase(stem(image), "", source, range(shape[0]), shape[0], load))
    expect(cases, root / "imagesTr", "4D NIfTI files")
    return cases


def _check_shape(path: Path, expected: tuple[int, ...]) -> None:
    found = volumes.shape_of(path)
    expect(found == expected, path, f"{by(expected)} slices, rows, columns as in its other files", by(found), "shape")

"""Which file is what in a folder of anyone's data, by its name: templates such as `{case}_{rater}`."""

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

from berdiff.data import dicom
from berdiff.data.paths import SPLIT_FOLDERS, files_under, inside
from berdiff.data.sources.folder_files import SUFFIXES, stem
from berdiff.errors import InputError

# The masks' names that need no option, tried in this order until one explains every mask.
MASK_NAMES = ("{case}", "{case}_{rater}", "{rater}/{case}", "{case}_{rater}_{target}", "{rater}/{target}/{case}")
ONLY = "mask"  # the name of the only rater or target where the names tell of none


@dataclass(frozen=True)
class FoundCase:
    """The files of one case."""

    name: str
    images: dict[str, Path]  # channel -> file; one channel called "" where the names tell of none
    masks: dict[str, dict[str, Path]]  # rater -> target -> file
    split: str = ""  # one of SPLITS where folders called train, val, test tell it


def template(text: str, fields: tuple[str, ...], option: str) -> re.Pattern[str]:
    """A pattern for a path without suffix. `{case}` may hold any text, even `/`; other fields hold no `/`."""
    pieces = re.split(r"\{(\w+)\}", text)
    names = pieces[1::2]
    if "case" not in names or len(set(names)) < len(names) or not set(names) <= set(fields):
        known = ", ".join(f"{{{field}}}" for field in fields)
        raise InputError(
            f"{option}: expected a name made of {known}, each at most once and {{case}} in it, found {text!r}"
        )
    parts = [
        (f"(?P<{piece}>{'.+' if piece == 'case' else '[^/]+'})" if odd else re.escape(piece))
        for odd, piece in ((i % 2, piece) for i, piece in enumerate(pieces))
    ]
    return re.compile("".join(parts))


def find_cases(root: Path, images: str, masks: str, image_name: str, mask_name: str | None) -> list[FoundCase]:
    """The cases under `root`, or under its folders train, val and test, by name, each with its images and masks."""
    folders = {} if (root / images).is_dir() else _split_folders(root, images)
    if not folders:
        return _find(root, images, masks, image_name, mask_name)
    found: dict[str, FoundCase] = {}
    for folder, split in folders.items():
        for case in _find(inside(root, folder), images, masks, image_name, mask_name):
            if case.name in found:
                other = next(iter(found[case.name].images.values()))
                image = next(iter(case.images.values()))
                raise InputError(f"{image}: expected each case once, found {case.name!r} also as {other}")
            # one folder called `train` is no split: the store makes one
            found[case.name] = replace(case, split=split if len(folders) > 1 else "")
    return [found[name] for name in sorted(found)]


def _split_folders(root: Path, images: str) -> dict[Path, str]:
    folders = {folder: SPLIT_FOLDERS.get(folder.name.lower(), "") for folder in sorted(root.iterdir())}
    return {folder: split for folder, split in folders.items() if split and (folder / images).is_dir()}


def _find(root: Path, images: str, masks: str, image_name: str, mask_name: str | None) -> list[FoundCase]:
    image_files, mask_files = _listing(root, images), _listing(root, masks)
    if root / images == root / masks:
        if mask_name is None:
            raise InputError("--mask-name: expected a name that tells masks from images in one folder, found none")
        pattern = template(mask_name, ("case", "rater", "target"), "--mask-name")
        mask_files = {key: path for key, path in image_files.items() if pattern.fullmatch(key)}
        image_files = {key: path for key, path in image_files.items() if key not in mask_files}
    found = _image_cases(image_files, image_name, root / images)
    if not mask_files:
        raise InputError(f"{root / masks}: expected masks, found none")
    for key, match in _explain(mask_files, mask_name, found, root / masks).items():
        fields = match.groupdict()
        targets = found[fields["case"]].masks.setdefault(fields.get("rater", ONLY), {})
        target = fields.get("target", ONLY)
        if target in targets:
            raise InputError(f"{mask_files[key]}: expected one mask of this name, found also {targets[target]}")
        targets[target] = mask_files[key]
    for case in found.values():
        if not case.masks:
            image = next(iter(case.images.values()))
            raise InputError(f"{image}: expected a mask for the case {case.name!r} in {root / masks}, found none")
    return [found[name] for name in sorted(found)]


def _listing(root: Path, folder: str) -> dict[str, Path]:
    """path without suffix -> file, or -> folder where it is a folder of DICOM slices."""
    where = inside(root, root / folder)
    if not where.is_dir():
        raise InputError(f"{where}: expected a folder, found {'a file' if where.exists() else 'nothing'}")
    listing: dict[str, Path] = {}
    series: dict[str, set[Path]] = defaultdict(set)  # folder directly in `where` -> folders in it that hold slices
    for path in files_under(where, root):
        # slices of a series lie in a folder of their own; a lone DICOM picture lies directly in the folder
        if path.suffix.lower() in dicom.SUFFIXES and path.parent != where:
            series[path.relative_to(where).parts[0]].add(path.parent)
        elif path.name.lower().endswith(SUFFIXES):
            _add(listing, (path.relative_to(where).parent / stem(path)).as_posix(), path)
    for name, folders in series.items():
        for slices in sorted(folders):
            # an archive's CASE/study/series/ is the case CASE, as long as it holds one series
            _add(listing, name if len(folders) == 1 else slices.relative_to(where).as_posix(), slices)
    return listing


def _add(listing: dict[str, Path], key: str, path: Path) -> None:
    if key in listing:
        raise InputError(f"{path}: expected each case once, found it also as {listing[key]}")
    listing[key] = path


def _image_cases(files: dict[str, Path], image_name: str, folder: Path) -> dict[str, FoundCase]:
    pattern = template(image_name, ("case", "channel"), "--image-name")
    found: dict[str, FoundCase] = {}
    for key, path in files.items():
        match = pattern.fullmatch(key)
        if match is None:
            raise InputError(f"{path}: expected an image called {image_name} (--image-name), found {key!r}")
        case = found.setdefault(match["case"], FoundCase(match["case"], {}, defaultdict(dict)))
        case.images[match.groupdict().get("channel", "")] = path
    if not found:
        raise InputError(f"{folder}: expected images ({', '.join(SUFFIXES)}), found none")
    return found


def _explain(
    files: dict[str, Path], mask_name: str | None, cases: dict[str, FoundCase], folder: Path
) -> dict[str, re.Match[str]]:
    """mask -> what its name says, by the template given or else the first one that explains every mask."""
    best: dict[str, re.Match[str]] = {}
    names = MASK_NAMES if mask_name is None else (mask_name,)
    for name in names:
        pattern = template(name, ("case", "rater", "target"), "--mask-name")
        matches = {key: match for key in files if (match := pattern.fullmatch(key)) and match["case"] in cases}
        if len(matches) == len(files):
            return matches
        best = max(best, matches, key=len)
    odd = next(path for key, path in files.items() if key not in best)
    raise InputError(f"{odd}: expected a mask called {' or '.join(names)} after an image, found one that fits no image")

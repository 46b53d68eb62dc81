"""Which file is what in a folder of anyone's data, by its name: templates such as `{case}_{rater}`."""

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from berdiff import schema
from berdiff.data import dicom
from berdiff.data.describe import expect, present
from berdiff.data.paths import SPLIT_FOLDERS, add_once, exists, expect_folder, files_under, inside
from berdiff.data.reading import SUFFIXES, stem
from berdiff.errors import InputError

# The masks' names that need no option, tried in this order until one explains every mask.
MASK_NAMES = ("{case}", "{case}_{rater}", "{rater}/{case}", "{case}_{rater}_{target}", "{rater}/{target}/{case}")
MASK_FIELDS = ("case", "rater", "target")
NOTES = "notes"  # the folder of what is known about masks, each in a JSON file called as its mask is
ONLY = "mask"  # the name of the only rater or target where the names hold none


@dataclass(frozen=True)
class FoundCase:
    """The files of one case."""

    name: str
    images: dict[str, Path]  # channel -> file; one channel called "" where the names hold none
    masks: dict[str, dict[str, Path]]  # rater -> target -> file
    looked_at: dict[str, set[int]]  # rater -> the slices that the rater looked at, where that is known; else all
    split: str = ""  # one of SPLITS where there are folders called train, val, test
    patient: str = ""

    @property
    def image(self) -> Path:
        """One of its images, to name in an error."""
        return next(iter(self.images.values()))


def template(text: str, fields: tuple[str, ...], option: str) -> re.Pattern[str]:
    """A pattern for a path without suffix. `{case}` may hold any text, even `/`; other fields hold no `/`."""
    pieces = re.split(r"\{(\w+)\}", text)
    names = pieces[1::2]
    known = ", ".join(f"{{{field}}}" for field in fields)
    right = "case" in names and len(set(names)) == len(names) and set(names) <= set(fields)
    expect(right, option, f"a name made of {known}, each at most once and {{case}} in it", f"{text!r}", "name")
    pieces[::2] = map(re.escape, pieces[::2])
    pieces[1::2] = (f"(?P<{name}>{'.+' if name == 'case' else '[^/]+'})" for name in names)
    return re.compile("".join(pieces))


def find_cases(root: Path, images: str, masks: str, image_name: str, mask_name: str | None) -> list[FoundCase]:
    """The cases under `root`, or under its folders train, val and test, by name, each with its images and masks."""
    folders = {root: ""}
    if not (root / images).is_dir():
        called = {folder: SPLIT_FOLDERS.get(folder.name.lower(), "") for folder in sorted(root.iterdir())}
        folders = {folder: split for folder, split in called.items() if split and (folder / images).is_dir()} or folders
    found: dict[str, FoundCase] = {}
    for folder, split in folders.items():
        for name, case in _find(inside(root, folder), images, masks, image_name, mask_name).items():
            other = found.get(name, case)
            expect(other is case, case.image, "each case once", f"{name!r} also as {other.image}", "name")
            # one folder called `train` is no split: the store makes one
            found[name] = replace(case, split=split if len(folders) > 1 else "")
    return [found[name] for name in sorted(found)]


def _find(root: Path, images: str, masks: str, image_name: str, mask_name: str | None) -> dict[str, FoundCase]:
    image_files, mask_files = _listing(root, images), _listing(root, masks)
    if root / images == root / masks:
        mask_name = present(mask_name, "--mask-name", "a name that sets masks apart from images in one folder")
        pattern = template(mask_name, MASK_FIELDS, "--mask-name")
        mask_files = {key: path for key, path in image_files.items() if pattern.fullmatch(key)}
        image_files = {key: path for key, path in image_files.items() if key not in mask_files}
    pattern = template(image_name, ("case", "channel"), "--image-name")
    found: dict[str, FoundCase] = {}
    for key, path in image_files.items():
        match = pattern.fullmatch(key)
        if match is None:
            raise InputError(f"{path}: expected an image called {image_name} (--image-name), found {key!r}", "name")
        case = found.setdefault(match["case"], FoundCase(match["case"], {}, defaultdict(dict), {}))
        case.images[match.groupdict().get("channel", "")] = path
    expect(found, root / images, f"images ({', '.join(SUFFIXES)})")
    expect(mask_files, root / masks, "masks")
    for key, match in _explain(mask_files, mask_name, found).items():
        fields = match.groupdict()
        case, rater = found[fields["case"]], fields.get("rater", ONLY)
        case.masks[rater][fields.get("target", ONLY)] = mask_files[key]
        slices = _looked_at(root, key)
        if slices is not None:  # of several targets a rater must have looked for each
            case.looked_at[rater] = case.looked_at.get(rater, slices) & slices
    for case in found.values():
        expect(case.masks, case.image, f"a mask for the case {case.name!r} in {root / masks}")
    return found


def _looked_at(root: Path, mask: str) -> set[int] | None:
    """The `slices` in the note about a mask; None where there is no such note."""
    path = root / NOTES / f"{mask}.json"
    if not exists(path):
        return None
    note = schema.read_json(inside(root, path), "a note about a mask")
    slices = note.get("slices") if isinstance(note, dict) else None
    right = slices is None or (isinstance(slices, list) and all(type(z) is int and z >= 0 for z in slices))
    expect(right, path, "`slices`, a list of numbers from 0", "something else")
    return None if slices is None else set(slices)


def _listing(root: Path, folder: str) -> dict[str, Path]:
    """path without suffix -> file, or -> folder where it is a folder of DICOM slices."""
    where = inside(root, root / folder)
    expect_folder(where)
    listing: dict[str, Path] = {}
    series: dict[str, set[Path]] = defaultdict(set)  # folder directly in `where` -> folders in it that hold slices
    for path in files_under(where, root):
        # slices of a series lie in a folder of their own; a lone DICOM picture lies directly in the folder
        if path.suffix.lower() in dicom.SUFFIXES and path.parent != where:
            series[path.relative_to(where).parts[0]].add(path.parent)
        elif path.name.lower().endswith(SUFFIXES):
            add_once(listing, (path.relative_to(where).parent / stem(path)).as_posix(), path)
    for name, folders in series.items():
        for slices in sorted(folders):
            # an archive's CASE/study/series/ is the case CASE, as long as it holds one series
            add_once(listing, name if len(folders) == 1 else slices.relative_to(where).as_posix(), slices)
    return listing


def _explain(files: dict[str, Path], mask_name: str | None, cases: Collection[str]) -> dict[str, re.Match[str]]:
    """mask -> what its name holds, by the template given or else the first one that explains every mask."""
    best: dict[str, re.Match[str]] = {}
    names = MASK_NAMES if mask_name is None else (mask_name,)
    for name in names:
        pattern = template(name, MASK_FIELDS, "--mask-name")
        matches = {key: match for key in files if (match := pattern.fullmatch(key)) and match["case"] in cases}
        if len(matches) == len(files):
            return matches
        best = max(best, matches, key=len)
    odd = next(path for key, path in files.items() if key not in best)
    raise InputError(f"{odd}: expected a mask called as its image is, {' or '.join(names)}", "name")

"""nnU-Net's raw data: imagesTr/CASE_0000.nii.gz, ..., labelsTr/CASE.nii.gz, and dataset.json that says what they are.

From dataset.json: the channels' names (`channel_names`, formerly `modality`), the targets (`labels`, by name or, as in
version 1, by value) and the files' `file_ending`: NIfTI volumes, which become axial slices, or 2D pictures like .png.
Labels of one value each are exclusive targets, at most one per pixel; regions, which are lists of values, are nested
where each lies inside another (outermost first, whatever their order in the file), and otherwise independent. `--kind`
says otherwise.

Only labelled cases are read: imagesTs is left out, with a note.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from berdiff import schema
from berdiff.data.case import Reading
from berdiff.data.describe import check, expect
from berdiff.data.input_spec import Modality
from berdiff.data.paths import exists, expect_file, expect_folder, files_under, inside
from berdiff.data.reading import SUFFIXES
from berdiff.data.sources import folder
from berdiff.targets.kinds import TargetValues, implied_kind

MR_NAMES = {"mr", "mri", "t1", "t1w", "t1c", "t1ce", "t1gd", "t1n", "t2", "t2w", "t2f", "flair", "dwi", "adc"}


@dataclass(frozen=True)
class Options(folder.CaseOptions):
    """What to make of the cases; dataset.json holds the rest."""

    def as_folder(self, targets: TargetValues) -> folder.Options:
        """The same layout in the words of `folder`."""
        labels = tuple(f"{name}={','.join(map(str, values))}" for name, values in targets.items())
        folders: dict[str, Any] = {"images": "imagesTr", "masks": "labelsTr"}
        folders |= {"image_name": "{case}_{channel}", "mask_name": "{case}"}
        return folder.Options(**vars(self), **folders, labels=labels)


@dataclass(frozen=True)
class Described:
    """What matters of dataset.json."""

    labels: dict[str, int | str | tuple[int, ...]]  # name -> value or values; in version 1, value -> name
    channel_names: dict[str, str] | None = None  # number -> name
    modality: dict[str, str] | None = None  # the same in version 1
    file_ending: str = ".nii.gz"
    numTraining: int | None = None
    dataset: Any = None  # files that lie elsewhere


def read(path: str | Path, options: Options) -> Reading:
    """Open a data set: dataset.json, names and headers are checked here, pixels as the cases come."""
    root = Path(path)
    expect_folder(root, "a folder with dataset.json, imagesTr and labelsTr")
    described = inside(root, root / "dataset.json")
    expect_file(described, "nnU-Net's dataset.json")
    about = schema.read(described, Described, "nnU-Net's dataset.json")
    check(about.dataset is None, f"{described}: files that lie elsewhere (dataset) are not read", "unsupported")
    known = about.file_ending.lower() in SUFFIXES
    expect(known, f"{described}: file_ending", f"one of {', '.join(SUFFIXES)}", f"{about.file_ending!r}", "unsupported")
    reading = folder.read(root, options.as_folder(_targets(about, f"{described}: labels")))
    cases, others = (_count(root, name, about.file_ending) for name in ("labelsTr", "imagesTs"))
    counted = f"{described}: numTraining is {about.numTraining}, but labelsTr has {cases} cases"
    check(about.numTraining in (None, cases), counted, "conflict")
    notes = (f"imagesTs, which has no labels, is left out: {others} files",) if others else ()
    channels = _channels(about, reading, described)
    return replace(reading, channels=channels, notes=(*reading.notes, *notes), modality=_modality(channels, reading))


def _modality(channels: tuple[str, ...], reading: Reading) -> Modality:
    """By the channels' names: nnU-Net itself takes a channel called CT for one."""
    words = {re.sub("[^a-z0-9]", "", channel.lower()) for channel in channels}
    return "ct" if words == {"ct"} else "mr" if words <= MR_NAMES else reading.modality


def _targets(about: Described, where: str) -> TargetValues:
    """The targets without the background; nested ones with the outermost first."""
    targets: TargetValues = {}
    for name, values in _by_name(about, where).items():
        listed = ", ".join(map(str, values))
        check(name.lower() != "ignore", f"{where}: ignore labels ({listed}) are not supported", "unsupported")
        expect(values and values[0] > 0, where, f"values above 0 for {name!r}", listed or "none")
        name = re.sub("[/=]", "-", name)  # it becomes a part of files' names
        different = name not in targets and values not in targets.values()
        expect(different, where, "different names and values", f"{name!r}: {listed} again", "name")
        targets[name] = values
    expect(targets, where, "at least one target beside the background 0")
    by_size = dict(sorted(targets.items(), key=lambda target: -len(target[1])))
    return by_size if implied_kind(by_size) == "nested" else targets


def _by_name(about: Described, where: str) -> TargetValues:
    """name -> values, in version 1 (value -> name) too; without the background."""
    values: TargetValues = {}
    for key, value in about.labels.items():
        if isinstance(value, str):
            expect(key.isdecimal(), where, "a value or a list of values for each name", f"{key!r}: {value!r}")
            key, value = value, int(key)
        values[key] = (value,) if isinstance(value, int) else tuple(sorted(set(value)))
    return {name: of_target for name, of_target in values.items() if of_target != (0,)}


def _channels(about: Described, reading: Reading, described: Path) -> tuple[str, ...]:
    """The channels' names; of a colour picture one file holds all three."""
    named, count = about.channel_names or about.modality or {}, len(reading.channels)
    numbers = [str(i) for i in range(count)]
    expected = f"names for {', '.join(numbers)}, as imagesTr has so many channels"
    expect(set(named) == set(numbers), f"{described}: channel_names", expected, ", ".join(named) or "none", "name")
    by_file = count == 1 or reading.channels in (("red", "green", "blue"), tuple(f"{i:04d}" for i in range(count)))
    found = ", ".join(f"CASE_{channel}" for channel in reading.channels)
    expect(by_file, described.parent / "imagesTr", "CASE_0000, CASE_0001, ...", found, "name")
    names = [named[number] for number in numbers]
    return tuple(name if names.count(name) == 1 else f"{name}-{i}" for i, name in enumerate(names))


def _count(root: Path, name: str, ending: str) -> int:
    if not exists(root / name):
        return 0
    return sum(path.name.lower().endswith(ending.lower()) for path in files_under(root / name, root))

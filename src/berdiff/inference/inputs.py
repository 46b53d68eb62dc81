"""What to segment: files, folders, globs and stores as named inputs. Pixels are not read here. A name, which decides
where results go and seeds the noise, is the path without suffix from the folder or fixed part of the glob that was
given."""

import glob
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from pathlib import Path, PurePosixPath

from berdiff.data import dicom, manifest
from berdiff.data.describe import expect
from berdiff.data.paths import exists, fault_of, list_files
from berdiff.data.reading import kind_of, outline, stem
from berdiff.data.store import Store, open_store
from berdiff.data.subset import choose_cases
from berdiff.errors import InputError
from berdiff.inference.copies import Copies, new_folder
from berdiff.inference.guards import called_label
from berdiff.inference.region import Region
from berdiff.remote import is_remote

LONGEST_NAME = 200  # bytes of a part of a name: file systems take 255, with what is put around it
# DICOM objects about images, such as results of this program beside their sources: by the beginning of the SOP class
DERIVED = {"1.2.840.10008.5.1.4.1.1.66.4": "SEG", "1.2.840.10008.5.1.4.1.1.30": "PM"}
DERIVED |= {"1.2.840.10008.5.1.4.1.1.88.": "SR", "1.2.840.10008.5.1.4.1.1.481.3": "RTSTRUCT"}
Note = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Input:
    """One image or volume: a file, a file for each channel, the slices of a DICOM series, or a case of a store."""

    name: str
    paths: tuple[Path, ...]
    store: Store | None = None
    index: int = -1  # in the store
    error: str = ""  # what is known to be wrong with it already; it is reported when its turn comes
    copies: Copies | None = None  # where the files come from that `paths` are copies of, between `fetch` and `release`
    sizes: tuple[int, ...] = ()  # of such files, in bytes
    listed: bool = False  # found in a folder or by a glob, and not named
    label: bool = False  # called like a mask
    headers: tuple[dicom.SliceHeader, ...] = ()  # of the slices of a DICOM series, read to tell series apart

    @property
    def what(self) -> str:
        """As it is called in a message."""
        if self.store is not None:
            return f"{self.store.address}, case {self.name}"
        return self.translated(str(self.paths[0] if len(self.paths) == 1 else self.paths[0].parent))

    def translated(self, sentence: str) -> str:
        """The same with addresses in place of their copies."""
        return sentence if self.copies is None else self.copies.translated(sentence)

    def fetch(self) -> None:
        if self.copies is not None:
            self.copies.fetch(self.paths)

    def release(self) -> None:
        if self.copies is not None:
            self.copies.release(self.paths)


@dataclass(frozen=True)
class _File:
    path: Path
    root: Path  # names are counted from here
    listed: bool  # found in a folder, where files that are no images are left alone
    named: bool  # by itself, not by a folder or a glob
    copies: Copies | None = None
    size: int = 0  # in bytes, of a file that will be a copy
    fault: str = ""  # a sentence, where it is not to be opened

    def name(self, stem_of_case: str | None = None) -> str:
        short = stem(self.path) if stem_of_case is None else stem_of_case
        return _safe((self.path.parent.relative_to(self.root) / short).as_posix())

    def parts(self) -> tuple[str, ...]:
        """Of the path from the root on, without suffix."""
        return (self.path.parent.relative_to(self.root) / stem(self.path)).parts


def find_inputs(
    given: Sequence[str | Path],
    channels: Sequence[str] = (),
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
    note: Note = lambda sentence: None,
    labels: bool = False,
) -> list[Input]:
    """The inputs that `given` means, for a model with these channels. What cannot be read becomes an input too, with
    its `error`, so that the others go on. `limit` takes the first so many, of a store's split of one seeded order.
    `note` is told what was left out on purpose: in folders, files called like masks, but for `labels`."""
    expect(given, "INPUT", "at least one image, folder, glob or store")
    expect(limit is None or limit >= 1, "--limit", "at least 1", limit)
    inputs: list[Input] = []
    files: dict[Path, _File] = {}  # each once, though several arguments may mean it
    folder = new_folder()
    for argument in map(str, given):
        copies = Copies(argument, folder) if is_remote(argument) else None
        if copies.is_store() if copies is not None else not fault_of(Path(argument) / manifest.NAME):
            store = open_store(argument)
            cases = (case_input(store, int(i)) for i in choose_cases(store, split, limit, seed))
            inputs += [Input(_safe(case.name), case.paths, store, case.index) for case in cases]
        elif found := _expand(argument) if copies is None else _expand_remote(copies):
            for file in found:
                file = replace(file, named=file.named or labels)
                files.setdefault(file.path if file.fault else file.path.resolve(), file)
        else:
            path, expected = Path(argument), "an image, a folder, a glob or a store, found nothing there"
            if exists(path) and path.is_dir():
                expected = "a folder with images, found no files in it"
            inputs.append(Input(_safe(path.name) or "input", (path,), error=f"{argument}: expected {expected}"))
    ordered = sorted(files.values(), key=lambda file: (str(file.path.parent), file.path.name))
    inputs += _grouped(ordered, channels, note)
    if not inputs:
        raise InputError(f"{given[0]}: expected images, found none among {len(files)} files", "missing")
    inputs = [_with_usable_name(item) for item in inputs]
    _check_names(inputs)
    return inputs[:limit]


def parse_part(text: str) -> tuple[int, int]:
    """ "2/8" -> (2, 8)"""
    number, _, count = text.partition("/")
    right = number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)
    expect(right, "--part", "I/N with whole numbers and 1 <= I <= N, such as 2/8", repr(text))
    return int(number), int(count)


def take_part(inputs: Sequence[Input], part: tuple[int, int]) -> list[Input]:
    """Every N-th input in the order of the names, from the I-th on: all N parts together are the inputs, each once."""
    number, count = part
    return sorted(inputs, key=lambda item: item.name)[number - 1 :: count]


def count_slices(item: Input, region: Region) -> int:
    """How many slices of an input will be segmented, from names and headers: for the time that is left."""
    try:  # a remote file is there only when its turn comes; a file of several channels has them as the model wants
        known = item.store is None and not item.error and not region.at_place and item.paths[0].exists()
        depth = outline(item.paths, several=True, headers=item.headers).slices if known else None
        # which slices a place means is known with their distance
        return 1 if depth is None else len(range(*region.slice_range(depth, item.what)))
    except InputError:
        return 1  # what is wrong is reported when its turn comes


def case_input(store: Store, index: int) -> Input:
    """One case of a store, by its own name."""
    return Input(str(store.cases.case[index]), (Path(store.address),), store, index)


def _expand(argument: str) -> list[_File]:
    """The files of a path or glob; of a folder, those at any depth."""
    path = Path(argument)
    named = exists(path)
    if named:
        root, matches = path if path.is_dir() else path.parent, [argument]
    else:
        root = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
        matches = sorted(glob.glob(argument, recursive=True)) if glob.has_magic(argument) else []
    found: list[_File] = []
    for match in map(Path, matches):
        if (fault := fault_of(match)) == "a folder":
            found += [_File(file, root, True, False, fault=sentence) for file, sentence in list_files(match)]
        else:
            sentence = f"{match}: expected an image, a folder or a store, found {fault}" if fault else ""
            found.append(_File(match, root, False, named, fault=sentence))
    return found


def _expand_remote(copies: Copies) -> list[_File]:
    root, found = copies.find()
    return [_File(one.path, root, one.listed, not one.listed, copies, one.size) for one in found]


def _grouped(files: list[_File], channels: Sequence[str], note: Note) -> list[Input]:
    """Files to inputs: DICOM slices by folder and series, sequences by their common name, the rest one by one."""
    inputs: list[Input] = []
    for _, group in groupby(files, key=lambda file: file.path.parent):
        in_folder = list(group)
        copies = in_folder[0].copies
        with copies.headers([file.path for file in in_folder]) if copies is not None else nullcontext():
            found = _in_one_folder(in_folder, channels, note)
        sizes = {file.path: file.size for file in in_folder}
        if copies is not None:
            found = [replace(one, copies=copies, sizes=tuple(sizes[path] for path in one.paths)) for one in found]
        inputs += found
    return inputs


def _in_one_folder(files: list[_File], channels: Sequence[str], note: Note) -> list[Input]:
    inputs: list[Input] = []
    slices, single, labels = list[_File](), list[_File](), list[Path]()
    for file in files:
        if file.fault:
            inputs.append(Input(file.name(), (file.path,), error=file.fault))
            continue
        kind = kind_of(file.path)
        if kind not in (None, "dicom") and not file.named and called_label(file.parts()):
            labels.append(file.path)
        elif kind is not None:
            (slices if kind == "dicom" and file.listed else single).append(file)
        elif not file.listed:
            expected = "a picture (PNG, JPG, TIFF), NIfTI, DICOM or .npy file, found another kind of file"
            inputs.append(Input(file.name(), (file.path,), error=f"{file.path}: expected {expected}"))
    if labels:
        some = ", ".join(path.name for path in labels[:3]) + (", ..." if len(labels) > 3 else "")
        note(f"{labels[0].parent}: {len(labels)} files left out, which are named like masks: {some}")
    inputs += _series(slices, note) if slices else []
    if len(channels) > 1:
        sequences, single = _sequences(single, channels)
        inputs += sequences
    return inputs + [
        Input(file.name(), (file.path,), listed=not file.named, label=called_label(file.parts())) for file in single
    ]


def _series(slices: list[_File], note: Note) -> list[Input]:
    """The series of one folder, each an input. One unreadable file fails them all: its slice would be missing."""
    folder, root = slices[0].path.parent, slices[0].root
    name = _safe(folder.relative_to(root).as_posix()) or _safe(folder.resolve().name)
    by_series: dict[str, list[dicom.SliceHeader]] = {}
    derived: Counter[str] = Counter()
    try:
        for file in slices:
            header = dicom.read_header(file.path)
            if kind := next((kind for start, kind in DERIVED.items() if header.sop_class.startswith(start)), ""):
                derived[kind] += 1
            else:
                by_series.setdefault(header.series_uid, []).append(header)
    except InputError as error:
        return [Input(name, tuple(file.path for file in slices), error=str(error))]
    if derived:
        counted = " and ".join(f"{count} DICOM {kind}" for kind, count in sorted(derived.items()))
        note(f"{folder}: {counted} left out: they are about images, and are none")
    outer = "" if folder == root else name + "/"
    inputs: list[Input] = []
    for uid, headers in sorted(by_series.items()):
        paths = tuple(header.path for header in headers)
        own = outer + _safe(paths[0].stem if len(paths) == 1 else uid)
        inputs.append(Input(name if len(by_series) == 1 else own, paths, headers=tuple(headers)))
    return inputs


def _sequences(single: list[_File], channels: Sequence[str]) -> tuple[list[Input], list[_File]]:
    """Inputs of files called CASE_CHANNEL or CASE_0000, in the channels' order, and the files left over: other files of
    such a case, like its CASE_seg, are left out."""
    endings = {f"_{name.lower()}": name for name in channels} | {f"_{i:04d}": n for i, n in enumerate(channels)}
    cases: dict[str, dict[str, _File]] = {}
    rest: list[_File] = []
    for file in single:
        ending = next((e for e in endings if stem(file.path).lower().endswith(e)), None)
        if ending is None:
            rest.append(file)
        else:
            cases.setdefault(stem(file.path)[: -len(ending)], {})[endings[ending]] = file
    inputs: list[Input] = []
    for case, files in cases.items():
        first, present = next(iter(files.values())), [name for name in channels if name in files]
        expected = f"the {len(channels)} sequences {', '.join(channels)}, found only {', '.join(present)}"
        error = "" if len(present) == len(channels) else f"{first.path.parent / case}: expected {expected}"
        inputs.append(Input(first.name(case), tuple(files[name].path for name in present), error=error))
    return inputs, [file for file in rest if not any(stem(file.path).startswith(f"{case}_") for case in cases)]


def _safe(name: str) -> str:
    """A relative path that stays where it is put, whatever a file or a store calls its cases."""
    parts = [part.replace("\\", "_").lstrip(".") for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
    return "/".join(part for part in parts if part)


def _with_usable_name(item: Input) -> Input:
    """The same, with an error where no folder can be called so."""
    name = item.name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    long = max((len(part.encode()) for part in name.split("/")), default=0)
    error = item.error
    if not error and name != item.name:
        error = f"{item.what}: expected a name in UTF-8, found other bytes in it"
    if not error and long > LONGEST_NAME:
        error = f"{item.what}: expected a name of at most {LONGEST_NAME} bytes, found {long}"
    return replace(item, name=name[:LONGEST_NAME], error=error) if error else item


def _check_names(inputs: list[Input]) -> None:
    """Results must not overwrite, nor lie inside, each other."""
    by_name: dict[str, Input] = {}
    for item in inputs:
        expect(item.name, item.what, "a name to call its results by")
        other = by_name.setdefault(item.name, item)
        advice = "give the folder that holds both, or segment them into different --out folders"
        twice = f"{item.name!r} for {other.what} too; {advice}"
        expect(other is item, item.what, "inputs of different names", twice, "name")
    for item in inputs:
        outer = next((by_name[str(p)] for p in PurePosixPath(item.name).parents if str(p) in by_name), None)
        if outer is not None:
            inside = f"{item.name!r} inside {outer.name!r}, the name of {outer.what}; use different --out folders"
            raise InputError(f"{item.what}: expected results that do not lie inside others, found {inside}", "name")

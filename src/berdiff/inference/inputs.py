"""What to segment: files, folders, globs and stores, as a list of named inputs. Pixels are not read here.

An input's name says where its results go, and seeds its noise. It is the path without suffix, counted from the folder
or the fixed part of the glob that was given: so it depends on nothing but that argument, and order plays no part.
"""

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath

import numpy as np

from berdiff.data import dicom, images, manifest
from berdiff.data.paths import files_under
from berdiff.data.sources.folder_files import NUMPY, is_nifti, stem
from berdiff.data.store import Store, open_store
from berdiff.errors import InputError
from berdiff.inference.result import Kind


@dataclass(frozen=True, eq=False)
class Input:
    """One image or volume: a file, a file for each channel, the slices of a DICOM series, or a case of a store."""

    name: str
    kind: Kind
    paths: tuple[Path, ...]
    store: Store | None = None
    index: int = -1  # in the store
    error: str = ""  # what is known to be wrong with it already; it is told when its turn comes

    @property
    def what(self) -> str:
        """As it is called in a message."""
        if self.store is not None:
            return f"{self.paths[0]}, case {self.name}"
        return str(self.paths[0] if len(self.paths) == 1 else self.paths[0].parent)


@dataclass(frozen=True)
class _Found:
    path: Path
    root: Path  # names are counted from here
    listed: bool  # found in a folder, where files that are no images are left alone


_Kinded = tuple[_Found, Kind | None]


def find(
    given: Sequence[str | Path],
    channels: Sequence[str] = (),
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
) -> list[Input]:
    """The inputs that `given` means, for a model with these channels. What cannot be read becomes an input too, with
    its `error`, so that the others go on. `limit` takes the first so many, of a store's split of one seeded order."""
    if limit is not None and limit < 1:
        raise InputError(f"--limit: expected at least 1, found {limit}")
    inputs: list[Input] = []
    files: list[_Found] = []
    for argument in map(str, given):
        if is_store(argument):
            inputs += _cases(open_store(argument), split, limit, seed)
        elif not (found := _expand(argument)):
            inputs.append(Input(_safe(Path(argument).name), "png", (Path(argument),), error=_nothing(argument)))
        else:
            files += found
    inputs += _grouped(_once(files), channels)
    _check_names(inputs)
    return inputs[:limit]


def is_store(argument: str) -> bool:
    return "://" in argument or (Path(argument) / manifest.NAME).is_file()


def kind_of(path: Path) -> Kind | None:
    """By its suffix, or, without a known one, the letters DICM; None for a file that is no image."""
    suffix = path.suffix.lower()
    if suffix in images.SUFFIXES:
        return "png"
    if is_nifti(path):
        return "nifti"
    if suffix == NUMPY:
        return "npy"
    return "dicom" if dicom.is_dicom(path) else None


def _cases(store: Store, split: str, limit: int | None, seed: int) -> list[Input]:
    indices = store.indices(split)
    if not len(indices):
        raise InputError(f"{store.address}: expected cases in the split {split!r}, found none")
    if limit is not None:  # as `evaluate` chooses them: smaller subsets lie in larger ones
        indices = np.sort(indices[np.random.default_rng(seed).permutation(len(indices))[:limit]])
    address = Path(store.address)
    return [Input(_safe(str(store.cases.case[i])), "store", (address,), store, int(i)) for i in indices]


def _expand(argument: str) -> list[_Found]:
    """The files of a path or glob; of a folder, those at any depth."""
    path = Path(argument)
    if path.is_dir():
        return [_Found(file, path, True) for file in files_under(path)]
    if path.exists():
        return [_Found(path, path.parent, False)]
    if not glob.has_magic(argument):
        return []
    fixed = Path(*_until_magic(path.parts))
    found = []
    for match in sorted(glob.glob(argument, recursive=True)):
        if Path(match).is_dir():
            found += [_Found(file, fixed, True) for file in files_under(Path(match))]
        else:
            found.append(_Found(Path(match), fixed, False))
    return found


def _until_magic(parts: Iterable[str]) -> list[str]:
    fixed = []
    for part in parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return fixed


def _nothing(argument: str) -> str:
    if Path(argument).is_dir():
        return f"{argument}: expected a folder with images, found no files in it"
    return f"{argument}: expected an image, a folder, a glob or a store, found nothing there"


def _once(files: list[_Found]) -> list[_Found]:
    """Each file once, though several arguments may mean it, in an order that does not depend on theirs."""
    first: dict[Path, _Found] = {}
    for found in files:
        first.setdefault(found.path.resolve(), found)
    return sorted(first.values(), key=lambda found: (str(found.path.parent), found.path.name))


def _grouped(files: list[_Found], channels: Sequence[str]) -> list[Input]:
    """Files to inputs: DICOM slices by folder and series, sequences by their common name, the rest one by one."""
    inputs: list[Input] = []
    for _, of_folder in groupby(files, key=lambda found: found.path.parent):
        kinds: list[_Kinded] = [(found, kind_of(found.path)) for found in of_folder]
        slices = [found for found, kind in kinds if kind == "dicom" and found.listed]
        single: list[_Kinded] = [(found, kind) for found, kind in kinds if not (kind == "dicom" and found.listed)]
        if slices:
            inputs += _series(slices)
        if len(channels) > 1:
            sequences, single = _sequences(single, channels)
            inputs += sequences
        for found, kind in single:
            if kind is not None:
                inputs.append(Input(_name(found), kind, (found.path,)))
            elif not found.listed:
                inputs.append(Input(_name(found), "png", (found.path,), error=_no_image(found.path)))
    return inputs


def _series(slices: list[_Found]) -> list[Input]:
    """The series of one folder, each an input. One unreadable file fails them all: its slice would be missing."""
    folder, root = slices[0].path.parent, slices[0].root
    name = _safe(folder.relative_to(root).as_posix()) or _safe(folder.resolve().name)
    by_series: dict[str, list[Path]] = {}
    try:
        for found in slices:
            by_series.setdefault(dicom.read_header(found.path).series_uid, []).append(found.path)
    except InputError as error:
        return [Input(name, "dicom", tuple(found.path for found in slices), error=str(error))]
    if len(by_series) == 1:
        return [Input(name, "dicom", tuple(next(iter(by_series.values()))))]
    outer = "" if folder == root else name + "/"
    return [
        Input(outer + _safe(paths[0].stem if len(paths) == 1 else uid), "dicom", tuple(paths))
        for uid, paths in sorted(by_series.items())
    ]


def _sequences(single: list[_Kinded], channels: Sequence[str]) -> tuple[list[Input], list[_Kinded]]:
    """Inputs of files called CASE_CHANNEL (or nnU-Net's CASE_0000), in the channels' order; and the files left over.

    Another file of such a case, like its CASE_seg, is not an image and is left out.
    """
    endings = {f"_{name.lower()}": name for name in channels} | {f"_{i:04d}": n for i, n in enumerate(channels)}
    cases: dict[str, dict[str, tuple[_Found, Kind]]] = {}
    rest = []
    for found, kind in single:
        ending = next((e for e in endings if stem(found.path).lower().endswith(e)), None)
        if kind is None or ending is None:
            rest.append((found, kind))
        else:
            cases.setdefault(stem(found.path)[: -len(ending)], {})[endings[ending]] = (found, kind)
    inputs = []
    for case, files in cases.items():
        first, kind = next(iter(files.values()))
        missing = [name for name in channels if name not in files]
        error = ""
        if missing:
            error = (
                f"{first.path.parent / case}: expected the {len(channels)} sequences {', '.join(channels)}, found only "
                f"{', '.join(name for name in channels if name in files)}"
            )
        paths = tuple(files[name][0].path for name in channels if name in files)
        inputs.append(Input(_name(first, case), kind, paths, error=error))
    rest = [(found, kind) for found, kind in rest if not any(stem(found.path).startswith(f"{c}_") for c in cases)]
    return inputs, rest


def _no_image(path: Path) -> str:
    return f"{path}: expected a picture (PNG, JPG, TIFF), NIfTI, DICOM or .npy file, found another kind of file"


def _name(found: _Found, without_suffix: str | None = None) -> str:
    short = stem(found.path) if without_suffix is None else without_suffix
    return _safe((found.path.parent.relative_to(found.root) / short).as_posix())


def _safe(name: str) -> str:
    """A relative path that stays where it is put, whatever a file or a store calls its cases."""
    parts = [part.replace("\\", "_").lstrip(".") for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
    return "/".join(part for part in parts if part)


def _check_names(inputs: list[Input]) -> None:
    """Results must not overwrite, nor lie inside, each other."""
    by_name: dict[str, Input] = {}
    for item in inputs:
        if not item.name:
            raise InputError(f"{item.what}: expected a name to call its results by, found none")
        if item.name in by_name:
            raise InputError(
                f"{item.what}: expected inputs of different names, found {item.name!r} for {by_name[item.name].what} "
                "too; give the folder that holds both, or segment them into different --out folders"
            )
        by_name[item.name] = item
    for item in inputs:
        for parent in PurePosixPath(item.name).parents:
            if str(parent) in by_name:
                raise InputError(
                    f"{item.what}: expected results that do not lie inside others, found {item.name!r} inside "
                    f"{str(parent)!r}, the name of {by_name[str(parent)].what}; use different --out folders"
                )

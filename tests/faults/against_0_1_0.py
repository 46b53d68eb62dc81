"""The faults that were found in 0.1.0, each by the command line, for any version of berdiff:

PYTHONPATH=tests:tests/data python -m faults.against_0_1_0 SRC [WORDS ...]

SRC is the folder `src` of a checkout. A line for each fault (whose name has one of the WORDS) says whether that version
passes or fails, and what was seen; the exit code is 1 where one fails. docs/reliability.md has the outcomes.
"""

import gzip
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import tifffile
from bombs import compressed_nifti, compressed_tiff, deflated, nested_pickle, png_header
from dicom_writer import write_slice
from PIL import Image

from .limited import SIDE, Ended, Listener, World, berdiff, cpu_seconds, end, picture, save, start, state

LIMITS = "tests/data/test_limits.py::"
PATHS = "tests/data/test_paths.py::"
VALUES = "tests/data/test_values.py::"
TYPED = "tests/test_typed_files.py::"
ODD = "tests/output/test_dicom_odd.py::"
TRUST = "tests/output/test_segmentation_trust.py::"
WINDOW = ("--window", -1000, 400)
FRAME = {"FrameOfReferenceUID": "1.2.3.9"}
STUDY = {
    "PatientBirthDate": "",
    "PatientSex": "",
    "StudyID": "",
    "StudyDate": "",
    "StudyTime": "",
    "AccessionNumber": "",
}
SMALL_DISK = 4096  # bytes that a file may have where writing is to fail
COMMON = ("berdiff.cli.segment", "berdiff.training.session", "berdiff.evaluation.evaluate", "berdiff.inference.model")
COMMON += ("highdicom", "nibabel", "matplotlib.figure", "h5py", "zarr", "tifffile")  # imported once, for all children


@dataclass(frozen=True)
class Fault:
    """One of 0.1.0: what it was, the test that covers it, and how it is shown."""

    name: str
    test: str
    show: Callable[[World], str]  # what is wrong, or nothing


FAULTS: list[Fault] = []


def fault(name: str, test: str) -> Callable[[Callable[[World], str]], Callable[[World], str]]:
    def add(show: Callable[[World], str]) -> Callable[[World], str]:
        FAULTS.append(Fault(name, test, show))
        return show

    return add


def use(world: World, model: Path) -> Ended:
    path = picture(world.folder() / "a.png")
    return berdiff("segment", model, path, "--out", world.folder() / "out", "--samples", 1, "--device", "cpu")


def sign(store: Path, change: Callable[[Any], dict[str, Any]]) -> None:
    """Another manifest, with the right checksum, so that nothing else is wrong with it."""
    stated = import_module("berdiff.data.manifest").parse((store / "manifest.json").read_text(), str(store))
    (store / "manifest.json").write_text(replace(stated, **change(stated)).text(), newline="")


# Schemas


@fault("a model's config.json nested 100,000 deep", TYPED + "test_a_wrong_file_is_a_sentence")
def deep(world: World) -> str:
    model = shutil.copytree(world.run / "model", world.folder() / "model")
    (model / "config.json").write_text("[" * 100_000)
    return use(world, model).refused("config.json")


@fault("a model's config.json with values of other types", TYPED + "test_a_wrong_file_is_a_sentence")
def types(world: World) -> str:
    model = shutil.copytree(world.run / "model", world.folder() / "model")
    good = (model / "config.json").read_text()
    for key, value in (("notes", 5), ("size", "x"), ("channels", 5), ("targets", [5]), ("steps", "x")):
        config = json.loads(good, object_hook=lambda of, key=key, value=value: of | {key: value} if key in of else of)
        if config == json.loads(good):
            continue  # this version has no such key
        (model / "config.json").write_text(json.dumps(config))
        if wrong := use(world, model).refused("config.json"):
            return f"{key}: {wrong}"
    return ""


@fault("an evaluation's metrics.json without its figures", TYPED + "test_a_wrong_file_is_a_sentence")
def evaluation(world: World) -> str:
    out = world.folder() / "e"
    argv = ["evaluate", world.run, "--data", world.store, "--split", "all", "--samples", 1, "--limit", 2, "--out", out]
    if wrong := berdiff(*argv).wrong(0):
        return f"evaluate: {wrong}"
    file = out / "metrics.json"
    file.write_text(json.dumps({"format": json.loads(file.read_text()).get("format"), "metrics": [5]}))
    return berdiff("compare", out, out).refused("metrics.json")


# Sizes before bytes


@fault("a compressed TIFF of 40000x40000 pixels is decoded", LIMITS + "test_bombs_cost_nothing")
def tiff(world: World) -> str:
    return world.segment(compressed_tiff(world.folder() / "a.tif", 40000)).refused("--max-pixels")


@fault("a PNG whose header says 40000x40000", LIMITS + "test_bombs_cost_nothing")
def png(world: World) -> str:
    return world.segment(png_header(world.folder() / "a.png", 40000, 40000)).refused("a.png")


@fault("a NIfTI.gz of 1 MB is unpacked to 1.5 GB", LIMITS + "test_bombs_cost_nothing")
def nifti(world: World) -> str:
    return world.segment(compressed_nifti(world.folder() / "a.nii.gz", (1024, 1024, 700))).refused("--max-pixels")


@fault("a deflated DICOM file of 1 MB is unpacked to 1 GB", LIMITS + "test_bombs_cost_nothing")
def dicom(world: World) -> str:
    return world.segment(deflated(world.folder() / "a.dcm", 1000)).refused("--max-gigabytes")


@fault("an .npy file that says 30000x30000 is read", LIMITS + "test_bombs_cost_nothing")
def npy(world: World) -> str:
    path = world.folder() / "a.npy"
    np.lib.format.open_memmap(path, "w+", "u1", (30000, 30000)).flush()
    return world.segment(path).refused("--max-pixels")


@fault("an HDF5 file that promises images of 40000x40000", LIMITS + "test_hdf5_promises_and_links")
def hdf5(world: World) -> str:
    path = world.folder() / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("train/images", (2, 40000, 40000), "u1", chunks=(1, 400, 400), compression="gzip")
        file.create_dataset("train/labels", (2, 40000, 40000, 4), "u1", chunks=(1, 400, 400, 1), compression="gzip")
        file["train/uids"] = np.array([b"a", b"b"])
    return berdiff("data", "prepare", "lidc-hdf5", path, world.folder() / "s").refused("--max-pixels")


@fault("a pickle of 1 kB with nested tuples is hashed for ever", LIMITS + "test_small_pickles_stay_small")
def pickles(world: World) -> str:
    path = nested_pickle(world.folder() / "a.pickle")
    return berdiff("data", "prepare", "lidc-pickle", path, world.folder() / "s", seconds=5).refused("a.pickle")


@fault("a store whose manifest says images of 100000x100000", "tests/data/test_store.py::test_hostile_sizes")
def manifest(world: World) -> str:
    store = shutil.copytree(world.store, world.folder() / "s")
    huge = (100_000, 100_000)
    sign(store, lambda m: {"size": huge} if hasattr(m, "size") else {"input_spec": replace(m.input_spec, size=huge)})
    wrong = berdiff("data", "verify", store).refused(str(store))
    return wrong or world.segment(store, more=("--split", "all")).refused(str(store))


@fault("two pictures of 6000x6000 ask for 34 GB", LIMITS + "test_two_large_pictures_need_no_34_gigabytes")
def large(world: World) -> str:
    folder = world.folder()
    for name, value in (("images", 7), ("masks", 0)):
        (folder / name).mkdir()
        for case in "ab":
            array = np.full((6000, 6000), value, np.uint8)
            array[:9, :9] = 255
            tifffile.imwrite(folder / name / f"{case}.tif", array)
    return berdiff("data", "prepare", "folder", folder, world.folder() / "s").wrong(0)


# The world's errors


@fault(
    "a file where the output's folder should be",
    "tests/test_boundary.py::test_what_the_world_does_wrong_is_one_sentence",
)
def no_folder(world: World) -> str:
    file = world.folder() / "file"
    file.write_text("")
    for argv in (
        ["data", "show", world.store, "--out", file / "x.png"],
        ["data", "prepare", "folder", world.base / "data", file / "x"],
        ["plot", world.run, "--out", file / "x.png"],
        ["evaluate", world.run, "--data", world.store, "--split", "all", "--samples", 1, "--out", file / "x"],
        world.train(file / "x"),
    ):
        if wrong := berdiff(*argv).refused("file"):
            return f"{argv[0]}: {wrong}"
    return ""


@fault("a disk that takes no more", "tests/faults/test_faulty_disk.py::test_some_calls_that_fail")
def full(world: World) -> str:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL_DISK, SMALL_DISK))

    for argv in (
        ["data", "show", world.store, "--out", world.folder() / "x.png"],
        ["data", "prepare", "folder", world.base / "data", world.folder() / "x"],
        ["evaluate", world.run, "--data", world.store, "--split", "all", "--samples", 1, "--out", world.folder() / "x"],
    ):
        if wrong := berdiff(*argv, before=fill).refused():
            return f"{argv[0]}: {wrong}"
    return ""


@fault(
    "an input that takes too much memory ends the others",
    TRUST + "test_an_error_nobody_foresaw_in_one_input_is_reported_and_the_others_go_on",
)
def others(world: World) -> str:
    folder, out = world.folder(), world.folder() / "out"
    compressed_tiff(folder / "a.tif", 20000)  # below the limit of pixels, above that of memory
    picture(folder / "b.png")
    wrong = world.segment(folder, out=out, gigabytes=0.35).refused("a.tif")
    return wrong or ("" if (out / "b" / "done.json").is_file() else "b.png has no result")


# Only regular files


@fault("a FIFO is opened, and waited for", PATHS + "test_given_by_name")
def fifo(world: World) -> str:
    folder = world.folder()
    for name in ("a.png", "a.tif", "a.nii.gz", "a.npy", "a"):
        os.mkfifo(folder / name)
        if wrong := world.segment(folder / name).refused(name):
            return f"{name}: {wrong}"
    store = shutil.copytree(world.store, world.folder() / "s")
    shard = next(file for file in (store / "images" / "c").rglob("*") if file.is_file())
    shard.unlink()
    os.mkfifo(shard)
    return berdiff("data", "verify", store).refused(str(store))


@fault("links to nothing and in a circle are left out in silence", PATHS + "test_segment_goes_on_without_them")
def links(world: World) -> str:
    folder = world.folder()
    (folder / "nowhere.png").symlink_to("not-there")
    (folder / "loop.png").symlink_to("loop.png")
    picture(folder / "b.png")
    return world.segment(folder).refused("nowhere.png", "loop.png")


@fault('no image found is "0 segmented", exit code 0', PATHS + "test_no_images_are_an_error")
def nothing(world: World) -> str:
    folder = world.folder()
    (folder / "notes.txt").write_text("x")
    return world.segment(folder).refused()


@fault("a name that is not UTF-8", PATHS + "test_segment_goes_on_without_them")
def latin(world: World) -> str:
    folder = world.folder()
    picture(folder / "a.png").rename(folder / os.fsdecode(b"\xff\xfe.png"))
    picture(folder / "b.png")
    return world.segment(folder).refused("UTF-8")


@fault("a name too long for a result ends the others", PATHS + "test_a_name_too_long_for_results_fails_alone")
def long(world: World) -> str:
    folder, out = world.folder(), world.folder() / "out"
    picture(folder / f"{'a' * 250}.png")
    picture(folder / "b.png")
    wrong = world.segment(folder, out=out).refused("aaa.png")
    return wrong or ("" if (out / "b" / "done.json").is_file() else "b.png has no result")


# Addresses


@fault(
    "an address in a run's configuration is asked", "tests/test_remote.py::test_an_address_out_of_a_file_is_not_opened"
)
def stored_address(world: World) -> str:
    run, server = shutil.copytree(world.run, world.folder() / "run"), Listener()
    config = json.loads((run / "config.json").read_text())
    config["data"]["store"] = f"simplecache::{server.address}"
    (run / "config.json").write_text(json.dumps(config))
    ended = berdiff("evaluate", run, "--split", "all", "--samples", 1, "--out", world.folder() / "e")
    return f"{len(server.came)} requests" if server.came else ended.refused()


REMOTE = "tests/test_remote.py::test_other_protocols_and_chains_are_refused_before_anything_is_opened"


@fault("`reference::` on the command line is opened", REMOTE)
def reference(world: World) -> str:
    refs = {f"/{name}": [str(world.store / name)] for name in ("manifest.json", "cases.csv")}
    file = world.folder() / "refs.json"
    file.write_text(json.dumps({"version": 1, "refs": refs}))
    return berdiff("data", "info", f"reference::{file}").refused()


@fault("fsspec before 2026.6, which runs a command of such a file, is allowed", "pyproject.toml")
def old_fsspec(world: World) -> str:
    project = Path(sys.modules["berdiff"].__file__ or "").parents[2] / "pyproject.toml"
    needed = [
        line for line in tomllib.loads(project.read_text())["project"]["dependencies"] if line.startswith("fsspec")
    ]
    return "" if needed == ["fsspec>=2026.6"] else f"requires {needed[0]}"


TIME_OUT = "tests/test_remote.py::test_a_server_that_never_answers_ends_by_the_named_time_outs"


@fault("a server that never answers is waited for", TIME_OUT)
def silent(world: World) -> str:
    server = Listener()  # which is there as long as its name is
    return berdiff("data", "info", server.address, patience=60).refused()


# Folders shared by processes


@fault(
    "model.safetensors is readable by its owner alone",
    "tests/test_files.py::test_files_get_the_permissions_of_the_umask",
)
def private(world: World) -> str:
    mask = os.umask(0)
    os.umask(mask)
    mode = (world.run / "model" / "model.safetensors").stat().st_mode & 0o777
    return "" if mode == 0o666 & ~mask else f"mode {mode:o}"


@fault(
    "`--pad`, as our own message advises, is refused after it",
    TRUST + "test_a_command_that_was_corrected_as_our_message_advises_goes_on",
)
def pad(world: World) -> str:
    small, out = picture(world.folder() / "a.png", SIDE // 2), world.folder() / "out"
    if wrong := world.segment(small, out=out).refused("--pad"):
        return f"without --pad: {wrong}"
    return world.segment(small, out=out, more=("--pad",)).wrong(0)


@fault("a damaged result counts as done", TRUST + "test_a_damaged_result_is_noticed_and_made_again")
def damaged(world: World) -> str:
    path, out = picture(world.folder() / "a.png"), world.folder() / "out"
    if wrong := world.segment(path, out=out).wrong(0):
        return wrong
    file = out / "a" / "saliency.png"
    whole = file.read_bytes()
    file.write_bytes(whole[:9])
    return world.segment(path, out=out).wrong(0) or ("" if file.read_bytes() == whole else "it stays damaged")


@fault(
    "a second process removes what the first is writing", "tests/test_workfolder.py::test_two_processes_share_a_folder"
)
def shared(world: World) -> str:
    folder, out = world.folder(), world.folder() / "out"
    picture(folder / "a.png")
    argv = ["segment", world.run, folder, "--out", out, "--samples", 1, "--device", "cpu"]
    words = [str(word) for word in argv]
    first = start(words, _stop_at_a_folder)
    os.waitpid(first[0], os.WUNTRACED)  # its result is written, and not yet in its place
    second, deadline = start(words), time.monotonic() + 60
    while state(second[0]) != "Z" and time.monotonic() < deadline:
        time.sleep(0.1)  # it ends, or waits for the first
    os.kill(first[0], signal.SIGCONT)
    return end(*first, 60).wrong(0) or end(*second, 60).wrong(0)


def _stop_at_a_folder() -> None:
    move = os.replace

    def stop(source, target) -> None:
        if os.path.isdir(source):
            os.kill(os.getpid(), signal.SIGSTOP)
        move(source, target)

    os.replace = stop


@fault(
    "a kill between weights and configuration leaves them at odds",
    "tests/test_files.py::test_a_folder_is_replaced_in_one_step",
)
def at_odds(world: World) -> str:
    run = world.folder() / "run"
    berdiff(*world.train(run), before=_die_after_the_weights)
    return use(world, run).wrong(0)


def _die_after_the_weights() -> None:
    move = os.replace

    def die(source, target) -> None:
        move(source, target)
        if str(target).endswith("/model/model.safetensors") and Path(target).with_name("config.json").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = die


# DICOM and privacy


def series(folder: Path, drop: tuple[str, ...] = (), **tags: object) -> Path:
    rng = np.random.default_rng(0)
    for z in range(2):
        own = {key: value[z] if isinstance(value, tuple) else value for key, value in tags.items()}
        write_slice(folder / f"{z}.dcm", rng.integers(0, 1400, (SIDE, SIDE)), 2.5 * z, drop=drop, **FRAME | own)
    return folder


@fault("a de-identified series has no DICOM SEG", ODD + "test_a_series_without_patient_and_study")
def deidentified(world: World) -> str:
    folder = series(world.folder() / "in", drop=("PatientID",))  # the writer knows no name, birth date, sex, ...
    return world.segment(folder, more=(*WINDOW, "--write", "dicom-seg")).wrong(0)


@fault("a series of an unknown SOP class", ODD + "test_what_cannot_be_referred_to_is_refused_alone")
def foreign(world: World) -> str:
    folder = series(world.folder() / "in", SOPClassUID="1.3.12.2.1107.5.9.1", PatientName="A^B", **STUDY)
    return world.segment(folder, more=(*WINDOW, "--write", "dicom-seg")).refused("SOP class")


@fault("a series in an unknown character set", ODD + "test_names_in_any_alphabet_are_the_same_in_utf8")
def charset(world: World) -> str:
    folder = series(world.folder() / "in", SpecificCharacterSet="ISO_IR 999", PatientName="A^B", **STUDY)
    return world.segment(folder, more=(*WINDOW, "--write", "dicom-seg")).wrong(0)


@fault("slices of two studies in one series", ODD + "test_what_cannot_be_referred_to_is_refused_alone")
def mixed(world: World) -> str:
    folder = series(world.folder() / "in", StudyInstanceUID=("1.2.3", "9.9"), PatientName="A^B", **STUDY)
    return world.segment(folder, more=(*WINDOW, "--write", "dicom-seg")).refused("StudyInstanceUID")


@fault("texts of a NIfTI header are copied", "tests/output/test_privacy.py::test_texts_of_a_nifti_header")
def texts(world: World) -> str:
    volume = nibabel.Nifti1Image(np.random.default_rng(0).random((SIDE, SIDE, 2)), np.eye(4))
    for field in ("descrip", "aux_file", "intent_name", "db_name"):
        volume.header[field] = "ZQXDOE"
    path, out = world.folder() / "a.nii.gz", world.folder() / "out"
    nibabel.save(volume, path)
    if wrong := world.segment(path, out=out).wrong(0):
        return wrong
    found = [file.name for file in out.rglob("*.nii.gz") if b"ZQXDOE" in gzip.decompress(file.read_bytes())]
    return f"in {', '.join(sorted(found))}" if found else ""


@fault(
    "DICOM outputs carry more of the patient than they need",
    "tests/output/test_privacy.py::test_markers_in_every_text_of_a_dicom_series",
)
def patient(world: World) -> str:
    marks = {"PatientAge": "099Y", "PatientComments": "ZQXCOMMENT", "EthnicGroup": "ZQXGROUP", "Occupation": "ZQXWORK"}
    marks |= {"PatientAddress": "ZQXADDRESS", "AdditionalPatientHistory": "ZQXHISTORY", "InstitutionName": "ZQXHOUSE"}
    marks |= {"StudyDescription": "ZQXSTUDY", "ReferringPhysicianName": "ZQXDOCTOR", "OperatorsName": "ZQXOPERATOR"}
    folder, out = series(world.folder() / "in", PatientName="A^B", **{**STUDY, **marks}), world.folder() / "out"
    if wrong := world.segment(folder, out=out, more=(*WINDOW, "--write", "dicom-seg")).wrong(0):
        return wrong
    content = b"".join(file.read_bytes() for file in out.rglob("*.dcm"))
    found = [name for name, mark in marks.items() if mark.encode() in content]
    return ", ".join(found)


# Values


@fault('an image of NaN is "area 0", exit code 0', VALUES + "test_an_image_of_nan_is_no_finding_of_area_0")
def nan(world: World) -> str:
    folder, values = world.folder(), np.full((SIDE, SIDE, 3), np.nan, np.float32)
    np.save(folder / "a.npy", values[..., 0])
    tifffile.imwrite(folder / "b.tif", values[..., 0])
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4)), folder / "c.nii")
    np.save(folder / "d.npy", np.linspace(1e300, 2e300, SIDE * SIDE).reshape(SIDE, SIDE))  # infinity less infinity
    for name in ("a.npy", "b.tif", "c.nii", "d.npy"):
        if wrong := world.segment(folder / name, more=("--write", "json")).refused(name):
            return f"{name}: {wrong}"
    return ""


@fault("values beyond 32 bits", VALUES + "test_in_every_format")
def overflow(world: World) -> str:
    path = world.folder() / "a.npy"
    np.save(path, np.where(np.eye(SIDE) > 0, 1e300, 0.0))
    return world.segment(path, more=("--window", 0, 1)).refused("32 bits")


@fault("`data verify` follows a link out of the store", "tests/data/test_store_verify.py::test_links_and_spacings")
def linked(world: World) -> str:
    store, elsewhere = shutil.copytree(world.store, world.folder() / "s"), world.folder() / "elsewhere"
    shard = next(file for file in (store / "images" / "c").rglob("*") if file.is_file())
    shutil.move(shard, elsewhere)
    shard.symlink_to(elsewhere)
    return berdiff("data", "verify", store).refused(str(store))


@fault("`data verify` takes a spacing below 0", "tests/data/test_store_verify.py::test_links_and_spacings")
def spacing(world: World) -> str:
    store = shutil.copytree(world.store, world.folder() / "s")
    head, first, *rest = (store / "cases.csv").read_text().split("\n")
    values = first.split(",")
    values[head.replace('"', "").split(",").index("row_mm")] = "-1.0"
    (store / "cases.csv").write_text("\n".join([head, ",".join(values), *rest]))
    digest = hashlib.sha256((store / "cases.csv").read_bytes()).hexdigest()
    sign(store, lambda m: {"files": m.files | {"cases.csv": digest}})
    return berdiff("data", "verify", store).refused("spacing")


@fault("an HDF5 file that leads to a FIFO", LIMITS + "test_hdf5_promises_and_links")
def hdf5_link(world: World) -> str:
    folder = world.folder()
    os.mkfifo(folder / "pipe")
    with h5py.File(folder / "a.h5", "w") as file:
        file["out"] = h5py.ExternalLink(str(folder / "pipe"), "/")
        file["train"] = h5py.SoftLink("/out/train")
    return berdiff("data", "prepare", "lidc-hdf5", folder / "a.h5", world.folder() / "s").refused("a.h5")


@fault("a negative seed", VALUES + "test_windows_seeds_counts_and_devices")
def seed(world: World) -> str:
    return world.segment(picture(world.folder() / "a.png"), more=("--seed", -1)).refused("--seed")


@fault("a negative seed of a split", VALUES + "test_windows_seeds_counts_and_devices")
def split_seed(world: World) -> str:
    argv = ["data", "prepare", "folder", world.base / "data", world.folder() / "s", "--seed", -3]
    return berdiff(*argv).refused("--seed")


@fault("counts of zero", VALUES + "test_windows_seeds_counts_and_devices")
def zero(world: World) -> str:
    for option in ("--samples", "--batch-size", "--representatives", "--limit"):
        if wrong := world.segment(picture(world.folder() / "a.png"), more=(option, 0)).refused(option):
            return f"segment {option}: {wrong}"
    for option in ("--samples", "--batch-size", "--limit"):
        argv = [
            "evaluate",
            world.run,
            "--data",
            world.store,
            "--split",
            "all",
            "--out",
            world.folder() / "e",
            option,
            0,
        ]
        if wrong := berdiff(*argv).refused(option):
            return f"evaluate {option}: {wrong}"
    return ""


@fault("a device that holds no numbers", VALUES + "test_windows_seeds_counts_and_devices")
def device(world: World) -> str:
    return world.segment(picture(world.folder() / "a.png"), more=("--device", "meta")).refused("--device")


@fault("`[...]` in a name is read as markup", "tests/test_display.py::test_names_are_no_markup")
def markup(world: World) -> str:
    ended = world.segment(picture(world.folder() / "a[bold]b.png"))
    return ended.wrong(0) or ("" if "a[bold]b" in ended.said else "the name is shown without it")


@fault(
    "`$...$` in a name is read as mathematics",
    "tests/output/test_panels.py::test_no_name_is_too_long_or_taken_for_a_formula",
)
def mathematics(world: World) -> str:
    folder, store = world.folder(), world.folder() / "s"
    picture(folder / "images" / "$\\frac{$.png")
    save(Image.fromarray(np.eye(SIDE, dtype=np.uint8) * 255), folder / "masks" / "$\\frac{$.png")
    if wrong := berdiff("data", "prepare", "folder", folder, store).wrong(0):
        return wrong
    return berdiff("data", "show", store, "--out", world.folder() / "x.png").wrong(0)


# The slowest

ORPHANS = "tests/training/test_processes.py::test_when_one_process_is_killed_the_others_end_within_seconds"


@fault("when the first process of a training is killed the others stay", ORPHANS)
def orphans(world: World) -> str:
    run = world.folder() / "run"
    words = [str(word) for word in world.train(run)]
    words[words.index("--engine.devices") + 1] = "2"
    words[words.index("--max-steps") + 1] = "100000"
    source = str(Path(sys.modules["berdiff"].__file__ or "").parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    first = subprocess.Popen([sys.executable, "-m", "berdiff.cli.main", *words], env=environment, **quiet)
    other = 0
    while not other and first.poll() is None:
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first.pid)], capture_output=True, text=True)
        other = next(map(int, listed.stdout.split()), 0)
        time.sleep(0.1)
    first.kill()  # while the other is about to look for it
    first.wait()
    worked, since = -1.0, time.monotonic()
    while time.monotonic() - since < 30:  # without work: others may have the processor
        if not other or not Path(f"/proc/{other}").exists():
            return "" if other else "there was no other"
        if cpu_seconds(other) > worked:
            worked, since = cpu_seconds(other), time.monotonic()
        time.sleep(0.1)
    os.kill(other, signal.SIGKILL)
    return "the other waits for it after 30 s without work"


def main() -> int:
    source, words = Path(sys.argv[1]).resolve(), sys.argv[2:]
    sys.path.insert(0, str(source))
    imported = import_module("berdiff").__file__ or ""
    if not Path(imported).is_relative_to(source):
        sys.exit(f"{source}: expected a folder with berdiff in it, found {imported}")
    for module in COMMON:
        import_module(module)
    tried = [one for one in FAULTS if not words or any(word in one.name for word in words)]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        os.environ["BERDIFF_CACHE"] = str(Path(folder, "cache"))
        world = World(Path(folder))
        world.make()
        for one in tried:
            wrong = one.show(world)
            failed += bool(wrong)
            print(f"{'fails ' if wrong else 'passes'} {one.name}{': ' * bool(wrong)}{wrong}", flush=True)
    print(f"{source}: {failed} of {len(tried)} fail")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

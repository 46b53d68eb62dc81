"""What must stay the same to the bit, as (name, value) pairs. `test_golden.py` compares their SHA-256 sums.

Frozen are values. Left out are file bytes that depend on a library's version (Zarr's and gzip's packing, PNG's), the
pixels of pictures for people (overlays, panels, thumbnails, HTML), sentences in JSON and CSV (`SENTENCES`), and times.
The package's version is "golden" while they are made (`one_version`), since DICOM UIDs depend on it.

Not here: the masks of the bundled weights (tests/methods/test_bit_identity.py) and resuming (tests/training).
"""

import csv
import gzip
import io
import json
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import berdiff

Frozen = Iterator[tuple[str, Any]]
DIGITS = 9  # of the floats in JSON and CSV: sums may be rounded otherwise by the machine
# in words; and what goes by the version of a library or by the clock: sizes and sums of packed files, times
SENTENCES = {"notes", "warnings", "title", "details", "meaning"}
LIBRARIES = {"berdiff", "torch", "data_sha256", "seconds", "checksum", "bytes"}
# of DICOM: who wrote the file and when, in whose versions; everything else is frozen, UIDs and descriptions too
CLOCK = {"InstanceCreationDate", "InstanceCreationTime", "ContentDate", "ContentTime", "SeriesDate", "SeriesTime"}
CLOCK |= {"ContributingEquipmentSequence", "TimezoneOffsetFromUTC", "ObservationDateTime"}


@contextmanager
def one_version() -> Iterator[None]:
    """Meanwhile every module that holds the package's version holds "golden"; one imported meanwhile, too."""
    own = berdiff.__version__

    def say(old: str, new: str) -> None:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0].startswith("berdiff") and vars(module).get("__version__") == old:
                module.__version__ = new  # type: ignore[attr-defined]

    say(own, "golden")
    try:
        yield
    finally:
        say("golden", own)


# --- files -----------------------------------------------------------------------------------------------------------


def values_of(path: Path, root: Path) -> Frozen:
    """(the place in it, the value) of what a file holds; nothing of a picture or a page."""
    match path.name.split(".", 1)[-1]:
        case "nii.gz":
            yield "", gzip.decompress(path.read_bytes())
        case "npz":
            with np.load(path) as content:
                yield from ((name, content[name]) for name in content)
        case "csv":
            header, *rows = csv.reader(io.StringIO(path.read_text(), newline=""))
            for name, column in zip(header, zip(*rows, strict=True), strict=True):
                if name not in SENTENCES | LIBRARIES:
                    yield name, [_number(text) for text in column]
        case "json":
            content = json.loads(path.read_text().replace(str(root), "ROOT"))
            yield from ((name, plain(value)) for name, value in content.items() if _kept(name))
        case "dcm" | "seg.dcm" | "pm.dcm" | "sr.dcm":
            yield from _elements(path)
        case "png" if _is_data(path):
            from PIL import Image

            with Image.open(path) as picture:
                yield "", np.array(picture)


def _is_data(path: Path) -> bool:
    """Whether a PNG holds masks or a map, and is not made to be looked at."""
    return path.name.startswith(("mask", "sample", "saliency", "variance", "contour-", "representative-"))


def _elements(path: Path) -> Frozen:
    """Of a DICOM file: its pixels, its own UIDs, each sequence, and all other elements together, as pydicom's JSON."""
    import pydicom

    data = pydicom.dcmread(path)
    for keyword in CLOCK:
        _delete(data, keyword)
    rest = {"TransferSyntaxUID": str(data.file_meta.TransferSyntaxUID)}
    for element in data:
        if element.keyword in ("PixelData", "FloatPixelData"):
            yield element.keyword, bytes(element.value)
        elif element.VR == "SQ" or element.keyword in ("SOPInstanceUID", "SeriesInstanceUID"):
            yield element.keyword, element.to_json_dict(None, 0)
        else:
            rest[element.keyword] = element.to_json_dict(None, 0)
    yield "other elements", rest


def _delete(data: Any, keyword: str) -> None:
    for element in list(data):
        if element.keyword == keyword:
            del data[element.tag]
        elif element.VR == "SQ":
            for item in element.value:
                _delete(item, keyword)


def plain(value: Any) -> Any:
    """Parsed JSON without sentences, floats rounded."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items() if _kept(name)}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return _rounded(value) if isinstance(value, float) else value


def _kept(name: str) -> bool:
    return name not in SENTENCES | LIBRARIES


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdecimal() else _rounded(float(text))
    except ValueError:
        return text


def folder(path: Path, root: Path) -> Frozen:
    """The names of all files of a folder, and the values in each."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    yield "files", [str(file.relative_to(path)) for file in files]
    for file in files:
        name = str(file.relative_to(path))
        for place, value in values_of(file, root):
            if file.name in ("done.json", "findings.json") and place == "files":
                value = sorted(value)  # names, not sizes, which pictures and packing change
            yield f"{name}: {place}" if place else name, value


# --- segment: every format -------------------------------------------------------------------------------------------

TARGETS = {
    "nested": ("whole", "tumour core", "nodule"),
    "exclusive": ("edema", "core", "cyst"),
    "independent": ("a", "b"),
}
ARRAYS = ("samples", "saliency", "variance", "mask", "contours", "representatives")
VALUES = (*ARRAYS, "nifti", "json", "csv")
WINDOW = ("--window", -400, 600)  # without which no CT is segmented
DICOM = ("dicom-seg", "dicom-pm", "dicom-sr")


def write_images(root: Path) -> None:
    """p.png, v.nii.gz (oblique, one axis turned around, other scales per axis) and the oblique series s."""
    import nibabel
    from dicom_writer import write_slice
    from PIL import Image

    rng = np.random.default_rng(0)
    root.mkdir(parents=True)
    rows, columns = np.mgrid[:20, :24]
    blob = np.exp(-((rows - 8) ** 2 / 30 + (columns - 14) ** 2 / 50))
    volume = np.stack([800 * share * blob for share in (0.3, 1, 0.8, 0.5)]) + rng.integers(0, 100, (4, 20, 24))
    Image.fromarray((180 * blob + rng.integers(0, 60, blob.shape)).astype(np.uint8)).save(root / "p.png")
    turn, tilt = np.deg2rad(20), np.deg2rad(-12)
    about_z = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    about_x = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    affine = np.eye(4)
    affine[:3, :3] = about_z @ about_x @ np.diag([0.7, -0.8, 2.5])
    affine[:3, 3] = (-20, 31.5, 7)
    image = nibabel.Nifti1Image(volume.T.astype(np.int16), affine)
    image.set_qform(affine, code=1)
    image.set_sform(affine, code=3)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_dim_info(0, 1, 2)
    nibabel.save(image, root / "v.nii.gz")
    across, down = about_z[:, 0], (about_z @ about_x)[:, 1]
    for z, plane in enumerate(volume):
        position = np.array([-40.0, 12.5, 100.0]) + 2.5 * z * np.cross(across, down)
        tags = {
            "SOPInstanceUID": f"1.2.3.4.{z}",
            "FrameOfReferenceUID": "1.2.3.5",
            "InstanceNumber": z + 1,
            "ImageOrientationPatient": [round(float(v), 8) for v in (*across, *down)],
            "ImagePositionPatient": [round(float(v), 6) for v in position],
            "PatientName": "Doe^Jane",
            "PatientSex": "F",
            "StudyDate": "20200102",
        }
        # files in another order than slices
        write_slice(root / "s" / f"{3 - z}.dcm", plane.astype(np.int16) + 700, spacing=(0.7, 0.6), **tags)


def save_model(path: Path, kind: str, like: Any = None) -> Path:
    """A model without weights that matter; `like`: the input spec of the store that it is for."""
    from dataclasses import replace

    from berdiff.methods import folder
    from fakes import Levels, make_spec

    spec = like or replace(make_spec((16, 16), targets=TARGETS[kind]), kind=kind)
    folder.save(Levels().build(spec), path)
    return path


def run(*words: object) -> None:
    from berdiff.cli.main import main

    assert main([*map(str, words), "--device", "cpu"]) == 0, words


def segmented(root: Path) -> Frozen:
    """`berdiff segment` of a picture, an oblique volume and an oblique series, for each kind of targets."""
    images = root / "in"
    write_images(images)
    models = {kind: save_model(root / kind, kind) for kind in TARGETS}
    for kind, model in models.items():
        for file in ("p.png", "v.nii.gz", "s"):
            out = root / "out" / kind / file
            more = (*DICOM, *WINDOW) if file == "s" else ()
            run("segment", model, images / file, "--out", out, "--samples", 5, "--write", *VALUES, *more)
            yield from ((f"{kind} {file} {name}", value) for name, value in folder(out, root))
    # a set out of a pool, by default formats; and all of them in one table
    out = root / "out" / "set"
    run(
        "segment",
        models["nested"],
        images,
        "--out",
        out,
        "--samples",
        3,
        "--set",
        "representative",
        "--pool",
        9,
        *WINDOW,
    )
    yield from ((f"set {name}", value) for name, value in folder(out, root))
    out = root / "out" / "anonymous"
    run("segment", models["nested"], images / "s", "--out", out, "--samples", 3, "--anonymous", "--seed", 1, *WINDOW)
    yield from ((f"anonymous {name}", value) for name, value in folder(out, root))
    # findings: one of a picture, two of the volume, one of them at its edge
    centers = root / "centers.csv"
    centers.write_text("case,z,y,x,finding\np,,9,12,here\nv,1,9,13,one\nv,3,2,20,edge\n")
    for kind in ("nested", "exclusive"):
        out, about = root / "out" / f"findings {kind}", ("--samples", 4, "--extent", 2.5, "--pad", "--centers", centers)
        run("segment", models[kind], images / "p.png", images / "v.nii.gz", "--out", out, *about)
        yield from ((f"findings {kind} {name}", value) for name, value in folder(out, root))
    yield from _from_python(root, models["exclusive"])


def _from_python(root: Path, model: Path) -> Frozen:
    """`Result.save` by the ending of a name, and what a result states."""
    for file in ("p.png", "v.nii.gz"):
        result = berdiff.load(model).segment(root / "in" / file, n=4, seed=2)
        for suffix in ("npz", "nii.gz"):
            (saved,) = result.save(root / file[0] / f"saved.{suffix}")
            yield from ((f"python {file} {suffix}: {place}", value) for place, value in values_of(saved, root))
        arrays = {"samples": result.samples, "label map": result.label_map(), "contours": result.contours()}
        yield from ((f"python {file}: {name}", array) for name, array in arrays.items())


# --- stores: every source --------------------------------------------------------------------------------------------


def store_values(path: Path) -> Frozen:
    """What a store gives back, and its manifest without the sums of its packed files."""
    from berdiff.data.store import Store

    store = Store.open(path)
    every = np.arange(len(store))
    yield from zip(("images", "masks"), store.read_stored(every), strict=True)
    for column, values in vars(store.cases).items():
        yield f"cases.csv {column}", values.tolist()
    manifest = plain(json.loads((path / "manifest.json").read_text()))
    del manifest["files"]  # the sums of packed files
    spec = manifest.pop("input_spec")
    yield from ((f"manifest {name}", value) for name, value in manifest.items())
    yield from ((f"input_spec {name}", value) for name, value in spec.items())


def made_sources(root: Path) -> Iterator[tuple[str, str, Path | None, dict[str, Any]]]:
    """(name, source, its path, options) of small data of every source, in every layout."""
    import brats_writer
    import folder_writer
    import layouts
    import test_brats_h5
    import test_hdf5_source
    import test_lidc_arrays
    import test_lidc_dicom
    import test_nnunet_source

    root.mkdir(parents=True)
    yield "lidc-readers", "lidc-readers", None, {"patients": 2, "size": 48}
    for z in (-125.0, -122.5, -120.0):
        test_lidc_dicom.write(root / "dicom", z)
    yield "lidc-dicom", "lidc-dicom", root / "dicom", {}
    yield "lidc-dicom at 1 mm", "lidc-dicom", root / "dicom", {"size": 64, "spacing": 1.0, "hu_low": -160.0}
    layouts.write_crops(root / "crops")
    yield "lidc-crops", "lidc-crops", root / "crops", {"size": 32}
    yield "lidc-crops resized", "lidc-crops", root / "crops", {"size": 30, "fit": "resize"}
    layouts.write_hdf5(root / "lidc.hdf5")
    yield "lidc-hdf5", "lidc-hdf5", root / "lidc.hdf5", {}
    (root / "lidc.pickle").write_bytes(pickle.dumps(test_lidc_arrays.content()))
    yield "lidc-pickle", "lidc-pickle", root / "lidc.pickle", {}
    layouts.write_png_tree(root / "png")
    yield "lidc-png", "lidc-png", root / "png", {}
    layouts.write_jpg_folders(root / "jpg")
    yield "lidc-jpg", "lidc-jpg", root / "jpg", {}
    for seed, name in enumerate(("BraTS2021_00001", "BraTS2021_00002", "BraTS2021_00003")):
        brats_writer.case_folder(root / "brats", name, seed)
    small = brats_writer.SMALL
    yield "brats regions", "brats", root / "brats", {**small, "targets": "regions"}
    yield "brats labels cropped", "brats", root / "brats", {**small, "targets": "labels", "fit": "crop"}
    yield "brats whole", "brats", root / "brats", {**small, "keep_empty": "none", "sequences": ("flair", "t2")}
    brats_writer.new_case_folder(root / "gli")
    yield "brats of 2023", "brats", root / "gli", {**small, "targets": "regions"}
    brats_writer.decathlon(root / "decathlon")
    yield "brats decathlon", "brats", root / "decathlon", {**small, "targets": "regions"}
    brats_writer.slices(root / "slices")
    yield "brats slices", "brats", root / "slices", {**small, "bottom": 80, "top": 0, "targets": "labels"}
    test_brats_h5.write(root / "kaggle", volumes=(2, 10, 1))
    yield "brats-h5", "brats-h5", root / "kaggle", {**test_brats_h5.SMALL, "targets": "regions"}
    test_nnunet_source.write(root / "nnunet")
    yield "nnunet volumes", "nnunet", root / "nnunet", {"window": (0.0, 1000.0)}
    yield "nnunet percentiles", "nnunet", root / "nnunet", {"size": (10, 10), "fit": "resize", "drop_empty": True}
    (root / "colour").mkdir()
    test_nnunet_source.write_pictures(root / "colour", {"background": 0, "x": 1, "y": 2, "z": 3}, colour=True)
    yield "nnunet pictures", "nnunet", root / "colour", {}
    folder_writer.simple(root / "pictures", 6)
    yield "folder", "folder", root / "pictures", {"patient": "c[0-9]"}
    for i in range(3):
        volume = np.random.default_rng(i).integers(-900, 300, (3, 12, 16)).astype(np.int16)
        folder_writer.save(root / "volumes" / "images" / f"c{i}.nii.gz", volume)
        for rater in "ab"[: 1 + i]:
            folder_writer.save(
                root / "volumes" / "masks" / f"c{i}_r{rater}.nii.gz", (volume > 100 * i).astype(np.uint8)
            )
    raters = {"mask_name": "{case}_r{rater}", "missing_raters": True}
    yield "folder of volumes", "folder", root / "volumes", {**raters, "window": (-900.0, 300.0)}
    yield "folder of volumes, percentiles", "folder", root / "volumes", {**raters, "size": (8, 20)}
    groups = {name: test_hdf5_source.content(n, n, name) for name, n in (("train", 6), ("val", 4), ("test", 4))}
    test_hdf5_source.write(root / "any.h5", groups)
    four = {"channels": test_hdf5_source.SEQUENCES}
    yield "hdf5 nested", "hdf5", root / "any.h5", {**four, "labels": test_hdf5_source.REGIONS, "spacing": (1.5, 2.5)}
    yield "hdf5 exclusive", "hdf5", root / "any.h5", {**four, "labels": test_hdf5_source.CODES, "scale": "percentiles"}
    test_hdf5_source.write_raters(root / "raters.h5", 12, n_raters=None)
    yield "hdf5 raters", "hdf5", root / "raters.h5", {"scale": "minmax", "size": (12, 20)}
    # joined, of which `prepared` makes the parts above
    yield "stores", "stores", root / "out" / "lidc-hdf5", {"also": (root / "out" / "lidc-png",)}


def prepared(root: Path) -> Frozen:
    """A store of each source, with the default split, by its values; they stay in `root`/out."""
    from berdiff.data.prepare import prepare
    from berdiff.data.sources import SOURCES, find_source

    made = set()
    for name, source, path, options in made_sources(root):
        prepare(source, path, root / "out" / name, find_source(source).Options(**options), val=0.2, test=0.3)
        made.add(source)
        yield from ((f"{name}: {place}", value) for place, value in store_values(root / "out" / name))
    yield "sources", sorted(made)
    ours = {name for name, module in SOURCES.ours.items() if module.startswith("berdiff.")}
    assert made == ours, "a source without a golden store"


# --- configurations: every recipe and every row of a table -----------------------------------------------------------


def _recipes() -> dict[str, Any]:
    """The configuration of every recipe, and of what one trains first."""
    from berdiff.recipes import FIRST_STAGES, RECIPES

    configs: dict[str, Any] = {name: recipe.config for name, recipe in RECIPES.items()}
    return configs | {f"first stage of {name}": first(configs[name]) for name, first in FIRST_STAGES.items()}


def configured() -> Frozen:
    from berdiff.methods.config import METHODS
    from berdiff.training.config import as_plain, check
    from reproduce.tables import TABLES
    from reproduce.tables import scale as scales
    from reproduce.tables.spec import of_recipes, select_rows

    for name, config in _recipes().items():
        yield f"recipe {name}", as_plain(check(config))
    yield from _planned()
    ours = tuple(name for name, place in METHODS.ours.items() if place.startswith("berdiff."))
    some: Any = SimpleNamespace(indices=lambda split: range(3))  # a store with cases in every split
    for table in TABLES.values():
        named = select_rows(table, ("*", *ours)) if table.any_method else table
        sizes = {
            "paper": scales.paper(some, "s"),
            "cpu": scales.cpu(some, "s"),
            "cpu 20": scales.cpu(some, "s", steps=20),
        }
        for of, scale, rows in [(of, scale, named.rows) for of, scale in sizes.items()] + (
            [("recipes", scales.recipes(some, "s"), of_recipes(table).rows)] if table.compared else []
        ):
            for row in rows:
                yield f"table {table.name} {of} {row.name}", _row(scale, row, as_plain, check)
        yield f"table {table.name} claims", [(c.text, c.better, c.worse, c.whose) for c in table.claims]
        yield f"table {table.name} paper", {row.name: dict(row.paper) for row in table.rows if row.paper}


def _row(scale: Any, row: Any, as_plain: Any, check: Any) -> Any:
    from berdiff import schema
    from berdiff.errors import InputError

    try:
        config = check(scale.config(row, seed=1))
    except InputError:
        return "refused"
    sampler = row.sampler or getattr(config.model, "sampler", None)
    return {"config": as_plain(config), "evaluation": schema.plain(scale.evaluation(sampler))}


def _planned() -> Frozen:
    """What the recipe `own` plans for three stores."""
    from berdiff.training.config import as_plain, check
    from berdiff.training.plan import Facts, plan, with_settings

    stores = {
        "small": Facts((128, 128), 8, 900, 4, 1, "independent", 0.3, 900, 2, False),
        "large": Facts((512, 400), 8, 90, 1, 3, "nested", 0.0, 90, 8, True),
        "odd": Facts((100, 99), 8, 9, 2, 2, "exclusive", 0.1, 9, 1, False),
    }
    for name, facts in stores.items():
        config = _recipes()["own"]
        chosen = {choice.setting: choice.value for choice in plan(config, facts)}
        yield f"own on a {name} store", as_plain(check(with_settings(config, chosen)))


# --- methods: initial weights, losses and samples ---------------------------------------------------------------------

TINY: dict[str, dict[str, Any]] = {  # the method; its last word may be a kind of targets
    "berdiff": {"T": 50},
    "berdiff encode-once": {"preset": "fast-tiny", "T": 50, "masks_per_image": 2, "schedule": "power2.5"},
    "berdiff hurdle": {"preset": "fast-tiny", "T": 50, "hurdle": 0.05, "masks_per_image": 3, "energy": 0.05},
    "berdiff mask nested": {"preset": "fast-tiny", "T": 50, "prediction": "mask", "inner_weight": 4.0},
    "berdiff mask exclusive": {"preset": "fast-tiny", "T": 50, "prediction": "mask"},
    "gaussian": {"T": 50},
    "gaussian encode-once": {"preset": "fast-tiny", "T": 50, "masks_per_image": 2},
    "flow": {"T": 50},
    "segdiff": {"T": 50},
    "medsegdiff": {"T": 50, "masks_per_image": 2},
    "unet": {"lambda_dice": 1.0},
    "unet nested": {"preset": "fast-tiny", "answer": "level-sets"},
    "unet exclusive": {},
    "nnunet": {},
    "transunet": {},
    "swinunetr": {},
    "mednext": {},
    "probunet": {"beta_warmup": 3},
    "hprobunet": {"kappa": 0.5, "masks_per_image": 3},
    "car": {"samples": 3, "masks_per_image": 2},
    "jprounet": {"dims": 4, "masks_per_image": 2},
    "pixelseg": {"smooth": False},
    "ssn": {"draws": 4, "masks_per_image": 3},
    "mose": {"samples_per_expert": 2},
}


def drawn() -> Frozen:
    """Of every method in a tiny size: the weights that it begins with, the terms of its loss, its masks by several
    samplers. Random numbers in another order would change them; so would another machine's convolutions."""
    from dataclasses import replace

    import torch

    from berdiff.diffusion.random import sample_generators
    from berdiff.diffusion.sampler import Sampler
    from berdiff.methods.config import METHODS, method_class
    from fakes import make_spec, real

    samplers = {"ddim": Sampler(3), "ddpm": Sampler(3, rule="ddpm"), "shared": Sampler(3, noise="shared", views=4)}
    samplers |= {"ddpm shared": Sampler(3, rule="ddpm", noise="shared")}
    samplers |= {"sigma": Sampler((50, 20, 5), sigma=1.0, last_step="sample"), "own": None}
    radius = torch.tensor([[9.0, 6.0, 0.0], [11.0, 8.0, 5.0]])[:, :, None, None, None]
    for name, settings in TINY.items():
        method, *words = name.split()
        side = 64 if method == "swinunetr" else 32
        rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        distance = ((rows - 14) ** 2 + (columns - 18) ** 2).sqrt()
        image = ((20 - distance).clamp(0) / 20 + 0.2 * torch.sin(columns / 3)).clamp(0, 1).repeat(2, 1, 1, 1)
        several = words[-1:] in (["nested"], ["exclusive"])
        spec = make_spec((side, side), targets=("whole", "core") if several else ("nodule",))
        masks = (distance < radius * torch.tensor([1.0, 0.6] if several else [1.0])[:, None, None]).to(torch.uint8)
        if several:
            spec = replace(spec, kind=words[-1])
        if words[-1:] == ["exclusive"]:
            masks[:, :, 0] -= masks[:, :, 1]
        segmenter = real(method_class(method)(**{"preset": "tiny", **settings}), spec)
        weights = segmenter.state_dict()
        yield f"{name}: weights", b"".join(weights[key].numpy().tobytes() for key in sorted(weights))
        segmenter.train()
        terms = segmenter.loss(image, masks, sample_generators(1, ["golden"], 2))
        yield f"{name}: loss", {term: value.item() for term, value in sorted(terms.items())}
        segmenter.eval()
        for label, sampler in samplers.items():
            with suppress(ValueError):  # of a sampler that the method cannot follow
                if sampler is not None:
                    segmenter.check_sampler(sampler)
                yield f"{name}: {label}", segmenter.sample(image, 3, sample_generators(2, "ab", 3), sampler).numpy()
    ours = {name for name, place in METHODS.ours.items() if place.startswith("berdiff.")}
    assert ours == {name.split()[0] for name in TINY}, "a method without a golden"


# --- evaluations -----------------------------------------------------------------------------------------------------


def evaluated(root: Path, stores: Path) -> Frozen:
    """metrics.json and per_case.csv of stores of several raters, nested and exclusive targets; by slice and volume."""
    from berdiff.data.store import Store

    runs: dict[str, tuple[str, tuple[Any, ...]]] = {
        "raters": ("lidc-hdf5", ("--samples", 5)),
        "raters, a crop": ("hdf5 raters", ("--samples", 3, "--crop", 8, "--split", "all", "--seed", 3)),
        "a set": ("lidc-hdf5", ("--samples", 3, "--set", "systematic", "--pool", 8, "--limit", 2)),
        "nested": ("hdf5 nested", ("--samples", 4, "--split", "all", "--save-samples")),
        "exclusive": ("hdf5 exclusive", ("--samples", 4, "--split", "all")),
        "volumes": ("brats regions", ("--samples", 3, "--split", "all", "--by", "volume")),
    }
    for name, (store, words) in runs.items():
        spec, out = Store.open(stores / store).input_spec, root / "out" / name
        model = save_model(root / name, spec.kind, spec)
        run("evaluate", model, "--data", stores / store, "--out", out, *words)
        for place, value in folder(out, stores.parent):
            if not place.startswith("settings.json"):
                yield f"{name} {place}", value

"""The commands with addresses of an object store, over the real S3 protocol on loopback."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from dicom_writer import write_slice
from layouts import as_source, make_cases
from PIL import Image

from berdiff.cli.main import main
from berdiff.data import prepare as preparing
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.inference.copies import HEAD
from berdiff.methods import folder as model_folder
from berdiff.remote import _filesystem, filesystem
from fakes import StandIn, make_spec

FAST = ["--samples", "2", "--write", "samples", "saliency", "mask", "json"]


@pytest.fixture(autouse=True)
def _temporary(tmp_path, monkeypatch):
    """Whatever is fetched or made on the way is in a folder that must be empty at the end."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    yield
    left = [str(path.relative_to(tmp_path)) for path in (tmp_path / "tmp").glob("berdiff-*")]
    assert left == []


@pytest.fixture
def model(tmp_path) -> Path:
    model_folder.save(StandIn().build(make_spec((32, 32))).eval(), tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def images(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for name in ("p0", "p1", "deep/p2"):
        Image.fromarray(rng.integers(0, 256, (32, 32), dtype=np.uint8)).save(tmp_path / "in" / f"{name}.png")
    (tmp_path / "in" / "notes.txt").write_text("left alone")
    return tmp_path / "in"


def put(folder: Path, address: str) -> str:
    fs, root = filesystem(address)
    for path in filter(Path.is_file, folder.rglob("*")):
        fs.put_file(str(path), f"{root}/{path.relative_to(folder).as_posix()}")
    return address


def tree(where: str | Path) -> dict[str, bytes]:
    fs, root = filesystem(where)
    return {path.removeprefix(root.rstrip("/") + "/"): fs.cat_file(path) for path in sorted(fs.find(root))}


def masks(where: str | Path) -> dict[str, bytes]:
    """What does not name where the input lay."""
    return {name: content for name, content in tree(where).items() if name.endswith((".png", ".nii.gz"))}


def test_from_preparing_to_masks(bucket, tmp_path, monkeypatch, capsys):
    """prepare -> verify -> train -> evaluate -> segment, each with addresses, gives what folders give."""
    source = as_source(make_cases(10), size=(32, 32))
    monkeypatch.setattr(preparing, "find_source", lambda name: source)
    monkeypatch.setattr("berdiff.data.sources.find_source", lambda name: source)
    address, local = f"{bucket}/data/store", tmp_path / "store"
    for out in (address, str(local)):
        assert main(["data", "prepare", "made", "--val", "0.2", "--test", "0.3", ".", out]) == 0
    assert tree(address) == tree(local)
    assert verify(address) == []
    assert main(["data", "info", address]) == 0
    assert main(["data", "prepare", "made", ".", address]) == 2
    assert "something there already" in capsys.readouterr().err

    train = "train demo --model.method stand-in --data.crop None --max-steps 2 --loop.batch-size 2 --validation.every 0"
    train += " --engine.accelerator cpu --engine.devices 1"
    for name, data in (("remote", address), ("local", str(local))):
        assert main([*train.split(), "--data", data, "--out", str(tmp_path / name)]) == 0
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("remote", "local")]
    assert weights[0] == weights[1]
    run = str(tmp_path / "remote")

    evaluate = ["evaluate", run, "--samples", "2", "--split", "all", "--device", "cpu"]
    assert main([*evaluate, "--out", str(tmp_path / "e0")]) == 2
    assert "--data: " in capsys.readouterr().err
    assert main([*evaluate, "--out", str(tmp_path / "e1"), "--data", address]) == 0
    assert main([*evaluate, "--out", str(tmp_path / "e2"), "--data", str(local)]) == 0
    results = [json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("e1", "e2")]
    assert results[0]["metrics"].keys() == results[1]["metrics"].keys()
    assert results[0]["metrics"]["ged_2"] == results[1]["metrics"]["ged_2"]

    segment = ["segment", run, "--split", "all", "--limit", "3", *FAST, "--device", "cpu"]
    assert main([*segment, address, "--out", f"{bucket}/masks"]) == 0
    assert main([*segment, str(local), "--out", str(tmp_path / "masks")]) == 0
    assert len(masks(f"{bucket}/masks")) == 3 * 5  # four kinds, and the thumbnail
    assert masks(f"{bucket}/masks") == masks(tmp_path / "masks")
    case = Store.open(local).cases.case
    name = next(name for name in tree(f"{bucket}/masks") if name.endswith("result.json"))
    assert name.removesuffix("/result.json") in set(case)
    assert json.loads(tree(f"{bucket}/masks")[name])["source"]["files"] == [address]


def test_files_are_segmented_as_their_local_copies(model, images, bucket, tmp_path, capsys):
    where = put(images, f"{bucket}/images")
    local, remote = tmp_path / "out", f"{bucket}/out"
    assert main(["segment", str(model), str(images), "--out", str(local), *FAST]) == 0
    assert main(["segment", str(model), where, "--out", remote, *FAST]) == 0
    assert sorted(masks(remote)) == sorted(masks(local))
    assert masks(remote) == masks(local)
    done = json.loads(tree(remote)["deep/p2/done.json"])
    size = (images / "deep" / "p2.png").stat().st_size
    assert done["sources"] == [{"path": f"{where}/deep/p2.png", "bytes": size}]
    assert json.loads(tree(remote)["deep/p2/result.json"])["source"]["files"] == [f"{where}/deep/p2.png"]
    before = tree(remote)
    capsys.readouterr()
    assert main(["segment", str(model), where, "--out", remote, *FAST, "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)["skipped"]) == ["deep/p2", "p0", "p1"]
    assert tree(remote) == before

    for given in (f"{where}/*.png", f"{where}/p?.png"):
        out = tmp_path / f"globbed{len(given)}"
        assert main(["segment", str(model), given, "--out", str(out), *FAST]) == 0
        assert {name.split("/")[0] for name in masks(out)} == {"p0", "p1"}
    single = tmp_path / "single"
    assert main(["segment", str(model), f"{where}/p0.png", f"{where}/*.png", "--out", str(single), *FAST]) == 0
    assert masks(single)["p0/mask.png"] == masks(local)["p0/mask.png"]
    assert (
        main(["segment", str(model), f"{where}/*", "--out", str(tmp_path / "all"), *FAST]) == 2
    )  # notes.txt was meant
    assert masks(tmp_path / "all") == masks(local)


def test_a_bad_file_fails_alone_and_is_called_by_its_address(model, images, bucket, tmp_path, capsys):
    where = put(images, f"{bucket}/images")
    fs, root = filesystem(where)
    fs.pipe_file(f"{root}/bad.png", b"no picture")
    fs.pipe_file(f"{root}/.hidden.png", b"no picture")
    assert main(["segment", str(model), where, "--out", str(tmp_path / "out"), *FAST, "--json"]) == 2
    printed = capsys.readouterr()
    outcome = json.loads(printed.out)
    assert (len(outcome["done"]), list(outcome["failed"])) == (3, ["bad"])
    assert f"{where}/bad.png: expected " in printed.err
    assert str(tmp_path / "tmp") not in printed.err + printed.out
    for given in (f"{bucket}/nothing", "s3://no-such-bucket/x", "ftp://host/x.png"):
        assert main(["segment", str(model), given, "--out", str(tmp_path / "none"), *FAST]) == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"berdiff segment: {given}: ")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_dicom_series_by_their_headers(model, bucket, tmp_path):
    """Two series in one folder, of which one has slices whose pixels begin late; names are by series, as locally."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "dicom" / "study"
    folder.mkdir(parents=True)
    for series in ("1.2.3", "1.2.4"):
        for z in range(2):
            values = rng.integers(-1000, 400, (32, 32)).astype(np.int16)
            late = {"ImageComments": "x" * HEAD} if series == "1.2.4" else {}
            write_slice(folder / f"{series}-{z}", values, z=float(z), series=series, **late)
    where = put(tmp_path / "dicom", f"{bucket}/dicom")
    asked = ["--samples", "2", "--write", "nifti", "--window", "-1000", "400"]
    assert main(["segment", str(model), str(tmp_path / "dicom"), "--out", str(tmp_path / "out"), *asked]) == 0
    assert main(["segment", str(model), where, "--out", f"{bucket}/out", *asked]) == 0
    assert {name.rpartition("/")[0] for name in masks(tmp_path / "out")} == {"study/1.2.3", "study/1.2.4"}
    assert masks(f"{bucket}/out") == masks(tmp_path / "out")


@pytest.mark.slow
def test_over_http(model, images, bucket, tmp_path, capsys):
    """Files and stores can be read from a web server, which lists no folders."""
    fs, root = filesystem(put(images, f"{bucket}/images"))
    fs.chmod(f"{root}/p0.png", "public-read")
    web = bucket.replace("s3://", os.environ["AWS_ENDPOINT_URL"] + "/") + "/images"
    assert main(["segment", str(model), f"{web}/p0.png", "--out", str(tmp_path / "web"), *FAST]) == 0
    assert main(["segment", str(model), str(images / "p0.png"), "--out", str(tmp_path / "out"), *FAST]) == 0
    assert masks(tmp_path / "web") == masks(tmp_path / "out")
    assert main(["segment", str(model), f"{web}/none.png", "--out", str(tmp_path / "none"), *FAST]) == 2
    assert "none.png: " in capsys.readouterr().err
    assert main(["segment", str(model), f"{web}/p0.png", "--out", f"{web}/out", *FAST]) == 2
    assert f"{web}/out: " in capsys.readouterr().err


def test_an_unreachable_store_is_one_sentence_of_every_command(bucket, model, images, tmp_path, monkeypatch, capsys):
    _filesystem.cache_clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # the port of a service that nobody runs
    out = str(tmp_path / "out")
    for command in (
        ["data", "info", f"{bucket}/x"],
        ["train", "demo", "--data", f"{bucket}/x", "--out", out],
        ["evaluate", str(model), "--data", f"{bucket}/x", "--out", out],
        ["segment", str(model), f"{bucket}/x", "--out", out],
        ["segment", str(model), str(images), "--out", f"{bucket}/x"],
    ):
        started = time.monotonic()
        assert main(command) == 2, command
        *_, last = capsys.readouterr().err.splitlines()
        assert f"{bucket}/x: expected an object store that answers, found no answer" in last, command
        assert time.monotonic() - started < 60, command
    assert not Path(out).exists()

"""The very client that 3D Slicer ships, from the wheel of MONAI Label, against this server."""

import gzip
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nibabel
import numpy as np
import pytest
from test_view_corrections import save
from view_server import POINT, item_named, listening, picture, segmented, serving, volume

from berdiff.methods import folder
from berdiff_viewer.server.guard import Access
from fakes import Blur, make_spec, make_store

WHEEL = "monailabel-0.8.5-202411252313-py3-none-any.whl"
SHA256 = "0c2c9bd72c8f9862c0c182d14e7f2637c53ccd616f9ffa584f619b1040f1fc6b"
CLIENT = "plugins/slicer/MONAILabel/MONAILabelLib/client.py"
AFFINE = np.diag([2.0, 2, 3, 1])
X, Y, K = POINT.tolist()
INNER, EDGE, RARE = [X, Y, K], [X + 2, Y, K], [X - 2, Y, K]  # marked by all, by about half, by few samples
LABEL_INFO = {"label_info": [{"name": "nodule", "idx": 1}]}


@pytest.fixture(scope="session")
def wheel():
    """Downloaded once into the user's cache; nothing of it is ever a part of this repository."""
    kept = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "berdiff-tests" / WHEEL
    if not kept.is_file():
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent) as new:
            command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "monailabel==0.8.5", "-d", new]
            try:
                subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
                os.replace(Path(new) / WHEEL, kept)
            except (OSError, subprocess.SubprocessError) as error:
                said = str(getattr(error, "stderr", "") or error).strip().splitlines()
                pytest.skip(f"pip cannot fetch monailabel 0.8.5: {said[-1]}")
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == SHA256, f"{kept} is another file: remove it"
    with zipfile.ZipFile(kept) as archive:
        yield archive


@pytest.fixture(scope="session")
def library(wheel, tmp_path_factory):
    for needed in ("cgi", "requests"):
        pytest.importorskip(needed, reason=f"the client of 3D Slicer imports {needed}")
    path = tmp_path_factory.mktemp("client") / "client.py"
    path.write_bytes(wheel.read(next(name for name in wheel.namelist() if name.endswith(CLIENT))))
    spec = importlib.util.spec_from_file_location("slicer_client", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def slicer(library, server, tmp_path):
    """A client of the server of `client`, over HTTP."""
    with listening(server[0].app) as url:
        yield library.MONAILabelClient(url, str(tmp_path), "anna")


def refused(library, call, *arguments, **named):
    """The client's own message, which 3D Slicer shows: it must have a sentence."""
    with pytest.raises(library.MONAILabelClientException) as error:
        call(*arguments, **named)
    status, answer = re.fullmatch(r"Status: (\d+); Response: (.*)", error.value.msg, re.DOTALL).groups()
    detail = json.loads(answer)["detail"]
    assert detail not in ("", "Not Found", "Method Not Allowed")
    return int(status), detail


def scan(path, shape=(40, 50, 12)):
    """A file of the shared scan's size, with a bright centre and voxels that only some samples mark."""
    values = np.asarray(nibabel.Nifti1Image.from_bytes(gzip.decompress(volume(AFFINE, shape))).dataobj).copy()
    values[tuple(EDGE)], values[tuple(RARE)] = 0.4, 0.37
    nibabel.save(nibabel.Nifti1Image(values, AFFINE), path)
    return str(path)


def label_map(path, value=1, second=0):
    labels = np.zeros((40, 50, 12), np.uint8)
    labels[X - 1 : X + 2, Y - 1 : Y + 2, K] = value
    labels[:3, :3, :] = second
    content = gzip.compress(nibabel.Nifti1Image(labels, AFFINE).to_bytes())
    Path(path).write_bytes(content)
    return str(path), labels


def voxels(path):
    """Of the NRRD that 3D Slicer asks for."""
    header, _, data = Path(path).read_bytes().partition(b"\n\n")
    sizes = next(line for line in header.decode().splitlines() if line.startswith("sizes: "))
    return np.frombuffer(gzip.decompress(data), np.uint8).reshape([int(n) for n in sizes.split()[1:]], order="F")


def click(slicer, id, foreground, background=(), **more):
    """As the module's onClickDeepgrow and infer put it together."""
    params = {"label": "nodule", "foreground": foreground, "background": list(background), "slice": K, **more}
    params |= {"result_extension": ".nrrd", "result_dtype": "uint8"}
    path, facts = slicer.infer("blur", "node", params, session_id=id)
    return voxels(path), facts


def test_info_has_what_the_module_reads(slicer):
    assert slicer.auth_enabled() is False
    info = slicer.info()
    assert "config" not in info  # else the module says that the server is too old
    assert (info["labels"], list(info["strategies"])) == (["nodule"], ["first", "random", "disagreement"])
    assert {model["type"] for model in info["models"].values()} == {"deepgrow"}
    assert (info["trainers"], info["scoring"], info["train_stats"]) == ({}, {}, {})
    assert info["datastore"] == {"total": 2, "completed": 0, "label_tags": {}}


def test_points_choose_among_the_samples(slicer, library, tmp_path):
    """All points of both kinds; what agrees with them is worked out here from the samples one by one."""
    session = slicer.create_session(scan(tmp_path / "tmpabc.nii.gz"))
    id = session["session_id"]
    assert slicer.get_session(id)["name"] == id
    one, one_facts = click(slicer, id, [INNER])
    assert "points" not in one_facts
    samples = np.stack([click(slicer, id, [INNER], what=f"sample {n}")[0] for n in range(1, 17)])
    np.testing.assert_array_equal(one, samples.mean(0) >= 0.5)
    for foreground, background in (
        [[INNER, EDGE], []],
        [[INNER], [EDGE]],
        [[INNER, EDGE], [RARE]],
        [[INNER, RARE], []],
    ):
        keep = np.all([samples[:, *point] == 1 for point in foreground], 0)
        keep &= np.all([samples[:, *point] == 0 for point in background], 0) if background else True
        assert 0 < keep.sum() < 16
        mask, facts = click(slicer, id, foreground, background)
        np.testing.assert_array_equal(mask, samples[keep].mean(0) >= 0.5)
        assert (facts["points"]["agree"], facts["points"]["samples"]) == (keep.sum(), 16)
        assert ("warning" in facts["points"]) == (keep.sum() < 3)
        assert facts["label_names"] == {"nodule": 1}
        np.testing.assert_array_equal(click(slicer, id, foreground, background, what="sample 1")[0], samples[keep][0])
        assert sum(share["frequency"] for share in facts["representatives"]) == 1
        assert max(share["sample"] for share in facts["representatives"]) <= keep.sum()
        assert (
            facts["measurements"] == one_facts["measurements"]
        )  # of all samples: points do not change how likely it is
        assert facts["points"]["measurements"]["nodule"]["finding_probability"] == 1
    assert mask[tuple(EDGE)] == 1  # brighter than RARE, so marked wherever that is
    outside = [X, Y + 6, K]
    for foreground, background in ([[INNER, outside], []], [[INNER], [INNER]], [[INNER, [X, Y, K + 1]], []]):
        status, detail = refused(library, click, slicer, id, foreground, background)
        assert (status, detail.split(":")[0]) == (400, "foreground, background")
    assert refused(library, click, slicer, id, [], [EDGE])[1].startswith("foreground: a point")
    assert refused(library, click, slicer, id, [INNER], [[999, 0, 0]])[1].startswith("background: the voxel")
    slicer.remove_session(id)
    assert refused(library, slicer.get_session, id)[0] == 404


def test_a_segment_gets_its_own_target(library, files, tmp_path):
    """3D Slicer fills the segment that is chosen, whatever the values of the label map are."""
    folder.save(Blur().build(make_spec((16, 16), targets=("liver", "tumour"))), tmp_path / "two")
    with serving(tmp_path / "two", [files]) as (client, _), listening(client.app) as url:
        slicer = library.MONAILabelClient(url, str(tmp_path), "anna")
        for label, names, values in (
            ("tumour", {"tumour": 1}, {0, 1}),
            ("liver", {"liver": 1}, {0, 1}),
            ("other", {"liver": 1, "tumour": 2}, {0, 2}),
        ):
            params = {"foreground": [INNER], "background": [EDGE], "label": label, "result_extension": ".nrrd"}
            path, facts = slicer.infer("two", "scan", params)
            assert (facts["label_names"], set(np.unique(voxels(path)))) == (names, values)


@pytest.mark.parametrize("windows", [False, True])
def test_a_scan_loaded_in_slicer_is_submitted(slicer, library, server, tmp_path, monkeypatch, windows):
    """Submit label: `PUT /datastore/` with the scan, then the label map, both by the whole path of the file."""
    monkeypatch.chdir(tmp_path)
    start = "C:\\Users\\me\\" if windows else f"{tmp_path}/"  # on POSIX the first is a strange name of a file
    node = "1: CT Thorax 1.0 / B"
    image = scan(tmp_path / "image.nii.gz")
    os.rename(image, f"{start}tmpimage.nii.gz")
    assert slicer.upload_image(f"{start}tmpimage.nii.gz", node) == {"image": node}
    path, labels = label_map(f"{start}tmplabel.nii.gz")
    assert slicer.save_label(node, path, params=dict(LABEL_INFO))["image"] == node
    assert slicer.info()["datastore"] == {"total": 3, "completed": 1, "label_tags": {"final": 1}}
    found = slicer.datastore()["objects"][node]["labels"]["final"]["info"]
    assert (found["client_id"], found["params"]["label_names"]) == ("anna", {"nodule": 1})
    np.testing.assert_array_equal(nibabel.load(slicer.download_label(node, "final")).dataobj, labels)
    _, facts = slicer.infer("blur", node, {"foreground": [INNER]})  # from now on by its name, without a session
    assert facts["measurements"]["nodule"]["finding_probability"] == 1
    (mask,) = (tmp_path / "corrections").glob("masks/anna/nodule/*.nii.gz")
    np.testing.assert_array_equal(nibabel.load(mask).dataobj, labels)
    assert slicer.upload_image(f"{start}tmpimage.nii.gz", node) == {"image": node}  # the same scan: kept once
    other = str(tmp_path / "other.nii.gz")
    Path(other).write_bytes(volume(AFFINE))
    for taken in (node, "scan", "s0"):
        expected = {"image": "s1"} if taken == "scan" else None  # the very image of the command line
        if expected:
            assert slicer.upload_image(other, taken) == expected
        else:
            assert refused(library, slicer.upload_image, other, taken)[0] == 409
    assert slicer.info()["datastore"]["total"] == 3
    sessions = server[1].sessions
    assert len(sessions._all) == 2  # the page's, and that of the image
    for one in sessions._all.values():
        one.seen -= 10**6
    sessions.expire()  # a mask may take its author longer than a session lasts
    assert len(sessions._all) == 1
    assert slicer.save_label(node, path, params=dict(LABEL_INFO))["label"] == node


def test_the_address_may_have_a_token_in_it(library, model, files, tmp_path):
    access = Access(token="secret")
    with serving(model, [files], access=access) as (client, _), listening(client.app) as url:
        slicer = library.MONAILabelClient(f"{url}/token/secret", str(tmp_path), "anna")
        assert slicer.info()["datastore"]["total"] == 2
        assert slicer.upload_image(scan(tmp_path / "own.nii.gz"), "own") == {"image": "own"}
        id = slicer.create_session(scan(tmp_path / "own.nii.gz"))["session_id"]
        assert click(slicer, id, [INNER])[0].any()
        slicer.set_server_url(url)
        with pytest.raises(library.MONAILabelClientException) as error:
            slicer.info()
        assert error.value.status_code == 401


def test_what_a_label_map_means(slicer, library, tmp_path):
    """Two segments of one name are one target; empty segments of models that were not used are no statement."""
    params = {"label_info": [{"name": n, "idx": i} for i, n in enumerate(("nodule", "liver", "nodule"), 1)]}
    path, labels = label_map(tmp_path / "l.nii.gz", value=3, second=1)
    slicer.save_label("scan", path, params=params)
    assert [p.name for p in (tmp_path / "corrections").glob("masks/anna/*")] == ["nodule"]
    found = np.asarray(nibabel.load(slicer.download_label("scan", "final")).dataobj)
    np.testing.assert_array_equal(found > 0, labels > 0)
    slicer.save_label("scan", label_map(path, value=0)[0], tag="empty", params=params)
    assert not np.asarray(nibabel.load(slicer.download_label("scan", "empty")).dataobj).any()
    assert refused(library, slicer.download_label, "scan", "final")[0] == 404  # the rater's later mask took its place
    name = str(tmp_path / "l.seg.nrrd")
    os.rename(path, name)
    assert refused(library, slicer.save_label, "scan", name, params=params)[1].startswith("label: only NIfTI")


def test_the_next_image(slicer, library, client, server, files, tmp_path):
    items = {item["name"]: item["id"] for item in client.get("/api/state").json()["items"]}
    assert list(items) == ["picture", "scan"]
    sample = slicer.next_sample("first", {})
    assert sample["id"] == items["picture"]
    assert sample["name"].startswith("picture-")
    assert sample["name"].endswith(".nii.gz")
    assert client.get("/datastore/image", params={"image": sample["id"]}).content[:2] == b"\x1f\x8b"
    assert slicer.next_sample("disagreement", {})["id"] == items["picture"]  # nothing is known yet
    slicer.upload_image(scan(tmp_path / "own.nii.gz"), "own")  # its samples differ in two voxels
    for name in ("scan", "own"):
        slicer.infer("blur", name, {"foreground": [INNER]})
    segmented(client, items["picture"], [12, 30])
    known = server[1].shared
    assert known[items["scan"]].disagreement == known[items["picture"]].disagreement == 0
    sample = slicer.next_sample("disagreement", {})
    assert (sample["id"], sample["disagreement"] > 0) == ("own", True)
    orders = {tuple(i for i in [slicer.next_sample("random", {"seed": s})["id"]]) for s in range(20)}
    assert len(orders) == 3
    assert len({slicer.next_sample("random", {"seed": 3})["id"] for _ in range(5)}) == 1
    slicer.save_label("own", label_map(tmp_path / "l.nii.gz")[0], params=dict(LABEL_INFO))
    assert slicer.next_sample("disagreement", {})["id"] == items["picture"]
    slicer.save_label(items["scan"], label_map(tmp_path / "l.nii.gz")[0], params=dict(LABEL_INFO))
    assert {slicer.next_sample("random", {"seed": s})["id"] for s in range(5)} == {items["picture"]}
    slicer._client_id = "ben"  # has saved nothing
    assert slicer.next_sample("disagreement", {})["id"] == "own"
    assert refused(library, slicer.next_sample, "best", {})[0] == 404


@pytest.fixture
def kinds(tmp_path):
    """A picture, a stack and a store's case: nothing of these has a place in space."""
    (tmp_path / "kinds").mkdir()
    (tmp_path / "kinds" / "picture.png").write_bytes(picture())
    np.save(tmp_path / "kinds" / "stack.npy", np.random.default_rng(0).random((3, 20, 24), np.float32))
    nibabel.save(nibabel.Nifti1Image(np.eye(20, 24, dtype=np.float32), AFFINE), tmp_path / "kinds" / "plane.nii")
    scan(tmp_path / "kinds" / "scan.nii.gz")
    return [tmp_path / "kinds", make_store(tmp_path)]


def test_a_mask_of_every_kind_of_image_until_all_have_one(library, model, kinds, tmp_path):
    """What 3D Slicer downloads it saves a mask of, on the grid of the download."""
    with serving(model, kinds, corrections=tmp_path / "c") as (client, service):
        service.shared = dict(list(service.shared.items())[:6])
        with listening(client.app) as url:
            slicer, done = library.MONAILabelClient(url, str(tmp_path), "anna"), set()
            while sample := slicer.next_sample("first", {}):
                id = sample["id"]
                image = client.get("/datastore/image", params={"image": id}).content
                image = nibabel.Nifti1Image.from_bytes(gzip.decompress(image))
                labels = np.zeros(image.shape, np.uint8)
                labels[2:5, 3:11] = 1
                nibabel.save(nibabel.Nifti1Image(labels, image.affine), tmp_path / "mask.nii.gz")
                slicer.save_label(id, str(tmp_path / "mask.nii.gz"), params=dict(LABEL_INFO))
                found = nibabel.load(slicer.download_label(id, "final"))
                np.testing.assert_array_equal(found.dataobj, labels)
                np.testing.assert_allclose(found.affine, image.affine)
                moved = image.affine + np.diag([0.5, 0, 0, 0])
                nibabel.save(nibabel.Nifti1Image(labels, moved), tmp_path / "moved.nii.gz")
                assert refused(library, slicer.save_label, id, str(tmp_path / "moved.nii.gz"))[0] == 400
                done.add(service.shared[id].name.split("/")[0])
            assert done == {"picture", "stack", "plane", "scan", "test"}
            assert slicer.info()["datastore"]["completed"] == 6


def test_masks_of_the_page_are_labels_too(slicer, client, library, tmp_path):
    item = item_named(client, "picture")["id"]
    mask = np.zeros((40, 48), np.uint8)
    mask[3:9, 5:7] = 1
    save(client, item, "Ben", mask, target="b", new_target=True)
    save(client, item, "Ben", 1 - mask, target="a", new_target=True)
    assert slicer.info()["datastore"] == {"total": 2, "completed": 1, "label_tags": {"final": 1}}
    info = slicer.datastore()["objects"][item]["labels"]["final"]["info"]
    assert (info["client_id"], info["params"]["label_names"]) == ("Ben", {"b": 1, "a": 2})
    found = np.asarray(nibabel.load(slicer.download_label(item, "final")).dataobj)
    np.testing.assert_array_equal(found[..., 0].T, np.where(mask, 1, 2))
    assert slicer.next_sample("first", {})["id"] == item  # of this client there is none
    (tmp_path / "corrections" / "notes" / "x" / "y").mkdir(parents=True)
    (tmp_path / "corrections" / "notes" / "x" / "y" / "z.json").write_text("{")
    assert slicer.info()["datastore"]["completed"] == 1


def test_what_is_not_offered_is_said(slicer, library, tmp_path):
    assert slicer.train_status(check_if_running=True) is False
    assert refused(library, slicer.train_status)[0] == 404
    assert refused(library, slicer.train_start, "lidc", {})[0] == 406
    assert refused(library, slicer.train_stop)[0] == 406
    assert refused(library, slicer.wsi_infer, "blur", "scan")[0] == 406
    assert refused(library, slicer.infer, "blur", "scan", {}, label_in=scan(tmp_path / "s.nii.gz"))[0] == 406
    assert refused(library, slicer.infer, "blur", "scan", {"foreground": [INNER], "roi": [1, 2]})[0] == 406
    assert refused(library, slicer.infer, "", "scan", {})[1].startswith("model: none given")


def test_every_route_of_monai_label_answers_in_a_sentence(wheel, client):
    """Read from the routes of the real server."""
    asked = 0
    for module in ("activelearning", "batch_infer", "datastore", "infer", "info", "logs", "model", "proxy", "scoring",
                   "session", "train", "wsi_infer", "login", "ohif"):  # fmt: skip
        source = wheel.read(f"monailabel/endpoints/{module}.py").decode()
        prefix = re.search(r'prefix="(.*?)"', source)[1]
        routes = re.findall(r'@router\.(get|put|post|delete|head|patch)\(\s*"(.*?)"', source)
        assert routes, module
        for method, path in routes:
            path = re.sub(r"\{.*?\}", "x", prefix + path)
            answer = client.request(method.upper(), path)
            asked += 1
            assert answer.status_code != 405, (method, path)
            if answer.status_code != 200 and method != "head":
                assert answer.json()["detail"] not in ("", "Not Found"), (method, path)
    assert asked > 40

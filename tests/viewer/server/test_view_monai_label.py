"""The flow of 3D Slicer's and OHIF's MONAI Label clients; the click, the masks and the label map in one place."""

import gzip
import io
import json
from email.parser import BytesParser
from email.policy import HTTP

import nibabel
import numpy as np
import pydicom
import pytest
from dicom_writer import write_slice
from view_server import POINT, item_named, picture, serving, volume

from berdiff.data.input_spec import InputSpec
from berdiff.inference.inputs import Input
from berdiff.methods import folder
from berdiff_viewer.server.common import Limits
from berdiff_viewer.server.grid import upright_place
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.work import Images
from fakes import Blur, make_spec
from refusals import refused

TURN = np.array([[0.1, -0.8, 0.6], [0.98, 0.15, 0.05], [-0.13, 0.58, 0.8]])  # near a rotation, along no axis
OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = np.linalg.svd(TURN)[0] @ np.linalg.svd(TURN)[2] @ np.diag([0.8, 1.1, 2.5])
OBLIQUE[:3, 3] = -40, 25, 310
EMPTY = dict.fromkeys(("PatientName", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID"), "")
EMPTY |= dict.fromkeys(("AccessionNumber", "ReferringPhysicianName", "Manufacturer", "PositionReferenceIndicator"), "")
EMPTY |= {"SeriesNumber": 1, "FrameOfReferenceUID": "1.2.9"}


def parsed(answer):
    """(params, file name, content) of a multipart answer, by Python's own parser."""
    assert answer.status_code == 200, answer.text
    head = f"Content-Type: {answer.headers['content-type']}\r\n\r\n".encode()
    params, image = BytesParser(policy=HTTP).parsebytes(head + answer.content).iter_parts()
    assert params.get_param("name", header="content-disposition") == "params"
    return json.loads(params.get_payload(decode=True)), image.get_filename(), image.get_payload(decode=True)


def infer(client, params, model="blur", **query):
    return client.post(f"/infer/{model}", params=query, data={"params": json.dumps(params)})


def new_session(client, name, content):
    answer = client.put("/session/", files=[("files", (name, content))], data={"client_id": "user-1"})
    assert answer.status_code == 200, answer.text
    return answer.json()["session_id"]


@pytest.mark.parametrize("affine", [OBLIQUE, np.diag([-2.0, 1.5, -3, 1]), OBLIQUE[:, [2, 0, 1, 3]]])
def test_a_click_in_slicer_is_marked_where_it_was(client, affine):
    """The point is a voxel (i, j, k) of the file. It is bright; what is bright around it is marked."""
    id = new_session(client, "scan.nii.gz", volume(affine, (40, 50, 20)))
    params, name, content = parsed(infer(client, {"foreground": [POINT.tolist()]}, session_id=id, image="x"))
    assert name == "label.nii.gz"
    assert params["label_names"] == {"nodule": 1}
    assert params["measurements"]["nodule"]["finding_probability"] == 1
    label = nibabel.Nifti1Image.from_bytes(gzip.decompress(content))
    np.testing.assert_allclose(label.affine, affine, atol=1e-5)
    marked = np.argwhere(np.asarray(label.dataobj))
    assert len(marked) == 9  # all of the 3x3x1 bright voxels, whichever plane the slices are
    np.testing.assert_array_equal(marked.mean(0), POINT)
    at = nibabel.affines.apply_affine(label.affine, marked.mean(0))
    np.testing.assert_allclose(at, nibabel.affines.apply_affine(affine, POINT), atol=1e-4)


def test_a_session_is_of_whoever_knows_it(client):
    id = new_session(client, "scan.nii.gz", volume(OBLIQUE))
    name = client.get(f"/session/{id}").json()["image"]
    other = new_session(client, "tmpq7x.nii.gz", volume(OBLIQUE))  # 3D Slicer calls its file anew each time
    assert client.get(f"/session/{other}").json()["image"] == name
    other = new_session(client, "scan.nii.gz", volume(OBLIQUE, point=(5, 5, 5)))
    assert client.get(f"/session/{other}").json()["image"] != name
    assert name not in client.get("/datastore/?output=all").text + client.get("/api/state").text
    assert client.delete(f"/session/{id}").status_code == 200
    for answer in (
        client.get(f"/session/{id}"),
        client.delete(f"/session/{id}"),
        infer(client, {"foreground": [POINT.tolist()]}, session_id=id),
    ):
        assert answer.status_code == 404


def test_which_mask_and_in_which_form(client):
    point = {"foreground": [POINT.tolist()], "samples": "6", "client_id": "user-1"}  # numbers may come as text
    masks = {}
    for what in ("majority", "representative 1", "sample 1", "sample 6"):
        params, _, content = parsed(infer(client, {**point, "what": what}, image="scan"))
        assert params["what"] == what
        masks[what] = np.asarray(nibabel.Nifti1Image.from_bytes(gzip.decompress(content)).dataobj)
        assert masks[what].sum() == 9
    image = infer(client, {**point, "result_extension": ".nrrd", "result_dtype": "uint16", "result_compress": False},
                  image="scan", output="image")  # fmt: skip
    header, _, data = image.content.partition(b"\n\n")
    lines = dict(line.split(": ", 1) for line in header.decode().splitlines()[1:])
    assert (lines["type"], lines["sizes"], lines["encoding"]) == ("uint16", "40 50 12", "raw")
    assert lines["space directions"] == "(-2.0,0.0,0.0) (0.0,-2.0,0.0) (0.0,0.0,3.0)"  # left, back, up
    values = np.frombuffer(data, "<u2").reshape((40, 50, 12), order="F")
    np.testing.assert_array_equal(values, masks["majority"])
    facts = infer(client, point, image="scan", output="json").json()
    assert len(facts["representatives"]) == 1
    assert gzip.decompress(infer(client, point, image="scan", output="image").content)[344:348] == b"n+1\0"


def test_what_makes_no_sense_is_one_sentence(client):
    point = {"foreground": [POINT.tolist()]}
    for params, query, status, sentence in [
        ({}, {"image": "scan"}, 400, "foreground: "),
        ({"foreground": [[100, 3, 3]]}, {"image": "scan"}, 400, "foreground: the voxel"),
        ({"foreground": [["a"]]}, {"image": "scan"}, 400, "params.foreground.0"),
        ({"foreground": 5}, {"image": "scan"}, 400, "params.foreground"),
        ({**point, "what": "best"}, {"image": "scan"}, 400, "params.what: "),
        ({**point, "what": "sample 99"}, {"image": "scan"}, 400, "what: sample 99 "),
        ({**point, "samples": 10**9}, {"image": "scan"}, 400, "params.samples: "),
        (point, {"image": "/etc/passwd"}, 404, "image: "),
        (point, {"image": ""}, 404, "image: "),
        (point, {"image": "scan", "output": "dicom_seg"}, 400, "scan: only of a DICOM"),
        (point, {"image": "scan", "output": "other"}, 422, "output: "),
    ]:
        answer = infer(client, params, **query)
        assert answer.status_code == status, answer.text
        assert answer.json()["error"].startswith(sentence)
    assert infer(client, point, model="none", image="scan").status_code == 404
    assert client.post("/infer/blur?image=scan", data={"params": "{"}).status_code == 400
    assert client.post("/infer/blur?image=scan", data={"params": "[1]"}).status_code == 400
    two = [("files", ("a.png", picture())), ("files", ("b.png", picture()))]
    assert client.put("/session/", files=two).json()["error"].startswith("files: these are 2 images")


def test_a_file_beside_the_click_leaves_nothing(server):
    client, service = server
    before = len(service.sessions._all)
    files = {"file": ("own.nii.gz", volume(OBLIQUE))}
    answer = client.post(
        "/infer/blur?image=own", data={"params": json.dumps({"foreground": [POINT.tolist()]})}, files=files
    )
    _, _, content = parsed(answer)
    assert np.asarray(nibabel.Nifti1Image.from_bytes(gzip.decompress(content)).dataobj).any()
    assert len(service.sessions._all) == before
    assert not list(service.folder.rglob("*.nii*"))


def test_a_click_in_a_dicom_series_and_its_seg(tmp_path):
    """The client has the NIfTI file that the server makes of the series; DICOM's tags say where its voxels are."""
    spec = InputSpec((16, 16), ("ct",), ("nodule",), make_spec(rule="window", window=(-1000.0, 400.0)).intensity)
    folder.save(Blur(spread=0.1).build(spec), tmp_path / "windowed")
    for n, z in enumerate((7.5, 2.5, 5.0, 0.0)):  # in no order
        stored = np.zeros((24, 30), np.int16)
        if z == 5.0:
            stored[10:13, 17:20] = 2000
        write_slice(tmp_path / "ct" / f"{n}.dcm", stored, z, spacing=(0.5, 0.8), **EMPTY)
    with serving(tmp_path / "windowed", [tmp_path / "ct"]) as (client, _):
        assert item_named(client, "ct")["shape"] == [4, 24, 30]
        image = nibabel.Nifti1Image.from_bytes(gzip.decompress(client.get("/datastore/image?image=ct").content))
        ijk = np.argwhere(np.asarray(image.dataobj) > 0).mean(0)
        query = {"model": "windowed", "image": "ct"}
        _, _, content = parsed(infer(client, {"foreground": [ijk.tolist()]}, **query))
        label = nibabel.Nifti1Image.from_bytes(gzip.decompress(content))
        np.testing.assert_allclose(label.affine, image.affine)
        np.testing.assert_array_equal(np.asarray(label.dataobj) > 0, np.asarray(image.dataobj) > 0)
        lps = np.array([-100.0, -120, 5.0]) + (18 * 0.8, 11 * 0.5, 0)
        np.testing.assert_allclose(nibabel.affines.apply_affine(label.affine, ijk), lps * (-1, -1, 1), atol=1e-4)
        seg = infer(client, {"foreground": [ijk.tolist()]}, **query, output="dicom_seg")
        assert seg.headers["content-type"] == "application/dicom"
        assert pydicom.dcmread(io.BytesIO(seg.content)).pixel_array.sum() == 9


def test_opened_images_are_kept_up_to_a_size(tmp_path):
    items = []
    for number in range(3):
        path = tmp_path / f"{number}.nii.gz"
        path.write_bytes(volume(np.eye(4)))
        items.append(Item(f"s{number}", Input(str(number), (path,)), ""))
    images = Images(Limits(images_bytes=2 * 40 * 50 * 12 * 4))
    files = [images.file(item) for item in items]
    assert images.file(items[2]) is files[2]
    assert images.file(items[1]) is files[1]
    assert images.file(items[0]) is not files[0]  # the least recently used had to go


@pytest.mark.parametrize("seed", range(8))
def test_a_voxel_of_the_file_is_found_in_the_upright_array(tmp_path, seed):
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = turn * rng.uniform(0.5, 3, 3), rng.normal(size=3) * 100
    shape = (7, 9, 11)
    stored = rng.permutation(np.prod(shape)).reshape(shape).astype(np.int32)
    nibabel.save(nibabel.Nifti1Image(stored, affine), tmp_path / "scan.nii")
    file = Images(Limits()).file(Item("s0", Input("scan", (tmp_path / "scan.nii",)), ""))
    upright = file.values[0]
    for ijk in np.argwhere(stored >= 0)[::37]:
        assert upright[tuple(upright_place(ijk, file.grid.source, upright.shape))] == stored[tuple(ijk)]
    for bad in ((7, 0, 0), (-1, 0, 0), (0, 0, 11)):
        with refused("foreground", code="place"):
            upright_place(bad, file.grid.source, upright.shape)

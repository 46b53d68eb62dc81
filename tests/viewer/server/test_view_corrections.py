"""Raters' masks from the viewer: saved so that they can be prepared, trained on and told apart."""

import base64
import gzip
import json

import nibabel
import numpy as np
import pytest
from dicom_writer import write_slice
from view_server import item_named, picture, segmented, serving, upload, volume

from berdiff.data.prepare import prepare
from berdiff.data.sources import folder as folder_source
from berdiff.data.store import open_store
from berdiff.methods import folder
from fakes import Blur, make_spec, make_store
from refusals import refused


def packed(mask):
    return base64.b64encode(gzip.compress(np.ascontiguousarray(mask, np.uint8).tobytes())).decode()


def save(client, item, name, mask, target="nodule", status=201, **more):
    body = {"name": name, "target": target, "mask": packed(mask), **more}
    answer = client.post(f"/api/items/{item}/raters", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def prepared(root, out, **options):
    prepare("folder", root, out, folder_source.Options(**options))
    return open_store(out)


def test_pictures_corrected_by_two_raters_become_a_store(server, tmp_path):
    client, _ = server
    item = item_named(client, "picture")["id"]
    anna, ben = np.zeros((2, 40, 48), np.uint8)
    anna[10:15, 28:33] = ben[9:16, 28:33] = 1
    job = segmented(client, item, [12, 30])
    saved = save(client, item, "Anna B.", anna, job=job, sample=3)
    assert saved["missing"] == []
    assert [name.split("/")[0] for name in saved["saved"]] == ["images", "masks", "notes"]
    save(client, item, "ben", ben * 0)
    save(client, item, "ben", ben)  # the later one counts
    (again,) = upload(client, ("picture.png", picture()))
    assert save(client, again["id"], "carl", anna)["saved"][0].startswith("masks/carl/nodule/picture-")  # the same case
    root = tmp_path / "corrections"
    store = prepared(root, tmp_path / "s.zarr")
    image, masks = store.read([0])
    assert (len(store), store.targets, store.cases.raters.tolist()) == (1, ("nodule",), [3])
    np.testing.assert_array_equal(masks[0, :, 0], [anna, ben, anna])
    assert image[0, 0, 12, 30] == 1
    (note,) = (json.loads(path.read_text()) for path in root.glob("notes/Anna-B/*/*.json"))
    assert (note["rater"], note["target"], note["image"]) == ("Anna B.", "nodule", "picture")
    assert note["corrected_from"]["sample"] == 3
    assert note["corrected_from"]["settings"]["model"] == "blur"
    assert note["saved"].endswith("+00:00")


def test_volumes_of_any_orientation_and_dicom_series(model, tmp_path):
    root, affine = tmp_path / "corrections", np.diag([-2.0, 1.5, -3, 1])[:, [1, 0, 2, 3]]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "scan.nii.gz").write_bytes(volume(affine))
    for z in range(3):
        pixels = np.zeros((50, 40), np.int16)
        pixels[20, 10 + z] = 2000
        write_slice(tmp_path / "in" / "ct" / f"{z}.dcm", pixels, 2.5 * z, PatientName="Smith^John")
    with serving(model, [tmp_path / "in"], corrections=root) as (client, service):
        for name in ("scan", "ct"):
            item = item_named(client, name)
            shown = service.images.shown(service.shared[item["id"]])
            mask = (shown.image[0] > 0.5).astype(np.uint8)
            assert mask.sum() == (9 if name == "scan" else 3)
            save(client, item["id"], "anna", mask)
    assert b"Smith" not in b"".join(path.read_bytes() for path in root.rglob("*") if path.is_file())
    store = prepared(root, tmp_path / "s.zarr", size=(50, 50), window=(0.0, 1.0))
    images, masks = store.read(np.arange(len(store)))
    assert len(store) == 1 + 3  # those that the masks mark
    assert masks.any((1, 2, 3, 4)).all()
    for image, mask in zip(images[:, 0], masks[:, 0, 0], strict=True):
        np.testing.assert_array_equal(mask == 1, image > 0.9)  # each mask lies on what it marks


def test_a_stores_case_and_a_stack(model, tmp_path):
    np.save(tmp_path / "stack.npy", np.random.default_rng(0).random((3, 16, 16), np.float32))
    for path, shape in ((make_store(tmp_path), (16, 16)), (tmp_path / "stack.npy", (3, 16, 16))):
        root = tmp_path / f"corrections {len(shape)}"
        mask = np.zeros(shape, np.uint8)
        mask[..., 3:7, 5] = 1
        with serving(model, [path], corrections=root) as (client, _):
            save(client, client.get("/api/state").json()["items"][0]["id"], "anna", mask)
        store = prepared(root, tmp_path / f"{len(shape)}.zarr")
        _, masks = store.read(np.arange(len(store)))
        np.testing.assert_array_equal(masks[:, 0, 0], mask.reshape(-1, 16, 16))


def put_labels(client, values, image="scan", step=3.0, **names):
    """`names`: segment -> value, as 3D Slicer sends them."""
    label = values
    if not isinstance(values, bytes):
        label = gzip.compress(nibabel.Nifti1Image(values, np.diag([2.0, 2, step, 1])).to_bytes())
    params = {"label_info": [{"name": name, "idx": value} for name, value in names.items()], "client_id": "anna"}
    files, data = {"label": ("label.nii.gz", label)}, {"params": json.dumps(params)}
    return client.put("/datastore/label", params={"image": image}, data=data, files=files)


def test_a_label_map_from_slicer(server, tmp_path):
    client, service = server
    labels = np.zeros((40, 50, 12), np.uint8)
    labels[19:22, 32:35, 7] = 1
    answer = put_labels(client, labels, nodule=1)
    assert answer.status_code == 200, answer.text
    assert answer.json()["image"] == "scan"
    store = prepared(tmp_path / "corrections", tmp_path / "s.zarr", window=(0.0, 1.0))
    assert len(store) == 1  # the slice that is marked, of 12
    images, masks = store.read([0])
    np.testing.assert_array_equal(masks[:, 0, 0] == 1, images[:, 0] > 0.5)
    assert "mm apart from" in put_labels(client, labels, step=4.0, nodule=1).json()["error"]
    assert "40x50x11" in put_labels(client, labels[..., 1:], nodule=1).json()["error"]
    assert "the values [2]" in put_labels(client, labels * 2, nodule=1).json()["error"]
    assert put_labels(client, labels, image="none").status_code == 404
    assert put_labels(client, b"junk").status_code == 400
    assert client.put("/datastore/label?image=scan", data={"params": "{"}).status_code == 422
    assert len([path for path in service.folder.rglob("*") if path.is_file()]) == 1  # the lock


@pytest.fixture
def stack(model, tmp_path):
    """(a function that saves a rater's mask of a stack of 16 slices, the folder of corrections)"""
    (tmp_path / "in").mkdir()
    np.save(tmp_path / "in" / "scan.npy", np.random.default_rng(0).random((16, 16, 16), np.float32))
    with serving(model, [tmp_path / "in"], corrections=tmp_path / "corrections") as (client, _):
        item = item_named(client, "scan")["id"]
        yield lambda *given, **more: save(client, item, *given, **more), tmp_path / "corrections"


def painted(*places):
    mask = np.zeros((16, 16, 16), np.uint8)
    for z, y in places:
        mask[z, y, 4:9] = 1
    return mask


def shown(store):
    """slice -> the raters' marked pixels."""
    masks = store.read(np.arange(len(store)))[1].sum((2, 3, 4))
    rows = zip(store.cases.case, store.cases.raters, masks, strict=True)
    return {int(name[-3:]): marked[:count].tolist() for name, count, marked in rows}


def note_of(root, rater):
    (path,) = root.glob(f"notes/{rater}/nodule/*.json")
    return json.loads(path.read_text())


def test_one_painted_slice_of_sixteen_is_one_case(stack, tmp_path):
    saved, root = stack
    saved("anna", painted((5, 3)))
    assert shown(prepared(root, tmp_path / "one.zarr", missing_raters=True)) == {5: [5]}
    # what a model marked in other slices is nobody's; an empty slice that was looked at is one without a finding
    saved("ben", painted((2, 3), (5, 3), (6, 3), (6, 4)), slices=[9, 6, 6, 5])
    assert shown(prepared(root, tmp_path / "two.zarr", missing_raters=True)) == {5: [5, 5], 6: [10], 9: [0]}
    assert note_of(root, "ben")["slices"] == [5, 6, 9]


def test_a_later_mask_takes_the_place_of_the_earlier_one_in_its_slices_alone(stack, tmp_path):
    """Another nodule of the same scan, corrected later: what was saved of the first one stays."""
    saved, root = stack
    saved("anna", painted((2, 3), (5, 3)), slices=[2, 5])
    saved("anna", painted((5, 4), (9, 3)), slices=[5, 9])
    assert shown(prepared(root, tmp_path / "store.zarr")) == {2: [5], 5: [5], 9: [5]}
    (mask,) = root.glob("masks/anna/nodule/*")
    assert note_of(root, "anna")["slices"] == [2, 5, 9]
    np.testing.assert_array_equal(np.load(mask) > 0, painted((2, 3), (5, 4), (9, 3)) > 0)


def test_what_nobody_looked_at_is_nobodys_and_an_empty_mask_says_nothing_is_there(stack):
    saved, root = stack
    saved("anna", painted((3, 3), (4, 3)), slices=[3])  # slice 4 is the model's
    saved("ben", painted())
    (mask,) = root.glob("masks/anna/nodule/*")
    np.testing.assert_array_equal(np.load(mask) > 0, painted((3, 3)) > 0)
    note = next(root.glob("notes/anna/nodule/*.json"))
    old = {name: value for name, value in json.loads(note.read_text()).items() if name != "slices"}
    note.write_text(json.dumps(old))  # as 0.2.0 wrote it: of all slices
    saved("anna", painted((2, 3)), slices=[2])
    np.testing.assert_array_equal(np.load(mask) > 0, painted((2, 3), (3, 3)) > 0)
    assert note_of(root, "ben")["slices"] == list(range(16))


def test_slices_are_those_of_the_image(stack, server, tmp_path):
    saved, root = stack
    flat = item_named(server[0], "picture")["id"]
    assert save(server[0], flat, "anna", np.ones((40, 48)), slices=[0], status=400)["error"].startswith("slices: ")
    for slices in ([16], [3, 99]):
        assert saved("anna", painted((3, 3)), slices=slices, status=400)["error"].startswith("slices: ")
    saved("anna", painted((3, 3)), slices=[-1], status=422)
    assert not root.exists()
    saved("anna", painted(), slices=[])
    with refused("notes"):
        prepared(root, tmp_path / "none.zarr")


def test_a_new_target_is_asked_for_once(server, tmp_path):
    client, _ = server
    item, mask = item_named(client, "picture")["id"], np.ones((40, 48), np.uint8)
    sentence = save(client, item, "anna", mask, target="Segment 1", status=409)["error"]
    assert "nodule" in sentence
    assert "Segment 1" in sentence
    assert not (tmp_path / "corrections").exists()
    save(client, item, "anna", mask, target="lesion", new_target=True)
    save(client, item, "ben", mask, target="lesion")
    save(client, item, "ben", mask, target="Segment 1", status=409)


def test_a_segment_of_another_name_is_the_only_target(server, tmp_path):
    client, _ = server
    labels = np.zeros((40, 50, 12), np.uint8)
    labels[20, 30, 7], labels[10, 30, 3] = 1, 2
    answer = put_labels(client, labels, nodule=1, Segment_2=2)
    assert answer.status_code == 400
    assert "called nodule, not Segment_2" in answer.json()["error"]
    assert put_labels(client, labels * 0, Segment_1=1).status_code == 400
    assert not (tmp_path / "corrections").exists()
    assert put_labels(client, labels * (labels == 1), Segment_1=1, Segment_2=2).status_code == 200
    assert [path.name for path in (tmp_path / "corrections" / "masks").glob("*/*")] == ["nodule"]
    store = prepared(tmp_path / "corrections", tmp_path / "s.zarr", window=(0.0, 1.0))
    assert (len(store), int(store.read([0])[1].sum())) == (1, 1)


def test_several_targets_say_what_is_missing(tmp_path, files):
    folder.save(Blur().build(make_spec((16, 16), targets=("liver", "tumour"))), tmp_path / "two")
    with serving(tmp_path / "two", [files]) as (client, _):
        assert client.get("/api/state").json()["corrections"] is False
        item, mask = item_named(client, "picture")["id"], np.zeros((40, 48))
        assert "--corrections" in save(client, item, "anna", mask, target="liver", status=409)["error"]
    with serving(tmp_path / "two", [files], corrections=tmp_path / "c") as (client, _):
        item = item_named(client, "picture")["id"]
        mask = np.zeros((40, 48), np.uint8)
        assert save(client, item, "anna", mask, target="tumour")["missing"] == ["liver"]
        assert save(client, item, "anna", mask + 1, target="liver")["missing"] == []
    store = prepared(tmp_path / "c", tmp_path / "s.zarr")
    assert store.targets == ("liver", "tumour")

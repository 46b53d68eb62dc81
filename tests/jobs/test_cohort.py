"""Findings and cohorts: each result by itself, tables and volumes of all of them, whoever segmented what."""

import base64
import csv
import gzip
import hashlib
import io
import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image
from test_segmentation import tree

from berdiff.files import lock
from berdiff.inference.inputs import find_inputs, take_part
from berdiff.inference.region import Region
from berdiff.inference.settings import FindingOptions, SegmentSettings
from berdiff.jobs import cohort
from berdiff.jobs.case_files import combined_majority, combined_saliency
from berdiff.jobs.findings import Finding, open_findings
from berdiff.jobs.run import Outcome, SegmentationJob
from berdiff.jobs.store import LOCK, ResultFiles, ResultStore
from berdiff.output import exports
from berdiff.output.formats import OutputSettings
from berdiff.remote import filesystem
from fakes import bright_model, make_spec
from refusals import refused

AFFINE = np.diag([-0.8, -0.8, 2.0, 1])


def volume(path: Path, seed: int, shape=(40, 36, 9)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).normal(100, 40, shape).astype(np.int16)
    nibabel.save(nibabel.Nifti1Image(values, AFFINE), path)


@pytest.fixture
def scans(tmp_path) -> Path:
    """Three volumes and a picture, seven findings; two of one volume overlap."""
    folder = tmp_path / "in"
    for i, name in enumerate("abc"):
        volume(folder / f"{name}.nii.gz", i)
    Image.fromarray(np.random.default_rng(9).integers(0, 256, (30, 40), dtype=np.uint8)).save(folder / "p.png")
    rows = ["a,4,10,12,one", "a,5,14,15,two", "a,1,30,25,three", "b,8,20,20,", "c,0,9,9,", "p,,15,20,left", "p,,16,33,"]
    (tmp_path / "c.csv").write_text("case,z,y,x,finding\n" + "\n".join(rows) + "\n")
    return folder


NAMES = ["a/one", "a/two", "a/three", "b/finding-1", "c/finding-1", "p/left", "p/finding-2"]


def segment(inputs: Path, out, part=None, centers=None, kinds=("json",), anonymous=False, **changes) -> Outcome:
    model = bright_model(make_spec(rule="percentiles"))
    settings = SegmentSettings(**{"samples": 3, "region": Region(extent=4.0), **changes})
    table = centers or inputs.parent / "c.csv"
    source = open_findings(FindingOptions(centers=table), Region())
    assert source is not None
    items = source.choose(find_inputs([inputs]), True)
    job = SegmentationJob(model, settings, OutputSettings(out, kinds, anonymous=anonymous), findings=source)
    return job.segment(items if part is None else take_part(items, part))


def test_each_finding_is_a_result_and_the_volume_has_all_of_them(scans, tmp_path):
    out = tmp_path / "out"
    outcome = segment(scans, out, kinds=("saliency", "json"))
    assert outcome.done == NAMES
    assert not outcome.failed
    model = bright_model(make_spec(rule="percentiles"))
    parts = []
    for name, center in (("one", (4, 10, 12)), ("two", (5, 14, 15)), ("three", (1, 30, 25))):
        region = Region(center, extent=4.0)
        (item,) = find_inputs([scans / "a.nii.gz"])
        settings = SegmentSettings(3, region=region)
        opened = replace(model.open(item, settings), name=f"a/{name}")
        (result,) = model.results([opened], settings)
        parts.append(result.whole(result.saliency)[0])
        facts = json.loads((out / "a" / name / "result.json").read_text())
        assert facts["measurements"] == result.measurements()
        assert facts["settings"]["region"]["center"] == list(center)
        first = max(0, center[0] - 2)
        assert facts["region"][0] == [first, center[0] + 3]
        written = np.asarray(nibabel.load(out / "a" / name / "saliency.nii.gz").dataobj).T
        np.testing.assert_allclose(written, parts[-1])
    both = (parts[0] > 0) & (parts[1] > 0) & (parts[0] != parts[1])
    assert both.any(), "two of them overlap"
    whole = nibabel.load(out / "a" / "saliency.nii.gz")
    np.testing.assert_array_equal(whole.affine, nibabel.load(scans / "a.nii.gz").affine)
    np.testing.assert_allclose(np.asarray(whole.dataobj).T, np.maximum.reduce(parts))
    mask = np.asarray(nibabel.load(out / "a" / "mask.nii.gz").dataobj).T
    np.testing.assert_array_equal(mask, np.logical_or.reduce([part > 0.5 for part in parts]))
    facts = json.loads((out / "a" / "findings.json").read_text())
    assert [one["name"] for one in facts["findings"]] == ["one", "two", "three"]
    assert facts["frame"] == "RAS"
    np.testing.assert_allclose(facts["findings"][0]["center_mm"], [-0.8 * 12, -0.8 * 10, 8], rtol=1e-6)
    with (out / "a" / "findings.csv").open() as file:
        row = next(csv.DictReader(file))
    assert (row["finding"], row["z"], row["x_mm"][:4]) == ("one", "4", "-9.6")
    assert sorted(path.name for path in (out / "p").iterdir()) == ["finding-2", "findings.csv", "findings.json", "left"]
    assert json.loads((out / "p/findings.json").read_text())["findings"][0]["center_mm"] is None


def test_resumed_in_parts_and_in_any_order_gives_the_same_bytes(scans, tmp_path):
    segment(scans, tmp_path / "once")
    expected, out = tree(tmp_path / "once"), tmp_path / "out"
    done = [segment(scans, out, part=(i, 3)).done for i in (3, 1, 2)]
    assert sorted(name for part in done for name in part) == sorted(NAMES)
    assert tree(out) == expected
    for gone in ("a/findings.json", "cohort.html"):  # as if killed before it
        (out / gone).unlink()
    again = segment(scans, out)
    assert (again.done, sorted(again.skipped)) == ([], sorted(NAMES))
    assert tree(out) == expected
    table = (tmp_path / "c.csv").read_text()
    (tmp_path / "c.csv").write_text(table + "b,2,20,20,more\n")  # one more of a case that was done
    assert segment(scans, out).done == ["b/more"]
    assert [f["name"] for f in json.loads((out / "b/findings.json").read_text())["findings"]] == ["finding-1", "more"]
    (tmp_path / "c.csv").write_text(table.replace("a,4,10,12,one", "a,4,10,13,one"))
    outcome = segment(scans, out)
    assert list(outcome.failed) == ["a/one"]
    assert "a/one: the files there are not of" in outcome.failed["a/one"]


def test_bad_findings_and_cases_fail_alone_each_time(scans, tmp_path):
    rows = ["a,4,10,12,one", "a,99,1,1,far", "b,99,1,1,far", "x,1,1,1,", "p,,15,20,"]
    (tmp_path / "c.csv").write_text("case,z,y,x,finding\n" + "\n".join(rows) + "\n")
    for done, skipped in ((["a/one", "p/finding-1"], []), ([], ["a/one", "p/finding-1"])):
        outcome = segment(scans, tmp_path / "out")
        assert (outcome.done, outcome.skipped) == (done, skipped)
        assert list(outcome.failed) == ["a/far", "b/far", "x"]
        assert all("\n" not in sentence for sentence in outcome.failed.values())
    assert list(json.loads((tmp_path / "out/a/findings.json").read_text())["failed"]) == ["far"]
    assert not (tmp_path / "out/b").exists()
    with refused("findings: there 'centers', now None", code="changed"):
        SegmentationJob(
            bright_model(make_spec(rule="percentiles")),
            SegmentSettings(3, region=Region(extent=4.0)),
            OutputSettings(tmp_path / "out", ("json",)),
        )


def test_one_pool_at_a_time_and_the_volume_is_read_once(scans, tmp_path, monkeypatch):
    import weakref

    from berdiff.inference import opening

    reads, pools = [], []
    monkeypatch.setattr(opening, "read_images", lambda *a, real=opening.read_images: (reads.append(a), real(*a))[1])

    def write(result, *rest, real=exports.write):
        alive = [pool for pool in pools if pool() is not None]
        assert not alive, "the pool of the finding before it is gone"
        pools.append(weakref.ref(result.pool))
        return real(result, *rest)

    monkeypatch.setattr(exports, "write", write)
    segment(scans, tmp_path / "out")
    assert len(reads) == 4
    assert len(pools) == 7


def test_combined_exclusive_targets_do_not_overlap(tmp_path):
    rng = np.random.default_rng(0)
    found = [Finding("x", (0, 0, 0)), Finding("y", (0, 0, 0))]
    for one, first in zip(found, ([0, 0, 0], [1, 2, 1]), strict=True):
        (tmp_path / one.name).mkdir()
        saliency = rng.random((2, 2, 4, 4), np.float32)
        majority = np.stack([saliency[0] >= saliency[1], saliency[0] < saliency[1]]).astype(np.uint8)
        np.savez(tmp_path / one.name / "crop.npz", first=np.array(first), saliency=saliency, majority=majority)
    saliency = combined_saliency(ResultFiles(tmp_path.parent), tmp_path.name, found, 2, (3, 6, 6))
    union = combined_majority(ResultFiles(tmp_path.parent), tmp_path.name, found, saliency, exclusive=False)
    majority = combined_majority(ResultFiles(tmp_path.parent), tmp_path.name, found, saliency, exclusive=True)
    assert union.sum(0).max() == 2
    np.testing.assert_array_equal(majority.sum(0), union.any(0))
    clash = union.sum(0) == 2
    np.testing.assert_array_equal(majority[1][clash], (saliency[1] > saliency[0])[clash])


# --- the cohort ------------------------------------------------------------------------------------------------------


def make_done(root: Path, name: str, disagreement, notes=("not for clinical use",), files=("overlay.png",)) -> None:
    quantiles = {"q05": 1.0, "q50": 2.0, "q95": 3.5}
    measured = {"finding_probability": 0.5, "empty_share": 0.5, "disagreement": disagreement}
    measured["area"] = {"unit": "mm^2", **quantiles}
    measured["longest_diameter"] = {"unit": "mm", **quantiles}
    sizes = dict.fromkeys([*files, "thumbnail.png"], 0)
    done = {"name": name, "case": name, "finding": None, "sources": [], "files": sizes}
    folder = root / name
    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    Image.new("L", (4, 4)).save(buffer, "PNG")
    (folder / "thumbnail.png").write_bytes(buffer.getvalue())
    (folder / "done.json").write_text(json.dumps({**done, "measurements": {"nodule": measured}, "notes": list(notes)}))


def test_ranked_by_disagreement_escaped_and_sealed(tmp_path):
    hostile = "<img src=x onerror=alert(1)> 50% #1?"
    make_done(tmp_path, "calm", 0.0)
    make_done(tmp_path, "one sample", None)
    make_done(tmp_path, hostile, 0.75, ("not for clinical use", "<b>simulated</b>"))
    make_done(tmp_path, "same", 0.75, files=("report.html", "panel.png"))
    assert cohort.write_cohort(ResultFiles(tmp_path))
    page = tmp_path / "cohort.html"
    with (tmp_path / "cohort.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["case"] for row in rows] == [hostile, "same", "calm", "one sample"]
    assert [row["disagreement"] for row in rows] == ["0.75", "0.75", "0.0", ""]
    assert (rows[1]["picture"], rows[1]["size"], rows[1]["size_q95"]) == ("same/report.html", "area", "3.5")
    text = page.read_text()
    assert "<img src=x" not in text
    assert "<b>simulated" not in text
    assert 'href="./%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%2050%25%20%231%3F/overlay.png"' in text
    assert "For research; not for clinical use" in text
    assert "http" not in re.sub(r"http-equiv", "", text)
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert text.count("<img alt") == 4
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["cohort.csv", "cohort.html"]


def test_the_page_stays_small_and_one_result_is_no_cohort(tmp_path, monkeypatch):
    make_done(tmp_path, "a", 0.1)
    assert not cohort.write_cohort(ResultFiles(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    monkeypatch.setattr(cohort, "MAX_THUMBNAILS", 2)
    for i in range(6):
        make_done(tmp_path, f"b/{i}", i / 10)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "done.json").write_text('{"files": []}')  # of somebody else
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "done.json").write_text("[1, 2")
    assert cohort.write_cohort(ResultFiles(tmp_path))
    page = tmp_path / "cohort.html"
    assert page.read_text().count("<img alt") == 2
    assert page.read_text().count("<meter") == 7


def test_anonymous_findings_say_nothing_of_names_and_have_the_same_masks(scans, tmp_path):
    """Names of cases and findings, and paths, are the user's words; in a table of centres they may be the patient's."""
    text = (tmp_path / "c.csv").read_text().replace("a,", "Jane_Roe,").replace("one", "Jane_R_left")
    (tmp_path / "c.csv").write_text(text)
    (scans / "a.nii.gz").rename(scans / "Jane_Roe.nii.gz")
    segment(scans, tmp_path / "plain", kinds=("mask", "json"))
    segment(scans, tmp_path / "out", kinds=("mask", "json"), anonymous=True)
    for name, content in tree(tmp_path / "out").items():
        assert "Jane" not in name
        assert b"Jane" not in content
        assert not name.endswith("gz") or b"Jane" not in gzip.decompress(content)
        assert str(tmp_path).encode() not in content
    plain, out = (sorted((tmp_path / folder).rglob("mask.nii.gz")) for folder in ("plain", "out"))
    sums = [sorted(int(np.asarray(nibabel.load(path).dataobj).sum()) for path in paths) for paths in (plain, out)]
    assert len(plain) == len(out)
    assert sums[0] == sums[1]
    again = segment(scans, tmp_path / "out", kinds=("mask", "json"), anonymous=True)
    assert len(again.skipped) == 7
    assert not again.done


# --- an object store -------------------------------------------------------------------------------------------------


def stored(address: str) -> dict[str, bytes]:
    fs, root = filesystem(address)
    return {path.removeprefix(f"{root}/"): fs.cat_file(path) for path in fs.find(root)}


def test_findings_and_cohort_on_an_object_store_are_those_of_a_folder(scans, tmp_path, bucket):
    kinds = ("mask", "json")
    local, remote = (segment(scans, out, kinds=kinds) for out in (tmp_path / "out", f"{bucket}/out"))
    assert remote == local
    there = stored(f"{bucket}/out")
    assert {"cohort.csv", "cohort.html", "a/findings.json", "a/mask.nii.gz", "a/one/done.json"} <= set(there)
    assert there == tree(tmp_path / "out")
    again = segment(scans, f"{bucket}/out", kinds=kinds)
    assert (sorted(again.skipped), again.done) == (sorted(NAMES), [])
    assert stored(f"{bucket}/out") == there


@pytest.mark.parametrize("files", [8, *(pytest.param(count, marks=pytest.mark.slow) for count in (3, 14))])
def test_an_upload_that_broke_off_is_taken_up_again(scans, tmp_path, bucket, monkeypatch, files):
    segment(scans, tmp_path / "out")
    fs, _ = filesystem(bucket)
    put, pipe, count = fs.put_file, fs.pipe_file, iter(range(files))

    def counted(write):
        def first_ones(*args, **options):
            if next(count, None) is None:
                raise ConnectionError("the line is down")
            return write(*args, **options)

        return first_ones

    with monkeypatch.context() as broken:
        broken.setattr(fs, "put_file", counted(put))
        broken.setattr(fs, "pipe_file", counted(pipe))
        with refused("the line is down", code="access"):
            segment(scans, f"{bucket}/out")
    segment(scans, f"{bucket}/out")
    assert stored(f"{bucket}/out") == tree(tmp_path / "out")


def test_results_inside_a_result_are_not_results_of_an_object_store_either(tmp_path):
    names = [
        "b/done.json",
        "b/deep/done.json",
        "a/one/done.json",
        "a/two/x.txt",
        ".hidden/done.json",
        "a/b-c/done.json",
    ]
    fs, root = filesystem("memory://cohort-results")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
        fs.pipe_file(f"{root}/{name}", b"{}")
    assert ResultFiles("memory://cohort-results").results() == ResultFiles(tmp_path).results()
    assert ResultFiles(tmp_path).results() == ["a/b-c", "a/one", "b"]
    fs.pipe_file(f"{root}/a[1]*/x", b"1")  # no pattern, but a name
    assert ResultFiles("memory://cohort-results").read(["a[1]*/x", "a?one/done.json"]) == {"a[1]*/x": b"1"}


# --- several processes -----------------------------------------------------------------------------------------------


def test_what_another_process_has_claimed_is_left_to_it_and_comes_last(scans, tmp_path):
    segment(scans, tmp_path / "once")
    out = tmp_path / "out"
    out.mkdir()
    held = lock(out / LOCK, shared=True)  # as every process at work there has it
    other = ResultStore(out, {}, "segmentation")
    claim = other.take("a")
    assert claim is not None
    assert held is not None
    assert other.take("a") is None
    outcomes: list[Outcome] = []
    worker = threading.Thread(target=lambda: outcomes.append(segment(scans, out)))
    worker.start()
    deadline = time.monotonic() + 60
    while not (out / "p/findings.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (out / "c/findings.json").exists()
    assert not (out / "a").exists()
    claim.release()
    claim.release()
    held.close()
    worker.join(60)
    assert outcomes[0].done == [*NAMES[3:], *NAMES[:3]]
    assert tree(out) == tree(tmp_path / "once")


def test_every_line_of_the_page_has_a_cell_per_column(tmp_path):
    for name, notes in (("a", ()), ("b", ("simulated",))):
        make_done(tmp_path, name, 0.3, notes)
        done = json.loads((tmp_path / name / "done.json").read_text())
        done["measurements"]["core"] = done["measurements"]["nodule"]
        (tmp_path / name / "done.json").write_text(json.dumps(done))
    assert cohort.write_cohort(ResultFiles(tmp_path))
    page = tmp_path / "cohort.html"
    head, *lines = page.read_text().split("<tr>")[1:]
    assert len(lines) == 4
    assert {line.count("<td") for line in lines} == {head.count("<th")} == {12}
    assert page.read_text().count("<img alt") == 2  # each result once

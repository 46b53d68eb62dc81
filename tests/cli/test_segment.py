"""`berdiff segment` from the command line, with saved models; the real series and the real brain end to end."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
from layouts import as_source, make_cases
from PIL import Image

import berdiff
from berdiff.cli.main import main
from berdiff.data import prepare as preparing
from berdiff.methods import folder

from .small_model import save_model

SEQUENCES = ("t1", "t1ce", "t2", "flair")
FAST = ["--samples", "2", "--steps", "2"]


@pytest.fixture
def pictures(tmp_path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "in").mkdir()
    for i, size in enumerate([(32, 32), (40, 48), (32, 32)]):
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(tmp_path / "in" / f"p{i}.png")
    return tmp_path / "in"


def test_pictures(grey, pictures, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["segment", str(grey), str(pictures), "--out", str(out), *FAST]) == 0
    printed = capsys.readouterr()
    assert "3 segmented, 0 found done, 0 failed" in printed.out
    assert "not for clinical use" in printed.out
    assert "device: " in printed.err
    mask = np.array(Image.open(out / "p1" / "mask.png"))
    assert mask.shape == (40, 48)
    assert set(np.unique(mask)) <= {0, 255}
    # the same masks as from Python
    result = berdiff.load(grey).segment(pictures / "p1.png", n=2, steps=2)
    np.testing.assert_array_equal(mask, result.mask()[0] * 255)
    for i in range(2):
        written = np.array(Image.open(out / "p1" / "samples" / f"sample-{i + 1}.png"))
        np.testing.assert_array_equal(written, result.samples[i, 0] * 255)
    assert main(["segment", str(grey), str(pictures), "--out", str(out), *FAST, "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)
    assert (outcome["done"], outcome["skipped"], outcome["failed"]) == ([], ["p0", "p1", "p2"], {})


def test_a_store_by_the_name_of_bundled_weights(grey, tmp_path, capsys, monkeypatch):
    shutil.copytree(grey, tmp_path / "weights" / "tiny-grey")
    monkeypatch.setattr(folder, "BUNDLED", tmp_path / "weights")
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(make_cases(10)))
    preparing.prepare("made", None, tmp_path / "store")
    out, store = tmp_path / "out", tmp_path / "store"
    asked = ["segment", "tiny-grey", str(store), "--split", "all", "--limit", "3", "--out", str(out), *FAST, "--json"]
    assert main([*asked, "--write", "json", "--noise", "shared", "--sigma", "0.5", "--spacing", "quadratic"]) == 0
    done = json.loads(capsys.readouterr().out)["done"]
    assert len(done) == 3
    facts = json.loads((out / done[0] / "result.json").read_text())
    assert facts["settings"]["model"] == "tiny-grey"
    assert facts["settings"]["weights_sha256"] == folder.sha256(grey / "model.safetensors")
    sampler = {"steps": 2, "noise": "shared", "sigma": 0.5, "spacing": "quadratic", "rule": "ddim"}
    assert facts["settings"]["sampler"].items() >= sampler.items()
    assert facts["spacing_mm"] == [0.5, 0.7]
    assert {"made for a test", "random weights"} < set(facts["notes"])


def errors(printed: str) -> list[str]:
    """What stands there beside the device, and the progress where the machine is slow."""
    return [line for line in printed.splitlines() if not line.startswith(("device:", "segmenting"))]


def test_bad_inputs_are_one_sentence_each_and_exit_code_2(grey, pictures, tmp_path, capsys):
    (pictures / "bad.png").write_text("Dear sir")
    assert main(["segment", str(grey), str(pictures / "bad.png"), "--out", str(tmp_path / "a"), *FAST]) == 2
    (line,) = errors(capsys.readouterr().err)
    sentence = line.removeprefix("berdiff segment: ")
    assert sentence.startswith(f"{pictures / 'bad.png'}: ")
    assert main(["segment", str(grey), str(pictures), "--out", str(tmp_path / "out"), *FAST, "--write", "mask"]) == 2
    printed = capsys.readouterr()
    assert "3 segmented, 0 found done, 1 failed" in printed.out
    assert errors(printed.err) == [sentence, "berdiff segment: 1 of 4 inputs failed, as reported above"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--steps", "99"], "--steps"),
        (["--slices", "5"], "--slices"),
        (["--set", "representative", "--pool", "8"], "--pool"),
        (["--size", "30", "32"], "--size"),
        (["--representatives", "0"], "--representatives"),
        (["--limit", "0"], "--limit"),
        (["--device", "cuda:99"], "--device"),
    ],
)
def test_bad_options_are_one_sentence(grey, pictures, tmp_path, capsys, options, named):
    assert main(["segment", str(grey), str(pictures / "p0.png"), "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"berdiff segment: {named}: ")
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_models_of_another_version_or_with_altered_weights(grey, pictures, tmp_path, capsys):
    asked = [str(pictures), "--out", str(tmp_path / "out")]
    shutil.copytree(grey, tmp_path / "altered")
    weights = tmp_path / "altered" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert main(["segment", str(tmp_path / "altered"), *asked]) == 2
    assert "altered" in capsys.readouterr().err
    shutil.copytree(grey, tmp_path / "newer")
    config = json.loads((grey / "config.json").read_text())
    (tmp_path / "newer" / "config.json").write_text(json.dumps(config | {"format": 3}))
    assert main(["segment", str(tmp_path / "newer"), *asked]) == 2
    assert "config.json: format: " in capsys.readouterr().err
    assert main(["segment", "no-such-model", *asked]) == 2
    assert "no-such-model: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_is_quick_and_lists_every_sampler_option_and_kind():
    code = "import sys; sys.argv[1:] = ['segment', '--help']\nfrom berdiff.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += "print([name for name in ('fsspec', 's3fs', 'torch', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for option in ("--set", "--pool", "--steps", "--rule", "--posterior", "--spacing", "--last-step", "--center"):
        assert option in done.stdout
    for kind in ("dicom-seg", "representatives", "report"):
        assert kind in done.stdout


def test_the_real_series(grey, shared_data, tmp_path, capsys):
    """LIDC-IDRI-0001, a region in two slices: DICOM SEG that finds its way back to the right files."""
    import highdicom
    import pydicom

    series = next((shared_data / "layouts" / "lidc_dicom").glob("*/*/*"))
    out = tmp_path / "out"
    asked = ["segment", str(grey), str(series), "--out", str(out), *FAST, "--slices", "6:8", "--center", "320", "360"]
    assert main([*asked, "--write", "dicom-seg", "json", "nifti"]) == 0
    result = berdiff.load(grey).segment(series, n=2, steps=2, slices=(6, 8), center=(320, 360))
    assert result.samples.any()
    facts = json.loads((out / series.name / "result.json").read_text())
    assert facts["measurements"] == result.measurements()
    assert facts["region"] == [[6, 8], [304, 336], [344, 376]]
    seg = highdicom.seg.segread(out / series.name / "contours.seg.dcm")
    uids = {pydicom.dcmread(path, stop_before_pixels=True).SOPInstanceUID for path in series.iterdir()}
    referred = {uid for _, _, uid in seg.get_source_image_uids()}
    assert referred
    assert referred <= uids
    assert nibabel.load(out / series.name / "saliency.nii.gz").shape == (512, 512, 16)


def test_the_real_brain(shared_data, tmp_path, capsys):
    """BraTS2021_00006, four sequences, a region in two slices: NIfTI that lies on the source."""
    model = save_model(tmp_path / "brats", SEQUENCES, 32, rule="brain")
    case = shared_data / "brats" / "BraTS2021_00006"
    out = tmp_path / "out"
    asked = ["segment", str(model), str(case), "--out", str(out), *FAST, "--write", "saliency", "json"]
    assert main([*asked, "--slices", "80:82", "--center", "120", "110", "--last-step", "sample"]) == 0
    source = nibabel.load(case / "BraTS2021_00006_t1.nii.gz")
    written = nibabel.load(out / "BraTS2021_00006" / "saliency.nii.gz")
    np.testing.assert_array_equal(written.affine, source.affine)
    assert written.shape == source.shape
    result = berdiff.load(model).segment(case, n=2, steps=2, slices="80:82", center=(120, 110), last_step="sample")
    # by hand: this file is stored from the left and the back, so columns and rows turn, and slices stay
    upright = np.asarray(written.dataobj).T
    flips = [axis for axis, place in ((-1, 0), (-2, 1)) if source.affine[place, place] > 0]
    saliency = result.whole(result.saliency)[0]
    np.testing.assert_allclose(np.flip(upright, flips), saliency, atol=1e-6)
    assert set(np.flatnonzero(saliency.any(axis=(1, 2)))) == {80, 81}

"""The demo: chosen by rule, scored as the evaluation scores, one page; on a small store with random weights."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from berdiff import metrics
from berdiff.data.case import Case, Reading
from berdiff.data.prepare import prepare
from berdiff.data.store import Store, open_store
from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import make_schedule
from berdiff.errors import InputError
from berdiff.evaluation.core import draw
from berdiff.experiments.demo import choose, run_demo
from berdiff.inference.draw import Settings
from berdiff.inference.model import load
from berdiff.methods.berdiff import BerDiff
from berdiff.methods.folder import save
from berdiff.networks.build import make_network

SIZE = 48
SETTINGS = Settings(samples=4, sampler=Sampler(2), seed=1)


def cases() -> list[Case]:
    """Ten patients of three slices; the first slice has one reader, the others two of three."""
    rng = np.random.default_rng(0)
    found = []
    for patient in range(10):
        for z in range(3):
            masks = np.zeros((3, 1, SIZE, SIZE), np.uint8)
            for reader in range(1 if z == 0 else 2):
                top, left = rng.integers(10, 30, 2)
                masks[reader, 0, top : top + 6, left : left + 9] = 1
            image = rng.integers(0, 256, (1, SIZE, SIZE)).astype(np.uint8)
            split = "test" if patient < 6 else "train"
            found.append(Case(f"p{patient}/z{z}", f"p{patient}", image, masks, spacing=(0.7, 0.7), split=split))
    return found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    out = tmp_path_factory.mktemp("demo") / "small.zarr"
    reading = Reading(("ct",), ("nodule",), 3, (SIZE, SIZE), "uint8", 30, iter(cases()), ("made for a test",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("berdiff.data.sources.lidc_readers.read", lambda path, options: reading)
        prepare("lidc-readers", None, out)
    return open_store(out)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    about = {"size": [32, 32], "channels": ["ct"], "targets": ["nodule"], "notes": ["random weights"]}
    save(BerDiff(make_network("tiny"), make_schedule("linear", 50)).eval(), folder, about)
    return folder


def test_cases_are_of_different_patients_with_several_readers_by_seed(store: Store):
    chosen = choose(store, 5, seed=0)
    np.testing.assert_array_equal(chosen, choose(store, 5, seed=0))
    assert len(set(store.cases.patient[chosen])) == 5
    assert set(store.cases.split[chosen]) == {"test"}
    assert (store.read(chosen)[1].any(axis=(2, 3, 4)).sum(1) >= 2).all()
    others = [tuple(choose(store, 5, seed)) for seed in range(1, 6)]
    assert any(other != tuple(chosen) for other in others)
    with pytest.raises(InputError, match=r"expected 7 patients .* found 6"):
        choose(store, 7, seed=0)
    with pytest.raises(InputError, match="--cases: expected at least 1, found 0"):
        choose(store, 0, seed=0)


def test_scores_are_those_of_the_metrics_on_the_centre(store: Store, model: Path, tmp_path: Path):
    loaded = load(model)
    done = run_demo(loaded, store, tmp_path, 3, SETTINGS)
    chosen = choose(store, 3, seed=1)
    images, masks = store.read(chosen)
    low, high = SIZE // 2 - 16, SIZE // 2 + 16
    centre = torch.from_numpy(images[..., low:high, low:high].copy())
    names = store.cases.case[chosen].tolist()
    samples = draw(loaded.segmenter, centre, names, 4, SETTINGS.sampler, 1)
    readers = torch.from_numpy(masks[..., low:high, low:high].copy())
    assert [of.case for of in done.cases] == names
    np.testing.assert_allclose([of.ged for of in done.cases], metrics.ged(samples, readers)[:, 0])
    np.testing.assert_allclose([of.hm_iou for of in done.cases], metrics.hm_iou(samples, readers)[:, 0])
    disagreement = metrics.Pairs.of(readers, readers).d_yy[:, 0]
    np.testing.assert_allclose([of.ged_floor for of in done.cases], disagreement / 4)
    assert done.mean.ged == pytest.approx(np.mean([of.ged for of in done.cases]))


def test_the_page_holds_every_case(store: Store, model: Path, tmp_path: Path):
    steps = []
    done = run_demo(load(model), store, tmp_path, 2, SETTINGS, lambda *at: steps.append(at))
    assert steps == [(1, 2), (2, 2)]
    text = done.report.read_text(encoding="utf-8")
    for of in done.cases:
        assert f"<h2>{of.case}</h2>" in text
        assert f"GED {of.ged:.3f} (floor {of.ged_floor:.3f})" in text
    for words in ("made for a test", "random weights", "reader 3: nothing", "LIDC-IDRI", "simulated"):
        assert words in text
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_command(
    store: Store, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    from berdiff.cli.main import main

    monkeypatch.setattr("berdiff.data.store.open_store", lambda address=None: store)
    argv = [
        "demo",
        "--model",
        str(model),
        "--out",
        str(tmp_path / "out"),
        "--cases",
        "2",
        "--samples",
        "3",
        "--steps",
        "2",
    ]
    assert main(argv) == 0
    said = capsys.readouterr().out
    report = (tmp_path / "out/report.html").resolve()
    assert report.as_uri() in said
    assert "berdiff segment lidc IMAGES" in said
    assert main([*argv, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["cases"]) == 2
    assert printed["report"] == str(tmp_path / "out/report.html")
    assert f"{printed['mean']['ged']:.3f}" in said


def test_an_unknown_model_is_one_sentence(tmp_path: Path):
    command = [sys.executable, "-m", "berdiff.cli.main", "demo", "--model", "no-such-model", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("berdiff demo: no-such-model: expected the folder of a run or of a model")
    assert len(done.stderr.splitlines()) == 1

"""The evaluation as a whole, on a store in memory and a method without a network."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from berdiff import metrics
from berdiff.errors import InputError
from berdiff.evaluation.core import draw
from berdiff.evaluation.evaluate import Settings, choose, evaluate
from berdiff.evaluation.record import read_samples
from berdiff.evaluation.summary import from_csv

from .stand_ins import Blur, MemoryStore

SETTINGS = Settings(samples=5, batch_size=4, crop=12)


def figures(folder: Path) -> tuple[dict, dict]:
    """What must not depend on how the evaluation was cut up: the columns and the metrics, without the times."""
    columns, result = from_csv(folder / "per_case.csv"), json.loads((folder / "metrics.json").read_text())
    del columns["seconds"], result["metrics"]["seconds"]
    result["settings"].pop("batch_size")
    return {name: values.tolist() for name, values in columns.items()}, result


def test_figures_are_the_metrics_of_the_cases(tmp_path):
    store, model = MemoryStore(), Blur()
    result = evaluate(model, store, tmp_path / "e", SETTINGS, "blur")
    chosen = store.indices("test")
    images, masks = (torch.from_numpy(x[..., 2:14, 2:14].copy()) for x in store.read(chosen))
    raters, names = torch.from_numpy(store.cases.raters[chosen]), store.cases.case[chosen].tolist()
    samples = draw(model, images, names, 5, None, 0)
    expected = {
        "ged_1": metrics.ged(samples[:, :1], masks, raters),
        "ged_5": metrics.ged(samples, masks, raters),
        "ged_5_unbiased": metrics.ged_unbiased(samples, masks, raters),
        "hm_iou_5": metrics.hm_iou(samples, masks, raters),
        "dice_slice": metrics.dice(samples, masks, raters),
    }
    assert samples.float().mean().item() > 0.01  # not all empty
    for name, values in expected.items():
        figure = result["metrics"][name]
        assert figure["value"] == pytest.approx(values.mean().item(), abs=1e-12)
        assert figure["low"] < figure["value"] < figure["high"]
    assert result["data"]["cases"] == 20
    assert result["data"]["patients"] == 7
    assert set(result["references"]) == {"perfect sampler", "one reader, repeated", "readers' majority", "empty mask"}
    assert result["references"]["perfect sampler"]["ged_5"]["value"] == pytest.approx(
        from_csv(tmp_path / "e" / "per_case.csv")["d_yy"].mean() / 5
    )
    assert json.loads((tmp_path / "e" / "metrics.json").read_text()) == result
    assert not (tmp_path / "e" / "parts").exists()


def test_table_has_the_papers_row_marked_as_such(tmp_path):
    evaluate(Blur(), MemoryStore(), tmp_path / "e", replace(SETTINGS, samples=16), "blur")
    table = (tmp_path / "e" / "table.md").read_text()
    assert "the paper's, on its data" in table
    assert "LIDC-IDRI, the paper's own preparation and split" in table
    line = next(line for line in table.splitlines() if line.startswith("| GED 16 |"))
    assert "| 0.238 |" in line
    assert "made for tests" in table


def test_batches_do_not_matter_and_a_finished_evaluation_is_not_done_again(tmp_path):
    store, model = MemoryStore(), Blur()
    evaluate(model, store, tmp_path / "a", SETTINGS)
    evaluate(model, store, tmp_path / "b", replace(SETTINGS, batch_size=7))
    assert figures(tmp_path / "a") == figures(tmp_path / "b")
    before = (tmp_path / "a" / "metrics.json").stat().st_mtime_ns
    calls = []
    again = evaluate(model, store, tmp_path / "a", SETTINGS, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(20, 20)]
    assert again == json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert (tmp_path / "a" / "metrics.json").stat().st_mtime_ns == before


def test_several_targets(tmp_path):
    store = MemoryStore(targets=("core", "rim"))
    result = evaluate(Blur(targets=2), store, tmp_path / "e", SETTINGS)
    columns = from_csv(tmp_path / "e" / "per_case.csv")
    assert len(columns["case"]) == 40
    assert set(result["by_target"]) == {"core", "rim"}
    both = [result["by_target"][target]["ged_5"]["value"] for target in store.targets]
    assert result["metrics"]["ged_5"]["value"] == pytest.approx(np.mean(both))
    assert both[0] == pytest.approx(columns["ged_5"][columns["target"] == "core"].mean())
    assert both[0] != both[1]
    assert "## Target rim" in (tmp_path / "e" / "table.md").read_text()


def test_saved_samples_are_the_samples(tmp_path):
    store, model = MemoryStore(), Blur()
    evaluate(model, store, tmp_path / "e", replace(SETTINGS, save_samples=True))
    kept = read_samples(tmp_path / "e")
    chosen = store.indices("test")
    images = torch.from_numpy(store.read(chosen)[0][..., 2:14, 2:14].copy())
    expected = draw(model, images, store.cases.case[chosen].tolist(), 5, None, 0)
    assert list(kept) == store.cases.case[chosen].tolist()
    assert torch.equal(torch.stack(list(kept.values())), expected)


def test_limits_are_nested_and_seeded():
    store = MemoryStore()
    few, more, all_of_them = (choose(store, replace(SETTINGS, limit=limit)).tolist() for limit in (4, 9, 999))
    assert len(few) == 4
    assert set(few) < set(more) < set(all_of_them)
    assert all_of_them == store.indices("test").tolist()
    assert choose(store, replace(SETTINGS, limit=4, seed=1)).tolist() != few


KILLED = """
import sys
from evaluation.stand_ins import Blur, MemoryStore
from evaluation.test_evaluate import SETTINGS
from dataclasses import replace
from berdiff.evaluation.evaluate import evaluate
evaluate(Blur(pause=0.3), MemoryStore(), sys.argv[1], replace(SETTINGS, save_samples=True))
"""


def test_killed_and_continued_is_the_same_as_in_one_go(tmp_path):
    """kill -9 in the middle; what was done is not done again, and nothing but the times differs in the end."""
    store, settings = MemoryStore(), replace(SETTINGS, save_samples=True)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    victim = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path / "killed")], env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "parts" / "00001.json").exists():
        assert victim.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert not (tmp_path / "killed" / "metrics.json").exists()
    done = []
    evaluate(Blur(), store, tmp_path / "killed", settings, progress=lambda now, total: done.append(now))
    assert done[0] >= 8
    assert done[-1] == 20
    evaluate(Blur(), store, tmp_path / "whole", settings)
    assert figures(tmp_path / "killed") == figures(tmp_path / "whole")
    killed, whole = read_samples(tmp_path / "killed"), read_samples(tmp_path / "whole")
    assert all(torch.equal(killed[case], whole[case]) for case in whole)
    names = [sorted(f.name for f in (tmp_path / e).iterdir()) for e in ("killed", "whole")]
    assert names[0] == names[1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 1}, r"found other settings \(seed: there 0, now 1\)"),
        ({"samples": 4, "limit": 2}, r"samples: there 5, now 4; limit: there None, now 2"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused(tmp_path, change, sentence):
    evaluate(Blur(), MemoryStore(), tmp_path / "e", SETTINGS)
    with pytest.raises(InputError, match=sentence):
        evaluate(Blur(), MemoryStore(), tmp_path / "e", replace(SETTINGS, **change))


def test_other_weights_or_data_in_the_same_folder_are_refused(tmp_path):
    evaluate(Blur(), MemoryStore(), tmp_path / "e", SETTINGS)
    with pytest.raises(InputError, match="weights_sha256: there"):
        evaluate(Blur(spread=0.2), MemoryStore(), tmp_path / "e", SETTINGS)
    with pytest.raises(InputError, match="data_sha256: there"):
        evaluate(Blur(), MemoryStore(seed=1), tmp_path / "e", SETTINGS)


@pytest.mark.parametrize("name", ["thesis.tex", "settings.json", "samples/mine.npz", "metrics.json"])
def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(InputError, match="expected a new folder or one of this evaluation, found other files"):
        evaluate(Blur(), MemoryStore(), tmp_path, SETTINGS)
    assert (tmp_path / name).read_text() == "years of work"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"split": "train"}, "memory: expected cases in the split 'train', found none"),
        ({"samples": 0}, "--samples: expected at least 1, found 0"),
        ({"batch_size": 0}, "--batch-size: expected at least 1, found 0"),
        ({"limit": 0}, "--limit: expected at least 1 case, found 0"),
        ({"crop": 17}, "--crop: expected 1 to 16, the size of the images, found 17"),
    ],
)
def test_bad_settings(tmp_path, change, sentence):
    with pytest.raises(InputError, match=sentence):
        evaluate(Blur(), MemoryStore(), tmp_path / "e", replace(SETTINGS, **change))
    assert not (tmp_path / "e").exists()


def test_a_case_without_raters(tmp_path):
    store = MemoryStore()
    store.cases.raters[3] = 0
    with pytest.raises(InputError, match="expected at least one rater for every case, found none for case 3"):
        evaluate(Blur(), store, tmp_path / "e", SETTINGS)


def test_a_model_that_does_not_fit_the_data(tmp_path):
    store = MemoryStore()
    store.images = np.repeat(store.images, 4, 1)
    with pytest.raises(InputError, match="the model cannot sample these images: image: expected 1 channels, found 4"):
        evaluate(Blur(), store, tmp_path / "e", SETTINGS)
    with pytest.raises(InputError, match="equal B, K, H and W"):
        evaluate(Blur(targets=2), MemoryStore(), tmp_path / "f", SETTINGS)


def test_what_a_kill_left_half_written_is_removed(tmp_path):
    settings = replace(SETTINGS, save_samples=True)
    (tmp_path / ".settings.json.12345678.part").write_text("half")
    with pytest.raises(KeyboardInterrupt):
        evaluate(Blur(), MemoryStore(), tmp_path, settings, progress=_interrupt_at(8))
    (tmp_path / "samples" / ".00002.npz.12345678.part").write_text("half")
    evaluate(Blur(), MemoryStore(), tmp_path, settings)
    assert not list(tmp_path.glob("**/.*"))


def test_settings_that_did_not_work_do_not_refuse_better_ones(tmp_path):
    with pytest.raises(InputError):
        evaluate(Blur(targets=2), MemoryStore(), tmp_path / "e", SETTINGS)
    assert not (tmp_path / "e").exists()
    with pytest.raises(KeyboardInterrupt):
        evaluate(Blur(), MemoryStore(), tmp_path / "e", SETTINGS, progress=_interrupt_at(4))
    (tmp_path / "e" / "parts" / "00000.json").unlink()  # killed before the first batch was whole
    evaluate(Blur(), MemoryStore(), tmp_path / "e", replace(SETTINGS, seed=5))
    assert json.loads((tmp_path / "e" / "settings.json").read_text())["seed"] == 5


def test_a_damaged_part_is_named(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        evaluate(Blur(), MemoryStore(), tmp_path / "e", SETTINGS, progress=_interrupt_at(8))
    (tmp_path / "e" / "parts" / "00001.json").write_text("{")
    with pytest.raises(InputError, match=r"00001.json: expected the values of a batch, found a damaged file"):
        evaluate(Blur(), MemoryStore(), tmp_path / "e", SETTINGS)


def _interrupt_at(cases: int):
    def progress(done: int, total: int) -> None:
        if done >= cases:
            raise KeyboardInterrupt

    return progress

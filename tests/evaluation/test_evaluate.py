"""The evaluation as a whole, on a store in memory and a method without a network."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from berdiff import metrics
from berdiff.diffusion.along_z import correlation
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.core import sample_cases
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.evaluation_folder import read_samples
from berdiff.evaluation.per_case import from_csv
from berdiff.evaluation.report import captions, markdown, tables_of
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.inference.model import Model
from berdiff.inference.settings import NEIGHBOURS
from fakes import Blur, MemoryStore, bright_segmenter
from refusals import refused

SETTINGS = EvaluationSettings(samples=5, batch_size=4, crop=12)


def blur(store=None, name="blur", **settings) -> Model:
    store = store or MemoryStore()
    segmenter = Blur(**settings).build(store.input_spec)
    segmenter.weights_sha256 = str(settings.get("spread", 0.1))
    return Model(segmenter, name, store.input_spec, store.size)


def figures(folder: Path) -> tuple[dict, dict]:
    """What must not depend on how the evaluation was cut up: the columns and the metrics, without the times."""
    columns, result = from_csv(folder / "per_case.csv"), json.loads((folder / "metrics.json").read_text())
    del columns["seconds"], result["metrics"]["seconds"]
    result["settings"].pop("batch_size")
    return {name: [str(value) for value in values] for name, values in columns.items()}, result  # nan is not nan


def interrupt_at(cases: int):
    def progress(done: int, total: int | None) -> None:
        if done >= cases:
            raise KeyboardInterrupt

    return progress


def test_figures_are_the_metrics_of_the_cases(tmp_path):
    store, model = MemoryStore(), blur()
    result = evaluate(model, store, tmp_path / "e", SETTINGS)
    chosen = store.indices("test")
    images, masks = map(torch.from_numpy, store.read(chosen))
    raters, names = torch.from_numpy(store.cases.raters[chosen]), store.cases.case[chosen].tolist()
    samples = torch.zeros(20, 5, 1, 16, 16, dtype=torch.uint8)
    samples[..., 2:14, 2:14] = sample_cases(model.segmenter, images[..., 2:14, 2:14], names, 5)
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
    assert (result["data"]["cases"], result["data"]["patients"]) == (20, 7)
    answers = {"exact model", "perfect sampler", "one rater, repeated", "raters' majority", "empty mask"}
    assert set(result["references"]) == answers
    assert result["references"]["perfect sampler"]["ged_5"]["value"] == pytest.approx(
        from_csv(tmp_path / "e" / "per_case.csv")["d_yy"].mean() / 5
    )
    assert json.loads((tmp_path / "e" / "metrics.json").read_text()) == result
    assert sorted(f.name for f in (tmp_path / "e").iterdir()) == [
        "metrics.json",
        "per_case.csv",
        "settings.json",
        "table.md",
    ]


def test_table_has_the_papers_row_and_the_sampler_in_words(tmp_path):
    store = MemoryStore()
    evaluate(blur(), store, tmp_path / "e", replace(SETTINGS, samples=16))
    table = (tmp_path / "e" / "table.md").read_text()
    line = next(line for line in table.splitlines() if line.startswith("| GED 16 |"))
    assert line.endswith("| 0.238 |")
    for words in ("the paper's, on its data", "LIDC-IDRI, the paper's own preparation and split", "made for tests"):
        assert words in table
    assert "16 samples, one pass, seed 0" in table  # a method without steps
    model = Model(bright_segmenter(store.input_spec), "bright", store.input_spec, store.size)
    searched = replace(SETTINGS, limit=2, sampler=Sampler((50, 20), noise="shared"))
    result = evaluate(model, store, tmp_path / "b", searched)
    sampled = "5 samples, ddim in 2 steps (50, 20), shared noise, seed 0; "
    assert f"{sampled}figures on the whole 16x16; the model sees the centre 12x12." in captions(result)[0]
    assert result["weights_sha256"] == model.segmenter.weights_sha256


def marked_outside(outside: int) -> MemoryStore:
    """All raters and the model mark the same 4x4 in the centre; the first rater also `outside` pixels at the edge."""
    store = MemoryStore(5)
    store.cases.raters[:] = 4
    store.masks[:], store.images[:] = 0, 0
    store.masks[..., 6:10, 6:10], store.images[..., 6:10, 6:10] = 1, 1
    store.masks[:, 0, :, 0, :outside] = 1
    return store


def test_what_a_rater_marked_outside_the_crop_counts_against_the_model(tmp_path):
    """By hand: one of four raters is at IoU 16 / 24, the samples at 1 with each other."""
    inside = evaluate(blur(), marked_outside(0), tmp_path / "in", SETTINGS)["metrics"]
    assert inside["ged_5"]["value"] == 0
    assert inside["hm_iou_5"]["value"] == 1
    found = evaluate(blur(), marked_outside(8), tmp_path / "out", SETTINGS)
    d = 1 - 16 / 24
    expected = {"d_sy": d / 4, "d_ss": 0, "d_yy": 6 * d / 16, "d_raters": d / 2, "hm_iou_5": 1 - d / 4}
    expected |= {"ged_5": 2 * d / 4 - 6 * d / 16, "brier": 8 / 16 / 256, "finding_ged": 0}
    for name, value in expected.items():
        assert found["metrics"][name]["value"] == pytest.approx(value, abs=1e-12), name
    assert found["references"]["exact model"]["ged_5"]["value"] == pytest.approx(d / 2 * (1 / 4 + 1 / 5))
    assert found["references"]["perfect sampler"]["ged_5"]["value"] == pytest.approx(6 * d / 16 / 5)
    assert found["rater_parity"]["samples"]["value"] == pytest.approx(1 - d / 4)
    assert found["rater_parity"]["raters"]["value"] == pytest.approx(1 - d / 2)
    assert found["data"]["size"] == [16, 16]


def test_a_representative_set_out_of_a_pool(tmp_path):
    """GED is of the set that is kept; calibration is that of an evaluation with as many independent samples."""
    store, model = MemoryStore(), blur(spread=0.4)
    chosen = replace(SETTINGS, set="representative", pool=12, save_samples=True)
    found = evaluate(model, store, tmp_path / "set", chosen)
    pool = evaluate(model, store, tmp_path / "pool", replace(SETTINGS, samples=12, save_samples=True))
    for name in ("ged_12_unbiased", "dice_volume", "soft_dice", "ece", "brier", "nll", "d_sy", "d_ss", "finding_ged"):
        assert found["metrics"][name] == pool["metrics"][name], name
    assert found["finding"] == pool["finding"]
    assert "ged_5_unbiased" not in found["metrics"]
    masks, samples = read_samples(tmp_path / "set"), read_samples(tmp_path / "pool")
    for case, kept in masks.items():
        assert kept.shape == (5, 1, 16, 16)
        assert all(any(torch.equal(mask, sample) for sample in samples[case]) for mask in kept)
    own = store.indices("test")
    truth, raters = torch.from_numpy(store.masks[own]), torch.from_numpy(store.cases.raters[own])
    expected = metrics.ged(torch.stack(list(masks.values())), truth, raters).mean().item()
    assert found["metrics"]["ged_5"]["value"] == pytest.approx(expected)
    exact = found["references"]["exact model"]
    assert exact["ged_1"] == exact["ged_5"] == exact["ged_12_unbiased"]
    table = (tmp_path / "set" / "table.md").read_text()
    assert "representative sets of 5 out of 12 samples" in table
    assert "compare them with --set independent" in table
    again = replace(SETTINGS, pool=99)  # of no use for independent samples: the same evaluation
    assert evaluate(model, store, tmp_path / "a", SETTINGS) == evaluate(model, store, tmp_path / "a", again)


def test_one_rater_has_no_distance_to_another(tmp_path):
    store = MemoryStore()
    store.cases.raters[:] = 1
    found = evaluate(blur(), store, tmp_path / "e", replace(SETTINGS, samples=1))
    assert found["rater_parity"] is None
    assert found["references"]["exact model"] == {}
    assert not {"d_raters", "d_ss"} & set(found["metrics"])
    assert "nan" not in (tmp_path / "e" / "table.md").read_text()
    some = evaluate(blur(), MemoryStore(), tmp_path / "some", SETTINGS)
    columns = from_csv(tmp_path / "some" / "per_case.csv")
    several = columns["raters"] > 1
    assert some["data"]["cases_of_several_raters"] == several.sum() < 20
    assert some["metrics"]["d_raters"]["value"] == pytest.approx(columns["d_raters"][several].mean())
    assert f"of the {several.sum()} cases with two raters or more" in " ".join(captions(some))


def test_batches_do_not_matter_and_a_finished_evaluation_is_not_done_again(tmp_path):
    store, model = MemoryStore(), blur()
    evaluate(model, store, tmp_path / "a", SETTINGS)
    evaluate(model, store, tmp_path / "b", replace(SETTINGS, batch_size=7))
    assert figures(tmp_path / "a") == figures(tmp_path / "b")
    before = (tmp_path / "a" / "metrics.json").stat().st_mtime_ns
    calls = []
    again = evaluate(model, store, tmp_path / "a", SETTINGS, lambda done, total: calls.append((done, total)))
    assert calls == [(20, 20)]
    assert again == json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert (tmp_path / "a" / "metrics.json").stat().st_mtime_ns == before


def test_several_targets(tmp_path):
    store = MemoryStore(targets=("core", "rim"))
    result = evaluate(blur(store), store, tmp_path / "e", SETTINGS)
    columns = from_csv(tmp_path / "e" / "per_case.csv")
    assert len(columns["case"]) == 40
    for metric in ("ged_5", "hm_iou_5", "dice_slice", "dice_volume", "dice_patient", "ece"):
        both = [result["by_target"][target][metric] for target in store.targets]
        assert result["metrics"][metric]["value"] == pytest.approx(np.mean([of["value"] for of in both])), metric
        assert both[0]["value"] != both[1]["value"]
        assert all(of["low"] < of["value"] < of["high"] for of in both)
    for target in store.targets:
        own = columns["target"] == target
        assert result["by_target"][target]["ged_5"]["value"] == pytest.approx(columns["ged_5"][own].mean())
        # Dice by patient: all pixels of a patient together, by hand
        dice, truth = {}, {}
        for patient in set(columns["patient"]):
            here = own & (columns["patient"] == patient)
            names = ("pixels_both", "pixels_predicted", "pixels_majority")
            both_, predicted, truth[patient] = (columns[name][here].sum() for name in names)
            dice[patient] = 2 * both_ / (predicted + truth[patient]) if predicted + truth[patient] else 1
        found = result["by_target"][target]
        assert found["dice_patient"]["value"] == pytest.approx(np.mean(list(dice.values())))
        where = [dice[patient] for patient in dice if truth[patient]]
        assert found["dice_patient_marked"]["value"] == pytest.approx(np.mean(where))
        marked = {"cases": int((columns["pixels_majority"][own] > 0).sum()), "patients": len(where)}
        assert result["data"]["marked"][target] == marked
        # an empty answer has Dice 1 where this target is not marked, and 0 where it is
        empty = result["references_by_target"][target]["empty mask"]["dice_slice"]["value"]
        assert empty == pytest.approx(1 - marked["cases"] / 20)
        line = f"{target} in {marked['cases']} slices, {marked['patients']} patients"
        assert line in " ".join(captions(result))
    assert "dice_likeliest_slice" not in result["metrics"]
    header, *rows = tables_of(result)[1][0], *tables_of(result)[1][1]
    assert header == ["by target", "core", "rim", "mean over targets"]
    line = next(row for row in rows if row[0] == "GED 5")
    figures_ = [of["ged_5"]["value"] for of in (*result["by_target"].values(), result["metrics"])]
    assert line[1:] == [f"{value:.3f}" for value in figures_]
    table = (tmp_path / "e" / "table.md").read_text()
    assert "| target rim | value | 95 % interval | exact model |" in table
    assert "Targets are independent: each may lie anywhere." in table


def test_exclusive_targets_are_also_scored_by_the_likeliest_class(tmp_path):
    store = MemoryStore(targets=("core", "rim"))
    store.masks[:, :, 1] &= 1 - store.masks[:, :, 0]
    model = blur(store, spread=0.5)
    store.input_spec = replace(store.input_spec, kind="exclusive")
    model = replace(model, input_spec=store.input_spec)

    class Parted(type(model.segmenter)):
        """The left half of what it marks is the core, in some samples the rim."""

        def _sample(self, image, n, request):
            marked = super()._sample(image, n, request).clone()
            odd = (torch.arange(n) % 3 == 0).reshape(1, n, 1, 1)
            left = torch.arange(image.shape[-1]) < 8
            marked[:, :, 0] &= left | odd
            marked[:, :, 1] &= ~(left | odd)
            return marked

    model.segmenter.__class__ = Parted
    result = evaluate(model, store, tmp_path / "e", replace(SETTINGS, save_samples=True))
    masks, raters = torch.from_numpy(store.masks[:20]), torch.from_numpy(store.cases.raters[:20])
    samples = torch.stack(list(read_samples(tmp_path / "e").values()))
    counts = metrics.likeliest_counts(samples, masks, raters)
    expected = metrics.dice_from_counts(counts).mean(0)
    for k, target in enumerate(store.targets):
        found = result["by_target"][target]["dice_likeliest_slice"]["value"]
        assert found == pytest.approx(float(expected[k]))
    mean = result["metrics"]["dice_likeliest_patient"]
    assert mean["low"] < mean["value"] < mean["high"]
    assert result["data"]["kind"] == "exclusive"
    assert "| Dice of the likeliest class by patient |" in (tmp_path / "e" / "table.md").read_text()
    assert "Likeliest class: of the background and the targets" in " ".join(captions(result))
    # of a model whose targets may overlap there is no such class
    other = evaluate(blur(MemoryStore(targets=("core", "rim"))), store, tmp_path / "o", SETTINGS)
    assert "dice_likeliest_slice" not in other["metrics"]


KILLED = """
import sys
from dataclasses import replace
from itertools import combinations
from evaluation.test_evaluate import SETTINGS, MemoryStore, blur, evaluate
evaluate(blur(pause=0.3), MemoryStore(), sys.argv[1], replace(SETTINGS, save_samples=True))
"""


def test_killed_and_resumed_is_the_same_as_in_one_go(tmp_path):
    """kill -9 in the middle; what was done is not done again, and nothing but the times differs in the end."""
    store, model, settings = MemoryStore(), blur(), replace(SETTINGS, save_samples=True)
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
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
    evaluate(model, store, tmp_path / "killed", settings, lambda now, total: done.append(now))
    assert done[0] >= 8
    assert done[-1] == 20
    evaluate(model, store, tmp_path / "whole", settings)
    assert figures(tmp_path / "killed") == figures(tmp_path / "whole")
    names = [sorted(f.name for f in (tmp_path / e).iterdir()) for e in ("killed", "whole")]
    assert names[0] == names[1]
    chosen = store.indices("test")
    images = torch.from_numpy(store.read(chosen)[0])
    expected = sample_cases(model.segmenter, images, store.cases.case[chosen].tolist(), 5, crop=(12, 12))
    for folder in ("killed", "whole"):
        kept = read_samples(tmp_path / folder)
        assert list(kept) == store.cases.case[chosen].tolist()
        assert torch.equal(torch.stack(list(kept.values())), expected)


def test_another_evaluation_in_the_same_folder_is_refused(tmp_path):
    evaluate(blur(), MemoryStore(), tmp_path, SETTINGS)
    with pytest.raises(InputError, match=r"samples: there 5, now 4; pool: there 5, now 4; limit: there None, now 2"):
        evaluate(blur(), MemoryStore(), tmp_path, replace(SETTINGS, samples=4, limit=2))
    with pytest.raises(InputError, match="weights_sha256: there"):
        evaluate(blur(spread=0.2), MemoryStore(), tmp_path, SETTINGS)
    with pytest.raises(InputError, match="data_sha256: there"):
        evaluate(blur(), MemoryStore(seed=1), tmp_path, SETTINGS)


@pytest.mark.parametrize("name", ["thesis.tex", "samples/mine.npz", "metrics.json"])
def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("years of work")
    with pytest.raises(InputError, match="expected a new folder or one of this evaluation, found other files"):
        evaluate(blur(), MemoryStore(), tmp_path, SETTINGS)
    assert (tmp_path / name).read_text() == "years of work"


def test_what_does_not_work_is_one_sentence_and_leaves_nothing(tmp_path):
    """Settings, data or a model that do not fit; better ones then begin in the same folder."""
    out, four_channels, unmarked = tmp_path / "e", MemoryStore(), MemoryStore()
    four_channels.images = np.repeat(four_channels.images, 4, 1)
    unmarked.cases.raters[3] = 0
    of_two = MemoryStore(targets=("core", "rim"))
    bad = [
        (blur(), MemoryStore(), {"split": "train"}, "memory"),
        (blur(), MemoryStore(), {"samples": 0}, "--samples"),
        (blur(), MemoryStore(), {"batch_size": 0}, "--batch-size"),
        (blur(), MemoryStore(), {"limit": 0}, "--limit"),
        (blur(), MemoryStore(), {"set": "best"}, "--set"),
        (blur(), MemoryStore(), {"set": "systematic", "pool": 4}, "--pool"),
        (blur(), MemoryStore(), {"crop": 17}, "--crop"),
        (blur(), unmarked, {}, "case 3"),
        (blur(), four_channels, {}, "image"),
        (blur(of_two), MemoryStore(), {}, "targets"),
        (blur(of_two), MemoryStore(targets=("rim", "core")), {}, "memory"),
    ]
    for model, store, change, where in bad:
        with refused(where):
            evaluate(model, store, out, replace(SETTINGS, **change))
        assert not out.exists()
    with pytest.raises(KeyboardInterrupt):
        evaluate(blur(), MemoryStore(), out, SETTINGS, interrupt_at(4))
    (out / "parts" / "00000.json").unlink()  # killed before the first batch was whole
    (out / "parts").rmdir()
    evaluate(blur(), MemoryStore(), out, replace(SETTINGS, seed=5))
    assert json.loads((out / "settings.json").read_text())["seed"] == 5


def test_what_a_kill_left_half_written_is_removed_and_a_damaged_part_is_made_again(tmp_path):
    settings, out = replace(SETTINGS, save_samples=True), tmp_path / "e"
    with pytest.raises(KeyboardInterrupt):
        evaluate(blur(), MemoryStore(), out, settings, interrupt_at(16))
    parts = [out / "parts" / f"{number:05d}.json" for number in range(4)]
    parts[0].write_text("{")
    content = json.loads(parts[1].read_text())
    content["columns"]["ged_5"].pop()
    parts[1].write_text(json.dumps(content))
    (out / "samples" / "00002.npz").unlink()
    (out / "samples" / ".00004.npz.12345678.part").write_text("half")
    evaluate(blur(), MemoryStore(), out, settings)
    assert not list(out.glob("**/.*"))
    evaluate(blur(), MemoryStore(), tmp_path / "whole", settings)
    assert figures(out) == figures(tmp_path / "whole")
    assert len(read_samples(out)) == 20


@pytest.mark.parametrize("name", ["per_case.csv", "table.md"])
def test_a_finished_evaluation_that_lost_a_file_is_made_again(tmp_path, name):
    evaluate(blur(), MemoryStore(), tmp_path, SETTINGS)
    before = figures(tmp_path)
    (tmp_path / name).unlink()
    evaluate(blur(), MemoryStore(), tmp_path, SETTINGS)
    assert figures(tmp_path) == before
    assert (tmp_path / name).is_file()


def test_two_processes_share_the_batches_of_an_evaluation(tmp_path, monkeypatch):
    """Threads, whose locks shut each other out as those of processes do; each batch is drawn once but the first."""
    drawn: list[str] = []

    def noted(model, images, names, *rest, real=sample_cases, **more):
        drawn.extend(names)
        return real(model, images, names, *rest, **more)

    monkeypatch.setattr("berdiff.evaluation.evaluate.sample_cases", noted)
    monkeypatch.setattr("berdiff.evaluation.evaluate.SECONDS_BETWEEN_LOOKS", 0.01)
    slow, found = blur(pause=0.05), []

    def work() -> None:
        found.append(evaluate(slow, MemoryStore(), tmp_path / "two", SETTINGS))

    both = [threading.Thread(target=work) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert len(found) == 2
    assert found[0] == found[1]
    assert 20 <= len(drawn) <= 24, "all cases once, and perhaps the first batch by both"
    assert not list((tmp_path / "two").glob("**/.*"))
    monkeypatch.undo()
    evaluate(slow, MemoryStore(), tmp_path / "one", SETTINGS)
    assert figures(tmp_path / "two") == figures(tmp_path / "one")


def volumes_store() -> MemoryStore:
    """Every third case begins a volume; all have four raters."""
    store = MemoryStore()
    store.cases = replace(
        store.cases,
        volume=np.array([f"v{i // 3}" for i in range(len(store))], dtype=object),
        raters=np.full(len(store), 4),
    )
    return store


VOLUMES = replace(SETTINGS, by="volume", least_slices=3, coherence=10.0)


def test_volumes_are_scored_as_a_whole(tmp_path):
    store, model = volumes_store(), blur(volumes_store())
    result = evaluate(model, store, tmp_path / "e", VOLUMES)
    columns = from_csv(tmp_path / "e" / "per_case.csv")
    assert columns["case"].tolist() == [f"v{i}" for i in range(6)]  # the seventh has two slices in the split
    rho = correlation(NEIGHBOURS, 10.0)
    for row, name in enumerate(columns["case"]):
        chosen = np.flatnonzero(store.cases.volume == name)
        images, masks = map(torch.from_numpy, store.read(chosen))
        names = store.cases.case[chosen].tolist()
        samples = sample_cases(model.segmenter, images, names, 5, None, 0, "cpu", (12, 12), rho)
        s, y = (of[:, :, 0].transpose(0, 1).reshape(1, of.shape[1], 1, 1, -1) for of in (samples, masks))
        assert columns["ged_5"][row] == pytest.approx(float(metrics.ged(s, y)))
        assert columns["hm_iou_5"][row] == pytest.approx(float(metrics.hm_iou(s, y)))
        for column, of in (("size_gap_samples", s), ("size_gap_raters", y)):
            sizes = of.reshape(of.shape[1], -1).sum(1).tolist()
            gaps = [abs(a - b) for a, b in combinations(sizes, 2)]
            assert columns[column][row] == pytest.approx(np.mean(gaps))
    spread = result["size_spread"]
    ratio = columns["size_gap_samples"].sum() / columns["size_gap_raters"].sum()
    assert spread["ratio"]["value"] == pytest.approx(ratio)
    assert spread["ratio"]["low"] < ratio < spread["ratio"]["high"]
    assert not [name for name in result["metrics"] if "slice" in name]
    text = markdown(result)
    assert "difference in volume of" in text
    assert "correlate by exp(-1.25 mm / 10 mm)" in text
    assert "6 volumes of" in text


def test_volumes_of_one_slice_are_as_slices(tmp_path):
    """The length changes nothing for one slice; means over a batch of one are rounded otherwise than over four."""
    store = volumes_store()
    store.cases = replace(store.cases, volume=store.cases.case)
    evaluate(blur(store), store, tmp_path / "slices", SETTINGS)
    evaluate(blur(store), store, tmp_path / "volumes", replace(SETTINGS, by="volume"))
    slices, volumes = (from_csv(tmp_path / name / "per_case.csv") for name in ("slices", "volumes"))
    for name in slices.keys() - {"seconds"}:
        if slices[name].dtype == np.float64:
            np.testing.assert_allclose(volumes[name], slices[name], rtol=1e-12, atol=1e-12)
        else:
            assert slices[name].tolist() == volumes[name].tolist(), name


def test_volumes_that_cannot_be_scored_are_refused(tmp_path):
    ragged = volumes_store()
    ragged.cases = replace(ragged.cases, raters=np.array([1 + i % 3 for i in range(len(ragged))]))
    for store, settings, where in (
        (MemoryStore(), VOLUMES, "memory"),
        (volumes_store(), replace(VOLUMES, least_slices=9), "'test'"),
        (volumes_store(), replace(VOLUMES, by="slice", least_slices=None), "--coherence"),
        (ragged, VOLUMES, "v0"),
    ):
        with refused(where):
            evaluate(blur(store), store, tmp_path / "e", settings)

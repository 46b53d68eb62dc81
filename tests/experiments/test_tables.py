"""The paper's tables: killed and finished they are the same; claims are decided on shared slices."""

import csv
import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
from brats_writer import SMALL, case_folder

from berdiff.cli.main import main
from berdiff.cli.table import table as table_command
from berdiff.data.prepare import prepare
from berdiff.data.sources.brats import Options
from berdiff.data.store import open_store
from berdiff.diffusion.sampling import Sampler
from berdiff.errors import InputError
from berdiff.experiments.tables import kernel, methods, sampling, scale
from berdiff.experiments.tables.plan import plan
from berdiff.experiments.tables.registry import TABLES
from berdiff.experiments.tables.row import Claim, only
from berdiff.experiments.tables.run import run_table
from berdiff.experiments.tables.scale import Scale
from berdiff.experiments.tables.write import row_names
from berdiff.methods import folder as model_folder
from berdiff.training.config import TrainConfig, check, differences
from berdiff.training.runs import read_run
from training.standin import make_store

fork = multiprocessing.get_context("fork")  # children have torch already
TEXTS = ("table.md", "table.csv", "table.json")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_store(tmp_path_factory.mktemp("store"), train=6, val=3))


def tiny(address: str, steps: int = 4, slices: int | None = None) -> Scale:
    """The scale of the two cores with the smallest network, on 16x16."""
    made = scale.cpu(open_store(address), address, steps=steps, slices=slices)

    def shrunk(config: TrainConfig) -> TrainConfig:
        return replace(
            config,
            model=replace(config.model, preset="fast-tiny", T=20),
            data=replace(config.data, crop=None, augment=False),
            loop=replace(config.loop, batch_size=2, checkpoint_every=1, log_every=1),
        )

    points = replace(made.curves, every=2, cases=2, samples=2, sheet_cases=0)
    configs = {name: shrunk(getattr(made, name)) for name in ("ablation", "short", "long", "brats")}
    return replace(made, **configs, curves=points)


def make(name: str, address: str, out: Path, seeds: int = 1, **options) -> dict:
    return run_table(TABLES[name], tiny(address, **options), open_store(address), out, seeds)


@pytest.fixture(scope="module")
def whole(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table `kernel`, never interrupted."""
    out = tmp_path_factory.mktemp("whole") / "table"
    make("kernel", address, out, seeds=2)
    return out


# --- one table, from end to end --------------------------------------------------------------------------------------


def test_every_row_has_ours_and_the_papers_beside_it(whole: Path) -> None:
    result = json.loads((whole / "table.json").read_text())
    assert [row["name"] for row in result["rows"]] == [
        "gaussian-short",
        "bernoulli-short",
        "gaussian-long",
        "bernoulli-long",
    ]
    text = (whole / "table.md").read_text()
    for row in result["rows"]:
        assert row["slices"] == row["patients"] == 2
        assert row["metrics"].keys() == set(kernel.TABLE.metrics)
        assert f"| {' | '.join(row['label'])} | the paper's | {row['paper']['ged_16']:.3f} |" in text
        for metric, found in row["metrics"].items():
            assert found["value"] == pytest.approx(np.mean(row["by_seed"][metric]))
            assert found["low"] - 1e-9 <= found["value"] <= found["high"] + 1e-9
    for words in ("Scale cpu", "2 steps and 4 steps of training, 2 seeds", "split test", "2 slices of 2 patients"):
        assert words in text
    assert (whole / "table.png").read_bytes().startswith(b"\x89PNG")


def test_csv_has_every_figure_of_the_evaluations(whole: Path) -> None:
    with (whole / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    for seed in (0, 1):
        metrics = json.loads((whole / f"evaluations/gaussian-long-seed-{seed}/metrics.json").read_text())["metrics"]
        (found,) = (
            row
            for row in rows
            if (row["training"], row["kernel"], row["seed"], row["metric"]) == ("long", "Gaussian", str(seed), "ged_16")
        )
        assert float(found["value"]) == metrics["ged_16"]["value"]
        assert (found["whose"], found["training steps"]) == ("ours", "4")
    assert {row["whose"] for row in rows} == {"ours", "the paper's", "reference"}


def test_short_training_is_the_long_one_half_way(whole: Path) -> None:
    """One run, trained on; the short row's model is that of half the steps and the long row's that of all."""
    for kind, method in (("bernoulli", "berdiff"), ("gaussian", "gaussian")):
        run = read_run(whole / f"runs/{kind}-seed-1")
        assert [row["step"] for row in run.of_kind("train")] == [1, 2, 3, 4]
        assert [row["step"] for row in run.of_kind("validation")] == [2, 4]
        steps = {
            training: json.loads((whole / f"models/{kind}-{training}-seed-1/trained.json").read_text())["step"]
            for training in ("short", "long")
        }
        assert steps == {"short": 2, "long": 4}
        short, long = (model_folder.load(whole / f"models/{kind}-{training}-seed-1") for training in steps)
        assert short.config()["method"] == long.config()["method"] == method
        assert any(bool((a != b).any()) for a, b in zip(short.parameters(), long.parameters(), strict=True))
        assert long.weights_sha256 == model_folder.load(run.path).weights_sha256


def test_what_is_done_is_not_done_again(address: str, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: (whole / name).read_bytes() for name in TEXTS}

    def never(*args, **kwargs):
        raise AssertionError("done again")

    monkeypatch.setattr("berdiff.experiments.tables.run.train", never)
    monkeypatch.setattr("berdiff.evaluation.evaluate.score_cases", never)
    make("kernel", address, whole, seeds=2)
    assert {name: (whole / name).read_bytes() for name in TEXTS} == before


# --- killed ----------------------------------------------------------------------------------------------------------


def _child(address: str, out: Path, kill_at: int, count: Path | None) -> None:
    """Make the table; die like a power cut just before the n-th file is put in place, or write down how many were."""
    replaced, calls = os.replace, 0

    def or_die(*args):
        nonlocal calls
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return replaced(*args)

    os.replace = or_die
    make("kernel", address, out, seeds=2)
    if count is not None:
        count.write_text(str(calls))


def _run(address: str, out: Path, kill_at: int = -1, count: Path | None = None) -> int | None:
    process = fork.Process(target=_child, args=(address, out, kill_at, count))
    process.start()
    process.join(300)
    return process.exitcode


@pytest.fixture(scope="module")
def files_in_place(address: str, tmp_path_factory: pytest.TempPathFactory) -> int:
    folder = tmp_path_factory.mktemp("count")
    assert _run(address, folder / "table", count=folder / "count") == 0
    return int((folder / "count").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.35, 0.6, 0.85, 0.99])
def test_a_table_killed_and_run_again_is_the_same(
    address: str, whole: Path, files_in_place: int, tmp_path: Path, share: float
) -> None:
    out = tmp_path / "table"
    assert _run(address, out, kill_at=int(share * files_in_place)) == -signal.SIGKILL
    assert not (out / "table.json").exists()
    assert _run(address, out) == 0
    for name in TEXTS:
        assert (out / name).read_text() == (whole / name).read_text()


def test_one_row_killed_in_its_evaluation(address: str, whole: Path, tmp_path: Path, monkeypatch) -> None:
    """The quick one of these: it stops in the third row, and the same command finishes with the same figures."""
    from berdiff.evaluation import evaluate

    score, calls = evaluate.score_cases, 0

    def stop(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 5:  # one batch a row and seed
            raise KeyboardInterrupt
        return score(*args, **kwargs)

    monkeypatch.setattr(evaluate, "score_cases", stop)
    with pytest.raises(KeyboardInterrupt):
        make("kernel", address, tmp_path / "table", seeds=2)
    assert not (tmp_path / "table/table.md").exists()
    make("kernel", address, tmp_path / "table", seeds=2)
    for name in TEXTS:
        assert (tmp_path / "table" / name).read_text() == (whole / name).read_text()


# --- the other tables ------------------------------------------------------------------------------------------------


def test_a_given_model_is_judged_by_every_rule_on_nested_slices(address: str, whole: Path, tmp_path: Path) -> None:
    rules = [("ddpm-soft", 2), ("ddpm-marginal", 2), ("ddim-1", 2), ("ddim-1", 5), ("ddim-0", 5)]
    few = Claim("five steps are better than two", "ddim-1-5", "ddim-1-2")
    table = replace(sampling.TABLE, rows=tuple(sampling.row_of(rule, steps) for rule, steps in rules), claims=(few,))
    size = replace(tiny(address), slices=((2, 2), (5, 1)))
    model = str(whole / "runs/bernoulli-seed-0")
    result = run_table(table, size, open_store(address), tmp_path / "table", 1, model)
    assert not (tmp_path / "table/runs").exists()
    assert [row["slices"] for row in result["rows"]] == [2, 2, 2, 1, 1]
    (claim,) = result["claims"]
    assert claim["slices"] == 1
    assert row_names(result["rows"])[2:4] == ["DDIM, sigma 1, 2 (2 slices)", "DDIM, sigma 1, 5 (1 slices)"]
    assert row_names(result["rows"][:2]) == ["DDPM, soft, 2", "DDPM, exact marginal, 2"]
    read = [
        {row["case"]: float(row["ged_16"]) for row in csv.DictReader((tmp_path / f"table/evaluations/{n}").open())}
        for n in ("ddim-1-5-seed-0/per_case.csv", "ddim-1-2-seed-0/per_case.csv")
    ]
    assert read[0].keys() < read[1].keys()
    (case,) = read[0]
    assert claim["metrics"]["ged_16"]["difference"]["value"] == pytest.approx(read[1][case] - read[0][case])
    assert model in (tmp_path / "table/table.md").read_text()
    with (tmp_path / "table/table.csv").open() as file:
        assert {row["steps"] for row in csv.DictReader(file) if row["whose"] == "ours"} == {"2", "5"}


def test_what_another_table_has_done_is_taken_from_there(address: str, whole: Path, tmp_path: Path) -> None:
    """BCE + KL is a row of both tables; taken over, it leaves the same figures as when made anew."""
    own, lent = tmp_path / "own", tmp_path / "lent"
    make("losses", address, own)
    run_table(TABLES["losses"], tiny(address), open_store(address), lent, 1, also=(whole,))
    assert not (lent / "runs/both-seed-0").exists()
    assert (lent / "runs/mask-seed-0").is_dir()
    for name in TEXTS:
        assert (lent / name).read_text() == (own / name).read_text()
    assert json.loads((lent / "evaluations/both-seed-0/metrics.json").read_text())["model"] == "both-seed-0"
    make("losses", address, lent)  # what was taken is its own now


def test_some_rows_are_a_table_of_those_rows_and_their_claims(address: str, whole: Path, tmp_path: Path) -> None:
    few = only(TABLES["sampling"], tiny(address), ("dd*-2", "ddim-1-10"))
    assert [row(tiny(address)).name for row in few.rows if "ddim-1" in row(tiny(address)).name] == [
        "ddim-1-2",
        "ddim-1-10",
    ]
    assert {(claim.better, claim.worse) for claim in few.claims} == {
        ("ddim-1-2", "ddpm-soft-2"),
        ("ddim-1-10", "ddim-1-2"),
        ("ddpm-marginal-2", "ddpm-soft-2"),
        ("ddim-1-2", "ddim-0-2"),
        ("ddim-shared-2", "ddim-1-2"),
    }
    one = only(TABLES["sampling"], tiny(address), ("ddim-1-2",))
    run_table(one, tiny(address), open_store(address), tmp_path / "t", 1, str(whole / "runs/bernoulli-seed-0"))
    text = (tmp_path / "t/table.md").read_text()
    assert "DDIM, sigma 1 | 2 | ours" in text
    assert "Claims" not in text


def test_rows_of_one_model_train_it_once(address: str, tmp_path: Path) -> None:
    rows = (sampling.row_of("ddpm-soft", 2), sampling.row_of("ddim-1", 2))
    table = replace(sampling.TABLE, rows=rows, claims=())
    result = run_table(table, tiny(address, steps=2), open_store(address), tmp_path / "table", 1)
    assert [path.name for path in (tmp_path / "table/models").iterdir()] == ["model-seed-0"]
    assert [row["steps"] for row in result["rows"]] == [[2], [2]]
    assert len(json.loads((tmp_path / "table/runs/model-seed-0/environment.json").read_text())) == 1  # sessions
    assert result["rows"][0]["paper"]["ged_16"] == 0.441


def test_brats_from_end_to_end_and_one_patient_is_a_smoke_figure(tmp_path: Path) -> None:
    case_folder(tmp_path / "data")
    prepare("brats", tmp_path / "data", tmp_path / "store.zarr", Options(**SMALL))
    address = str(tmp_path / "store.zarr")
    assert scale.splits(open_store(address)) == ("all", "all")
    result = run_table(TABLES["brats"], tiny(address, steps=2), open_store(address), tmp_path / "table", 1)
    assert [row["label"] for row in result["rows"]] == [[method.label] for method in methods.METHODS.values()]
    assert {row["patients"] for row in result["rows"]} == {1}
    assert result["rows"][0]["metrics"].keys() == {"dice_slice", "dice_volume", "dice_patient"}
    kept = [model_folder.load(tmp_path / f"table/models/{name}-seed-0") for name in methods.METHODS]
    assert [model.config()["method"] for model in kept] == list(methods.METHODS)
    assert len({sum(p.numel() for p in model.parameters()) for model in kept}) == 1  # the same network, to a weight
    assert any(line.startswith("A SMOKE FIGURE") for line in result["caption"])
    assert {claim["metrics"]["dice_slice"]["verdict"] for claim in result["claims"]} == {"undecided"}
    assert "| nnU-net | the paper's | 0.882 |" in (tmp_path / "table/table.md").read_text()


# --- what is asked ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_both_scales_have_valid_rows_and_shared_runs_go_on(name: str, address: str) -> None:
    store = open_store(address)
    for size in (scale.cpu(store, address), scale.paper(store, address)):
        rows = [row(size) for row in TABLES[name].rows]
        assert len({row.name for row in rows}) == len(rows)
        assert {c.better for c in TABLES[name].claims} | {c.worse for c in TABLES[name].claims} <= {
            r.name for r in rows
        }
        runs: dict[str, TrainConfig] = {}
        for row in rows:
            check(row.config)
            assert len(row.label) == len(TABLES[name].heads)
            earlier = runs.setdefault(row.run, row.config)
            assert differences(earlier, row.config) == []
            loops = [(c.loop.max_steps, c.loop.max_minutes or 0) for c in (earlier, row.config)]
            assert loops[0] <= loops[1]
            runs[row.run] = row.config


def test_the_papers_iterations_and_the_slices_that_are_asked_for(address: str) -> None:
    store = open_store(address)
    paper, cpu = scale.paper(store, address), scale.cpu(store, address, minutes=12)
    steps = {row(paper).name: row(paper).config.loop.max_steps for row in kernel.TABLE.rows}
    assert steps == {n: 21_000 if "short" in n else 86_500 for n in steps}
    minutes = {row(cpu).name: row(cpu).config.loop.max_minutes for row in kernel.TABLE.rows}
    assert minutes == {n: 6 if "short" in n else 12 for n in minutes}
    limits = {n: cpu.settings(cpu.ablation, Sampler(n)).limit for n in (2, 10, 100, 1000)}
    assert limits == {2: 300, 10: 300, 100: 100, 1000: 24}
    assert paper.settings(paper.ablation, Sampler(1000)).limit is None
    assert [scale.cpu(store, address, steps=steps).curves.every for steps in (2000, 500, 3)] == [200, 50, 1]
    gaussian = kernel.gaussian_short(cpu)
    assert gaussian.settings.sampler.sigma == 0
    assert kernel.bernoulli_short(cpu).settings.sampler.sigma == 1
    assert gaussian.settings.crop == 64


def test_the_command_names_every_table() -> None:
    named = get_type_hints(table_command)["name"]
    assert set(get_args(named)) == set(TABLES)


def test_dry_run_checks_and_writes_nothing(address: str, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    entries = plan(TABLES["kernel"], tiny(address), open_store(address), out, 2)
    assert len(entries) == 8
    assert entries[0]["row"] == "gaussian-short"  # as --rows takes it
    assert {entry["network_passes"] for entry in entries} == {2 * 16 * 10}
    assert {entry["state"] for entry in entries} == {"to do"}
    assert not out.exists()
    with pytest.raises(InputError, match="no-model: expected the folder of a run or of a model"):
        plan(TABLES["sampling"], tiny(address), open_store(address), out, 1, "no-model")
    # the real scale cannot take the centre 64x64 of 16x16 images, and says so
    assert main(["table", "losses", "--data", address, "--out", str(out), "--dry-run"]) == 2
    assert "--crop: expected 1 to 16, the size of the images, found 64" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["losses", "--minutes", "16"], "--minutes: expected more than 0 and at most 15, found 16"),
        (["losses", "--minutes", "5", "--steps", "9"], "--minutes and --steps: expected one of them"),
        (["losses", "--steps", "1"], "--steps: expected at least 2"),
        (["losses", "--scale", "paper", "--minutes", "5"], "expected none with --scale paper"),
        (["losses", "--seeds", "0"], "--seeds: expected at least 1, found 0"),
        (["losses", "--slices", "0"], "--slices: expected at least 1, found 0"),
        (["losses", "--model", "lidc"], "--model: expected none for the table losses"),
        (["sampling", "--model", "lidc", "--seeds", "2"], "--seeds: expected 1 with --model"),
        (
            ["losses", "--also", "nowhere"],
            "--also: expected the folder of a table with evaluations, found nowhere",
        ),
        (["losses", "--rows", "kl", "ce"], "--rows: expected rows of losses (kl, bce, both, mask), found ce"),
    ],
)
def test_bad_input_is_one_sentence(address: str, options, words: str, capsys, tmp_path: Path) -> None:
    assert main(["table", *options, "--data", address, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_another_training_in_the_same_folder_is_refused(address: str, whole: Path) -> None:
    with pytest.raises(InputError, match=r"gaussian-short-seed-0: expected a model trained as is asked now.*max-steps"):
        make("kernel", address, whole, steps=6)


def test_a_lost_short_model_is_not_taken_from_a_longer_run(address: str, tmp_path: Path) -> None:
    out = tmp_path / "table"
    make("kernel", address, out)
    shutil.rmtree(out / "models/bernoulli-short-seed-0")
    with pytest.raises(InputError, match="bernoulli-seed-0: expected a run no longer than this row's"):
        make("kernel", address, out)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_curves_of_the_kernels(whole: Path, tmp_path: Path, capsys) -> None:
    assert main(["figure", "curves", str(whole), "--out", str(tmp_path / "curves")]) == 0
    with (tmp_path / "curves/curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2  # kernels, seeds, validations
    stats = read_run(whole / "runs/gaussian-seed-0").of_kind("validation")
    of_run = [row for row in rows if row["run"] == "gaussian-seed-0"]
    assert [float(row["ged"]) for row in of_run] == [row["ged"] for row in stats]
    assert (tmp_path / "curves/curves.png").stat().st_size > 1000
    assert main(["figure", "curves", str(tmp_path), "--out", str(tmp_path / "x")]) == 2


@pytest.mark.parametrize("figure", ["examples-lidc", "examples-brats"])
def test_examples_of_several_models(address: str, whole: Path, tmp_path: Path, figure: str, capsys) -> None:
    models = [str(whole / f"models/{name}-long-seed-0") for name in ("bernoulli", "gaussian")]
    out = tmp_path / "examples.png"
    assert (
        main(["figure", figure, *models, "--data", address, "--out", str(out), "--samples", "3", "--cases", "1"]) == 0
    )
    assert out.read_bytes().startswith(b"\x89PNG")
    assert main(["figure", figure, *models, "--data", address, "--out", str(tmp_path / "examples.jpg")]) == 2

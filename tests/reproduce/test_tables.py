"""The paper's tables: killed and finished they are the same; claims are decided on shared slices."""

import csv
import json
import multiprocessing
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from brats_writer import SMALL, case_folder

from berdiff.data.prepare import prepare
from berdiff.data.sources.brats import Options
from berdiff.data.store import open_store
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.evaluation_folder import read_result
from berdiff.methods import folder as model_folder
from berdiff.methods.config import METHODS
from berdiff.recipes import RECIPES
from berdiff.recipes.recipe import Recipe
from berdiff.training.config import check, differences
from berdiff.training.run_folder import read_run
from fakes import StandIn, make_store
from reproduce.tables import TABLES, kernel, losses, sampling, scale
from reproduce.tables.run import TableJob, plan, run_table
from reproduce.tables.spec import Claim, TableRow, of_recipes, select_rows
from reproduce.tables.write import row_names
from small_tables import job, tiny

fork = multiprocessing.get_context("fork")  # children have torch already
TEXTS = ("table.md", "table.csv", "table.json")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_store(tmp_path_factory.mktemp("store"), train=6, val=3))


@pytest.fixture(scope="module")
def whole(address: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table `kernel`, never interrupted."""
    out = tmp_path_factory.mktemp("whole") / "table"
    run_table(job("kernel", address, out, seeds=2))
    return out


# --- one table, from end to end --------------------------------------------------------------------------------------


def test_every_row_has_ours_and_the_papers_beside_it(whole: Path) -> None:
    result = json.loads((whole / "table.json").read_text())
    names = [row["name"] for row in result["rows"]]
    assert names == ["gaussian-short", "bernoulli-short", "gaussian-long", "bernoulli-long"]
    assert [row["sampler"]["sigma"] for row in result["rows"]] == [0, 1, 0, 1]  # each method's own
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
    with (whole / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["whose"] for row in rows} == {"ours", "the paper's", "reference"}
    for seed in (0, 1):
        metrics = read_result(whole / f"evaluations/gaussian-long-seed-{seed}")["metrics"]
        wanted = {"training": "long", "kernel": "Gaussian", "seed": str(seed), "metric": "ged_16"}
        (found,) = (row for row in rows if wanted.items() <= row.items())
        assert float(found["value"]) == metrics["ged_16"]["value"]
        assert (found["whose"], found["training steps"]) == ("ours", "4")


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
        assert short.config.method == long.config.method == method
        assert any(bool((a != b).any()) for a, b in zip(short.parameters(), long.parameters(), strict=True))
        assert long.weights_sha256 == model_folder.load(run.path).weights_sha256


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
    run_table(job("kernel", address, out, seeds=2))
    if count is not None:
        count.write_text(str(calls))


def _run(address: str, out: Path, kill_at: int = -1, count: Path | None = None) -> int | None:
    process = fork.Process(target=_child, args=(address, out, kill_at, count))
    process.start()
    process.join(300)
    return process.exitcode


@pytest.mark.slow
def test_a_table_killed_at_any_time_and_run_again_is_the_same(address: str, whole: Path, tmp_path: Path) -> None:
    assert _run(address, tmp_path / "counted", count=tmp_path / "count") == 0
    files = int((tmp_path / "count").read_text())
    for share in (0.15, 0.6, 0.97):
        out = tmp_path / f"killed-{share}"
        assert _run(address, out, kill_at=int(share * files)) == -signal.SIGKILL
        assert not (out / "table.json").exists()
        assert _run(address, out) == 0
        for name in TEXTS:
            assert (out / name).read_text() == (whole / name).read_text()


def test_one_row_killed_in_its_evaluation(address: str, whole: Path, tmp_path: Path, monkeypatch) -> None:
    """The quick one of these: it stops in the third row, and the same command finishes with the same figures."""
    from berdiff.evaluation import evaluate

    sample, calls = evaluate.sample_cases, 0

    def stop(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 5:  # one batch per row and seed
            raise KeyboardInterrupt
        return sample(*args, **kwargs)

    monkeypatch.setattr(evaluate, "sample_cases", stop)
    killed = job("kernel", address, tmp_path / "table", seeds=2)
    with pytest.raises(KeyboardInterrupt):
        run_table(killed)
    assert not (tmp_path / "table/table.md").exists()
    run_table(killed)
    for name in TEXTS:
        assert (tmp_path / "table" / name).read_text() == (whole / name).read_text()
    shutil.rmtree(tmp_path / "table/models/bernoulli-short-seed-0")
    with pytest.raises(InputError, match="bernoulli-seed-0: expected a run no longer than this row's"):
        run_table(killed)


# --- the other tables ------------------------------------------------------------------------------------------------


def test_a_given_model_is_evaluated_by_every_rule_on_nested_slices(address: str, whole: Path, tmp_path: Path) -> None:
    rules = [("ddpm-soft", 2), ("ddpm-marginal", 2), ("ddim-1", 2), ("ddim-1", 5), ("ddim-0", 5)]
    few = Claim("five steps are better than two", "ddim-1-5", "ddim-1-2")
    table = replace(sampling.TABLE, rows=tuple(sampling.make_row(*rule) for rule in rules), claims=(few,))
    model = str(whole / "runs/bernoulli-seed-0")
    asked = job(table, address, tmp_path / "table", model=model)
    result = run_table(replace(asked, scale=replace(asked.scale, slices=((2, 2), (5, 1)))))
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
    own, reused = tmp_path / "own", tmp_path / "reused"
    run_table(job("losses", address, own))
    result = run_table(job("losses", address, reused, also=(whole,)))
    assert not (reused / "runs/both-seed-0").exists()
    assert (reused / "runs/mask-seed-0").is_dir()
    for name in TEXTS:
        assert (reused / name).read_text() == (own / name).read_text()
    assert read_result(reused / "evaluations/both-seed-0")["model"] == "both-seed-0"
    run_table(job("losses", address, reused))  # what was taken is its own now
    # the KL row's model is evaluated twice: as the paper does, and by the soft rule that its loss is made for
    assert not (own / "models/kl-soft-ddpm-seed-0").exists()
    soft, kl = (read_result(own / f"evaluations/{name}-seed-0") for name in ("kl-soft-ddpm", "kl"))
    assert soft["weights_sha256"] == kl["weights_sha256"]
    assert (soft["settings"]["sampler"]["rule"], soft["settings"]["sampler"]["last_step"]) == ("ddpm", "sample")
    assert kl["settings"]["sampler"]["rule"] == "ddim"
    assert [row["paper"] is None for row in result["rows"]] == [False, True, False, False, False]


def test_kept_rows_need_neither_weights_nor_the_same_machine(address: str, tmp_path: Path, monkeypatch) -> None:
    """Two rows made one after the other in different folders: together, elsewhere, without any weights, the table."""
    table, kept, copy = TABLES["lidc"], tmp_path / "kept", tmp_path / "copy"
    run_table(job(table, address, tmp_path / "whole", steps=2))
    run_table(job(select_rows(table, ("unet",)), address, tmp_path / "a", steps=2, kept=kept))
    run_table(job(select_rows(table, ("berdiff", "gaussian")), address, tmp_path / "b", steps=2, kept=kept))
    assert sorted(path.name for path in kept.iterdir()) == ["berdiff-seed-0", "gaussian-seed-0", "unet-seed-0"]
    files = {"metrics.json", "per_case.csv", "trained.json", "environment.json"}
    assert all({path.name for path in row.iterdir()} == files for row in kept.iterdir())
    assert not any(address in path.read_text() for path in kept.rglob("*.json"))
    (session,) = json.loads((tmp_path / "a/runs/unet-seed-0/environment.json").read_text())
    assert session.pop("command")  # names folders
    assert json.loads((kept / "unet-seed-0/environment.json").read_text()) == [session]

    def never(*args, **kwargs):
        raise AssertionError("made again")

    shutil.copytree(Path(address), tmp_path / "elsewhere")
    monkeypatch.setattr("reproduce.tables.run.train", never)
    asked = job(table, str(tmp_path / "elsewhere"), copy, steps=2, kept=kept)
    assert [entry["state"] for entry in plan(asked)] == ["kept", "kept", "kept"]
    run_table(asked)
    for name in TEXTS:
        assert (copy / name).read_text() == (tmp_path / "whole" / name).read_text()
    assert not (copy / "models").exists()


def test_kept_rows_of_another_training_data_or_evaluation_are_refused(address: str, tmp_path: Path) -> None:
    table, kept = select_rows(TABLES["lidc"], ("unet",)), tmp_path / "kept"
    asked = job(table, address, tmp_path / "a", steps=2, kept=kept)
    run_table(asked)
    (tmp_path / "other").mkdir()
    other = str(make_store(tmp_path / "other", train=7, val=3))
    for change, words in (
        (job(table, address, tmp_path / "b", steps=3, kept=kept), "trained as is asked now.*max-steps: there 2, now 3"),
        (job(table, other, tmp_path / "b", steps=2, kept=kept), "evaluated as is asked now.*data_sha256: there"),
        (replace(asked, scale=replace(asked.scale, samples=8)), "evaluated as is asked now.*samples: there 16, now 8"),
    ):
        with pytest.raises(InputError, match=f"unet-seed-0: expected a row {words}"):
            run_table(change)
    with pytest.raises(InputError, match="--kept: expected none with --model"):
        job("sampling", address, tmp_path / "b", model="lidc", kept=kept).check()


def test_some_rows_are_a_table_of_those_rows_and_their_claims() -> None:
    few = select_rows(sampling.TABLE, ("dd*-2", "ddim-1-10"))
    assert [row.name for row in few.rows if "ddim-1" in row.name] == ["ddim-1-2", "ddim-1-10"]
    assert {(claim.better, claim.worse) for claim in few.claims} == {
        ("ddim-1-2", "ddpm-soft-2"),
        ("ddim-1-10", "ddim-1-2"),
        ("ddpm-marginal-2", "ddpm-soft-2"),
        ("ddim-1-2", "ddim-0-2"),
        ("ddim-shared-2", "ddim-1-2"),
    }
    with pytest.raises(InputError, match=r"--rows: expected rows of losses \(kl, kl-soft-ddpm, .*\), found stand-in"):
        select_rows(losses.TABLE, ("stand-in",))  # only the tables of methods take any method


def test_any_method_is_a_row_by_its_name(address: str, tmp_path: Path) -> None:
    """A plug-in's too: with its own configuration, what it shares with BerDiff's taken from there, and no steps."""
    table = select_rows(TABLES["lidc"], ("unet", "stand-in"))
    asked = job(table, address, tmp_path / "table", steps=2)
    assert asked.scale.config(table.rows[1]).model == StandIn()
    assert [entry["sampler"] for entry in plan(asked)] == ["one pass", "one pass"]
    result = run_table(asked)
    assert [row["label"] for row in result["rows"]] == [["U-net, the same network"], ["stand-in"]]
    assert [row["sampler"] for row in result["rows"]] == [None, None]
    assert "| stand-in | ours |" in (tmp_path / "table/table.md").read_text()
    with pytest.raises(InputError, match=r"--rows: expected rows of lidc \(berdiff, .*stand-in.*\), found nonsense"):
        select_rows(TABLES["lidc"], ("nonsense",))


def test_brats_from_end_to_end_and_one_patient_is_a_smoke_figure(tmp_path: Path) -> None:
    case_folder(tmp_path / "data")
    prepare("brats", tmp_path / "data", tmp_path / "store.zarr", Options(**SMALL))
    address = str(tmp_path / "store.zarr")
    assert scale.splits(open_store(address)) == ("all", "all")
    result = run_table(job("brats", address, tmp_path / "table", steps=2))
    names = [row["name"] for row in result["rows"]]
    assert names == ["berdiff", "gaussian", "unet"]
    assert {row["patients"] for row in result["rows"]} == {1}
    by = {"dice_slice", "dice_volume", "dice_patient"}
    assert result["rows"][0]["metrics"].keys() == by | {"dice_slice_marked", "dice_patient_marked"}
    kept = [model_folder.load(tmp_path / f"table/models/{name}-seed-0") for name in names]
    assert [model.config.method for model in kept] == names
    assert len({sum(p.numel() for p in model.parameters()) for model in kept}) == 1  # the same network, to a weight
    assert any(line.startswith("A SMOKE FIGURE") for line in result["caption"])
    assert {claim["metrics"]["dice_slice"]["verdict"] for claim in result["claims"]} == {"undecided"}
    assert "| nnU-net | the paper's | 0.882 |" in (tmp_path / "table/table.md").read_text()


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_both_scales_have_valid_rows_and_shared_runs_resume(address: str) -> None:
    store = open_store(address)
    for size in (scale.cpu(store, address), scale.paper(store, address)):
        for table in TABLES.values():
            names = {row.name for row in table.rows}
            assert len(names) == len(table.rows)
            assert {name for claim in table.claims for name in (claim.better, claim.worse)} <= names
            runs = {}
            for row in table.rows:
                config = check(size.config(row))
                assert len(row.label) == len(table.heads)
                earlier = runs.setdefault(row.run or row.name, config)
                assert differences(earlier, config) == []
                loops = [(c.loop.max_steps, c.loop.max_minutes or 0) for c in (earlier, config)]
                assert loops[0] <= loops[1]
                runs[row.run or row.name] = config


def test_the_papers_iterations_and_the_slices_that_are_asked_for(address: str) -> None:
    store = open_store(address)
    paper, cpu = scale.paper(store, address), scale.cpu(store, address, minutes=12)
    for row in kernel.TABLE.rows:
        assert paper.config(row).loop.max_steps == (21_000 if row.training == "short" else 86_500)
        assert cpu.config(row).loop.max_minutes == (6 if row.training == "short" else 12)
        assert cpu.config(row).data.crop == 64
    limits = {n: cpu.evaluation(Sampler(n)).limit for n in (2, 10, 100, 1000)}
    assert limits == {2: 300, 10: 300, 100: 100, 1000: 24}
    assert cpu.evaluation(None).limit == 300
    assert paper.evaluation(Sampler(1000)).limit is None
    assert [scale.cpu(store, address, steps=steps).curves.every for steps in (2000, 500, 3)] == [200, 50, 1]


@pytest.mark.parametrize(("name", "size"), [("lidc", "128"), ("brats", "224")])
def test_at_the_papers_scale_a_method_is_that_of_its_paper_recipe(name: str, size: str, address: str) -> None:
    """But for the size of the images, by which the diffusion's U-Net goes; length and optimiser are the table's."""
    paper = scale.paper(open_store(address), address)
    methods = [name for name in METHODS.ours if f"{name}-paper" in RECIPES]
    assert len(methods) == 15
    table = select_rows(TABLES[name], ("berdiff", "gaussian", *methods))
    base = paper.config(table.rows[0])
    for row in table.rows:
        config = check(paper.config(row))
        assert replace(config, model=base.model) == base
        if row.name in methods:
            stated = RECIPES[f"{row.name}-paper"].config.model
            # MedSegDiff has one published size, whose filters fit images of any
            sized = stated.preset.startswith("paper-") and row.name != "medsegdiff"
            assert config.model == replace(stated, preset=f"paper-{size}" if sized else stated.preset)
    assert RECIPES["segdiff-brats-paper"].config.model == replace(
        RECIPES["segdiff-paper"].config.model, preset="paper-224"
    )


def test_a_method_without_a_published_size_is_no_row_of_the_papers_scale(address: str, tmp_path: Path) -> None:
    store, table = open_store(address), select_rows(TABLES["lidc"], ("unet", "stand-in"))
    asked = TableJob(table, scale.paper(store, address), store, tmp_path / "table")
    words = "^--scale paper: expected a preset paper for the row stand-in of the method stand-in, found none$"
    with pytest.raises(InputError, match=words):  # before the row above it is trained
        asked.check()


def test_a_plan_checks_and_writes_nothing(address: str, tmp_path: Path) -> None:
    entries = plan(job("kernel", address, tmp_path / "out", seeds=2))
    assert len(entries) == 8
    assert entries[0]["row"] == "gaussian-short"  # as --rows takes it
    assert {entry["network_passes"] for entry in entries} == {2 * 16 * 10}
    assert {entry["state"] for entry in entries} == {"to do"}
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="no-model: expected the folder of a run or of a model"):
        plan(job("sampling", address, tmp_path / "out", model="no-model"))


# --- every method by its own recipe ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lidc", "brats"])
def test_compared_methods_have_recipes_of_one_budget_and_a_claim_each(name: str, address: str) -> None:
    table, store = of_recipes(TABLES[name]), open_store(address)
    own = scale.recipes(store, address)
    loops = [own.config(row, seed=3) for row in table.rows]
    assert len({config.loop.max_cpu_minutes for config in loops}) == 1  # a comparison is of equal budgets
    assert {(config.seed, config.data.store, config.engine.devices) for config in loops} == {(3, address, "1")}
    assert {config.validation.every for config in loops} == {0}  # all of the budget is training
    names = [row.name for row in table.rows]
    ours = [name for name in names if name.startswith("berdiff")]  # our recipe, and on LIDC the paper's way
    pairs = [(claim.better, claim.worse) for claim in table.claims]
    assert pairs == [(one, other) for one in ours for other in names[names.index(one) + 1 :]]
    (segdiff,) = [claim for claim in table.claims if claim.worse.startswith("segdiff") and claim.better == ours[-1]]
    assert segdiff.whose == "the paper"
    assert all(claim.whose == "ours" for claim in table.claims if claim.worse in ("ssn", "mose", "mednext"))
    assert not table.others  # every row of the paper's is one of ours
    assert {row.label[0] for row in table.rows if row.paper} >= {"SegDiff"}
    assert "CPU minutes" in own.training(table.rows)


def test_a_table_of_recipes_is_trained_by_them(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = tiny(address).trainings["ablation"]
    brief = Recipe("berdiff-brief-cpu", "Brief.", "none", "none", training)
    monkeypatch.setitem(scale.RECIPES, "berdiff-brief-cpu", brief)
    rows = tuple(TableRow(name, (name,), recipe="berdiff-brief") for name in ("one", "two"))
    table = of_recipes(replace(TABLES["lidc"], compared=rows))
    made = job(table, address, tmp_path / "out")
    store = open_store(address)
    result = run_table(replace(made, scale=scale.recipes(store, address)))
    assert [row["name"] for row in result["rows"]] == ["one", "two"]
    assert "every method by its own recipe METHOD-cpu, 4 steps of training" in result["caption"][0]
    (claim,) = result["claims"]
    assert {one["verdict"] for one in claim["metrics"].values()} == {"undecided"}  # the two are the same


def test_recipes_have_their_own_length_and_tables(address: str) -> None:
    with pytest.raises(InputError, match="--minutes and --steps: expected none with --scale recipes"):
        scale.recipes(open_store(address), address, minutes=3)
    with pytest.raises(InputError, match="--scale: expected cpu or paper for the table losses, found recipes"):
        of_recipes(TABLES["losses"])

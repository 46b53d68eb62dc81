"""The paper's BraTS model opens a store made by the paper's rules."""

from brats_writer import case_folder

from berdiff.cli.main import main
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.training.run_folder import read_rows


def test_the_recipe_trains_on_a_store_of_the_papers_split(tmp_path, capsys):
    """Ten patients of six slices, of which four have tumour; a smaller network, one step."""
    for i in range(10):
        case_folder(tmp_path / "data", f"BraTS2021_{i:05d}", seed=i)
    rules = ["--split", "paper", "--keep-empty", "train", "--bottom", "0", "--top", "0", "--size", "32", "32"]
    assert main(["data", "prepare", "brats", str(tmp_path / "data"), str(tmp_path / "s"), *rules]) == 0
    assert verify(tmp_path / "s") == []
    store = Store.open(tmp_path / "s")
    assert store.manifest.counts == {
        "train": {"cases": 9 * 6, "patients": 9},
        "val": {"cases": 0, "patients": 0},
        "test": {"cases": 4, "patients": 1},
        "all": {"cases": 58, "patients": 10},
    }
    command = ["train", "brats-paper", "--data", str(tmp_path / "s"), "--out", str(tmp_path / "run")]
    smaller = ["--model.preset", "tiny", "--loop.batch-size", "1", "--max-steps", "1", "--engine.accelerator", "cpu"]
    capsys.readouterr()
    assert main([*command, *smaller, "--engine.threads", "1"]) == 0
    assert "validation is off: the store has no cases in the split val" in (tmp_path / "run" / "log.txt").read_text()
    assert read_rows(tmp_path / "run" / "stats.jsonl")[-1]["reason"] == "finished: 1 steps"

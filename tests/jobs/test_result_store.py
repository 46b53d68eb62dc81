"""The folder of a job: refuses what is not its own, writes settings late, cleans only when nobody else is at work."""

import json
from pathlib import Path

from berdiff.files import lock
from berdiff.jobs.store import LOCK, SETTINGS, ResultStore
from refusals import refused

LEFTOVER = ".a.json.01234567.part"


def begun(folder: Path, settings: dict, what: str = "evaluation") -> None:
    """A job that was begun, has a result and ended."""
    with ResultStore(folder, settings, what) as work:
        work.begin()
        (folder / "result.json").write_text("{}")


def test_nothing_is_written_before_begin(tmp_path: Path):
    folder = tmp_path / "deep" / "out"
    with ResultStore(folder, {"samples": 16, "size": (64, 64)}, "evaluation") as work:
        assert not folder.exists()
        work.begin()
        work.begin()  # once more costs nothing
        assert json.loads((folder / SETTINGS).read_text()) == {"job": "evaluation", "samples": 16, "size": [64, 64]}
        assert (folder / LOCK).exists()
    assert [path.name for path in folder.iterdir()] == [SETTINGS], "the last one takes the lock file away"


def test_the_same_job_resumes_and_others_are_refused(tmp_path: Path):
    begun(tmp_path, {"samples": 16, "size": (64, 64)})
    ResultStore(tmp_path, {"samples": 16, "size": [64, 64]}, "evaluation")
    for settings, difference in (
        ({"samples": 4, "size": [64, 64]}, "samples: there 16, now 4"),
        ({"samples": 16}, "size: there [64, 64], now None"),
        ({"samples": 16, "size": [64, 64], "seed": 1}, "seed: there None, now 1"),
    ):
        with refused(tmp_path, difference, code="changed"):
            ResultStore(tmp_path, settings, "evaluation")
    with refused(tmp_path, code="kind"):
        ResultStore(tmp_path, {"samples": 16, "size": [64, 64]}, "search")


def test_settings_without_a_result_refuse_no_corrected_command(tmp_path: Path):
    with ResultStore(tmp_path, {"samples": 16}, "evaluation") as work:
        work.begin()
    with ResultStore(tmp_path, {"samples": 4}, "evaluation") as work:
        work.begin()
    assert json.loads((tmp_path / SETTINGS).read_text())["samples"] == 4


def test_files_of_somebody_else_are_refused(tmp_path: Path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("years of work")
    (tmp_path / "editor").mkdir()
    (tmp_path / "editor" / SETTINGS).write_text('{"tabSize": 4}')  # the name of ours, but not ours
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / SETTINGS).write_text("{")
    for name in ("notes", "editor", "broken"):
        with refused(tmp_path / name, code="kind"):
            ResultStore(tmp_path / name, {}, "evaluation")
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file", code="kind"):
        ResultStore(tmp_path / "file", {}, "evaluation")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".DS_Store").write_text("")
    ResultStore(tmp_path / "hidden", {}, "evaluation")  # such files are nobody's


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with refused(tmp_path / "file" / "out", code="access"):
        ResultStore(tmp_path / "file" / "out", {}, "evaluation").begin()


def test_leftovers_go_when_nobody_else_is_at_work(tmp_path: Path):
    begun(tmp_path, {})
    (tmp_path / LEFTOVER).write_text("half")
    other = lock(tmp_path / LOCK, shared=True)  # another process, alive
    with ResultStore(tmp_path, {}, "evaluation") as work:
        work.begin()
        assert (tmp_path / LEFTOVER).exists(), "it may be what the other one writes now"
        (tmp_path / "result.json").unlink()
        with refused("samples: there None, now 4", code="changed"):  # nor is another job begun beside it
            ResultStore(tmp_path, {"samples": 4}, "evaluation").begin()
    assert (tmp_path / LOCK).exists()
    assert other
    other.close()
    with ResultStore(tmp_path, {}, "evaluation") as work:
        work.begin()
        assert not (tmp_path / LEFTOVER).exists()

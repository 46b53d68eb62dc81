"""The folder of a job: refuses what is not its own, writes settings late, cleans only when nobody else is at work."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from berdiff.errors import InputError
from berdiff.files import lock
from berdiff.jobs.store import LOCK, SETTINGS, ResultStore

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
        ({"samples": 16}, r"size: there \[64, 64\], now None"),
        ({"samples": 16, "size": [64, 64], "seed": 1}, "seed: there None, now 1"),
    ):
        with pytest.raises(
            InputError, match=f"expected the settings this evaluation was begun .* found others .{difference}"
        ):
            ResultStore(tmp_path, settings, "evaluation")
    with pytest.raises(InputError, match="expected a new folder or one of this search, found other files in it"):
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
        with pytest.raises(
            InputError, match=f"{name}: expected a new folder or one of this evaluation, found other files"
        ):
            ResultStore(tmp_path / name, {}, "evaluation")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: expected a folder for the evaluation, found a file"):
        ResultStore(tmp_path / "file", {}, "evaluation")
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".DS_Store").write_text("")
    ResultStore(tmp_path / "hidden", {}, "evaluation")  # such files are nobody's


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="out: expected a folder that can be written, found "):
        ResultStore(tmp_path / "file" / "out", {}, "evaluation").begin()


def test_leftovers_go_when_nobody_else_is_at_work(tmp_path: Path):
    begun(tmp_path, {})
    (tmp_path / LEFTOVER).write_text("half")
    other = lock(tmp_path / LOCK, shared=True)  # another process, alive
    with ResultStore(tmp_path, {}, "evaluation") as work:
        work.begin()
        assert (tmp_path / LEFTOVER).exists(), "it may be what the other one writes now"
    assert (tmp_path / LOCK).exists()
    assert other
    other.close()
    with ResultStore(tmp_path, {}, "evaluation") as work:
        work.begin()
        assert not (tmp_path / LEFTOVER).exists()


CHILD = """
import sys
from pathlib import Path
from berdiff.files import whole_file
from berdiff.jobs.store import ResultStore

folder = Path(sys.argv[1])
with ResultStore(folder, {"samples": 16}, "evaluation") as work:
    work.begin()
    with whole_file(folder / "result.json") as part:
        part.write_text("half")
        print("writing", flush=True)
        sys.stdin.readline()
        part.write_text("whole")
"""


def test_two_processes_share_a_folder(tmp_path: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin
    assert child.stdout
    assert child.stdout.readline() == "writing\n"
    with ResultStore(tmp_path, {"samples": 16}, "evaluation") as work:
        work.begin()
        assert [path.read_text() for path in tmp_path.glob(".*.part")] == ["half"], "its file is left to it"
        with pytest.raises(InputError, match=r"found others .samples: there 16, now 4"):
            ResultStore(tmp_path, {"samples": 4}, "evaluation").begin()  # before the first result is there
        child.communicate("go on\n", timeout=30)
    assert child.returncode == 0
    assert (tmp_path / "result.json").read_text() == "whole"
    assert json.loads((tmp_path / SETTINGS).read_text())["samples"] == 16

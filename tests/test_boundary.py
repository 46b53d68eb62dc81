"""Whatever the world does wrong is one sentence; what nobody foresaw has a log; --debug shows the traceback."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import SafetensorError

from berdiff import boundary
from berdiff.cli import main as cli
from berdiff.errors import InputError


class TheirError(Exception):
    """As of a library of object stores."""


TheirError.__module__ = "botocore.exceptions"


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERDIFF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(boundary.DEBUG, "")  # and away again afterwards, whatever a test does
    return tmp_path / "cache" / "logs"


def said(monkeypatch, capsys, error: BaseException, *before: str, code: int = 2) -> str:
    class Failing:
        @staticmethod
        def command(argv):
            raise error

    monkeypatch.setattr(cli, "import_module", lambda name: Failing)
    assert cli.main([*before, "runs"]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (InputError("--x: expected 1, found 2"), "--x: expected 1, found 2"),
        (
            OSError(errno.ENOSPC, "full", "out/a"),
            "out/a: expected room on the disk, found none left; ",
        ),
        (
            PermissionError(errno.EACCES, "x", "out"),
            "out: expected permission to use it, found none (permission denied)",
        ),
        (NotADirectoryError(errno.ENOTDIR, "x", "a/b"), "a/b: expected a folder, found a file on the way to it"),
        (FileNotFoundError(errno.ENOENT, "x", "a"), "a: expected a file or folder, found none of this name"),
        (OSError(errno.EIO, "x", b"a\xff"), "a\\udcff: expected a disk that works, found an input or output error"),
        (OSError(errno.EMFILE, "x"), "a file: expected fewer open files (ulimit -n)"),
        (
            OSError(errno.EXDEV, "x", "a", None, "b"),
            "a and b: expected to read or write it, found Invalid cross-device",
        ),
        (OSError(errno.ENOENT, "x", "two\nlines"), "two\\nlines: expected a file or folder"),
        (SafetensorError("IoError (os error 28)"), "a file: expected room on the disk"),
        (
            OSError("Unable to write (file write failed: errno = 28, error message)"),
            "a file: expected room on the disk",
        ),
        (MemoryError("Unable to allocate 34 GiB"), "memory: expected enough for this, found too little (Unable to"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] can't allocate memory: 9 bytes"), "memory: expected enough"),
        (TimeoutError("timed out"), "network: expected an answer, found timed out"),
        (ConnectionResetError(errno.ECONNRESET, "reset by peer"), "network: expected an answer, found "),
        (TheirError("Could not connect to the endpoint"), "network: expected an answer, found Could not connect"),
    ],
)
def test_what_the_world_does_wrong_is_one_sentence(monkeypatch, capsys, logs, error, words: str) -> None:
    err = said(monkeypatch, capsys, error)
    assert err.startswith(f"berdiff runs: {words}")
    assert err.count("\n") == 1
    assert not logs.exists(), "nothing to report"


def test_a_sentence_is_no_page(monkeypatch, capsys) -> None:
    assert len(said(monkeypatch, capsys, InputError("a: expected b, found " + "x" * 100_000))) < 2100


def test_an_interrupt_leaves_as_the_shell_counts_it(monkeypatch, capsys) -> None:
    assert said(monkeypatch, capsys, KeyboardInterrupt(), code=130) == "berdiff runs: interrupted\n"


@pytest.mark.parametrize(
    "error", [ValueError("odd\nvalue"), KeyError(), UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")]
)
def test_what_nobody_foresaw_is_one_sentence_with_a_log(monkeypatch, capsys, logs, error) -> None:
    monkeypatch.setattr(sys, "argv", ["berdiff", "view", "--token", "secret-1", "--token=secret-2"])
    err = said(monkeypatch, capsys, error)
    (log,) = logs.iterdir()
    assert err.count("\n") == 1
    assert type(error).__name__ in err
    assert f"please report it with {log}" in err
    text = log.read_text()
    assert "Traceback (most recent call last)" in text
    assert type(error).__name__ in text
    assert "--token ... --token=..." in text, "the command, without what it keeps secret"


def test_a_log_that_cannot_be_written_is_no_second_error(monkeypatch, capsys, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BERDIFF_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(boundary, "gettempdir", lambda: str(tmp_path / "file"))
    err = said(monkeypatch, capsys, ValueError("odd"))
    assert err.endswith("please report it with what --debug shows\n")


def test_only_the_newest_logs_are_kept(monkeypatch, logs) -> None:
    monkeypatch.setattr(boundary, "LOGS", 3)
    kept = [boundary.write_log(ValueError(str(i)), "x") for i in range(5)]
    assert sorted(logs.iterdir()) == kept[2:]


def test_debug_shows_the_traceback(monkeypatch, capsys) -> None:
    assert "Traceback" in said(monkeypatch, capsys, OSError(errno.ENOSPC, "full"), "--debug")
    assert os.environ[boundary.DEBUG] == "1", "for the processes that a command starts"
    monkeypatch.setenv(boundary.DEBUG, "0")
    assert "Traceback" not in said(monkeypatch, capsys, OSError(errno.ENOSPC, "full"))
    assert cli.main(["--debug"]) == 2
    assert "no command ''" in capsys.readouterr().err


def test_an_error_of_one_input_names_it(logs) -> None:
    known = boundary.refusal(MemoryError(), "a.png")
    assert str(known).startswith("a.png: memory: expected enough for this")
    found = boundary.refusal(IndexError("odd"), "a.png")
    (log,) = logs.iterdir()
    assert str(found).startswith("a.png: expected to finish, found an error that should not happen (IndexError: odd)")
    assert str(log) in str(found)
    assert "at: a.png" in log.read_text()


def shell(code: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=120, **options)


PRINTS = f"{sys.executable} -c \"import sys; from berdiff import boundary; sys.exit(boundary.run('x', lambda: "


def test_a_reader_that_has_seen_enough_ends_the_command_silently() -> None:
    many = '[print(i, flush=True) for i in range(100000)]))"'
    done = shell(f"{PRINTS}{many} | head -1; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stdout, done.stderr) == (1, "0\n", "")
    other = f"{PRINTS}(_ for _ in ()).throw(BrokenPipeError(32, 'x'))))\""
    done = shell(other)
    assert done.returncode == 2, "the broken pipe is another one"
    assert "network: expected an answer" in done.stderr


def test_names_that_are_not_utf_8_can_be_printed() -> None:
    code = "from berdiff.boundary import show_any_name; show_any_name(); print('a\\udcff')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.stdout == b"a\\udcff\n", done.stderr


# --- processes that end together --------------------------------------------------------------------------------------

CHILD = """
import os, sys, time
from berdiff import parent
if sys.argv[2] == "watch":
    import threading
    threading.Thread(target=parent.watch, args=(int(sys.argv[1]),), daemon=True).start()
else:
    parent.end_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid()), sys.argv[1]])
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["system", "watch"])
def test_a_process_ends_with_the_one_that_started_it(how: str) -> None:
    first = subprocess.Popen([sys.executable, "-c", PARENT, how], stdout=subprocess.PIPE, text=True)
    assert first.stdout
    child = int(first.stdout.readline())
    first.send_signal(signal.SIGKILL)
    first.wait()
    for _ in range(100):
        if not _alive(child):
            break
        time.sleep(0.1)
    assert not _alive(child)


def test_a_process_whose_parent_was_gone_before_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD, "1", "system"], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

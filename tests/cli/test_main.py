"""The command line as a whole."""

import subprocess
import sys

import pytest

from berdiff import __version__
from berdiff.cli import main as cli
from berdiff.cli.main import COMMANDS, main
from berdiff.errors import InputError


def test_help_lists_the_commands_and_imports_nothing_heavy() -> None:
    code = "import sys; from berdiff.cli.main import main; main(['--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "usage: berdiff COMMAND" in done.stdout
    assert "  train     train a model or resume a run\n" in done.stdout
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert not {"'torch'", "'numpy'", "'tyro'", "'pydantic'"} & set(done.stdout.replace(",", " ").split())


def test_version(capsys: pytest.CaptureFixture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (InputError("--x: expected 1, found 2"), 2, "berdiff runs: --x: expected 1, found 2\n"),
        (KeyboardInterrupt(), 130, "berdiff runs: interrupted\n"),
    ],
)
def test_bad_input_and_an_interrupt_are_one_sentence(monkeypatch, capsys, error, code: int, words: str) -> None:
    class Failing:
        @staticmethod
        def command(argv):
            raise error

    monkeypatch.setattr(cli, "import_module", lambda name: Failing)
    assert main(["runs"]) == code
    assert capsys.readouterr().err == words


def test_an_unknown_command_is_one_sentence(capsys: pytest.CaptureFixture) -> None:
    assert main(["segmnt"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("berdiff: no command 'segmnt'; expected one of data, train, ")
    assert error.count("\n") == 1

"""`--quiet` and `--json`, of every command."""

import sys

import pytest

from berdiff import display
from berdiff.cli import main as program
from berdiff.cli.main import COMMANDS, main


@pytest.fixture(autouse=True)
def loud_again():
    yield
    display.be_quiet(False)


def test_it_is_taken_anywhere_and_silences_bars_and_notices(monkeypatch: pytest.MonkeyPatch, capsys):
    seen = []

    class Command:
        @staticmethod
        def command(argv: list[str]) -> None:
            seen.append(argv)
            display.note("opening something ...")
            with display.progress("counting") as update:
                monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0.0)
                update(1, 2)
            print("the result")

    monkeypatch.setattr(program, "import_module", lambda name: Command)
    for argv in (["demo", "--quiet", "--cases", "2"], ["--quiet", "demo", "--cases", "2"]):
        assert main(argv) == 0
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("the result\n", "")
    assert main(["demo", "--cases", "2"]) == 0
    assert "opening something ..." in capsys.readouterr().err
    assert seen == [["--cases", "2"]] * 3


def test_errors_are_not_silenced(capsys):
    assert main(["--quiet", "no-such-command"]) == 2
    assert capsys.readouterr().err.startswith("berdiff: no command")


DATA = [["data", name] for name in ("verify", "info", "show")]
FIGURES = [["figure", name] for name in ("toy", "cost", "process", "frontier", "examples-lidc", "examples-brats")]
OTHERS = [[name] for name in COMMANDS if name not in ("data", "figure", "train")]


@pytest.mark.parametrize(
    "words", [*DATA, *FIGURES, *OTHERS, ["data", "prepare", "folder"], ["train", "demo"]], ids=" ".join
)
def test_every_command_takes_json(words: list[str], capsys):
    with pytest.raises(SystemExit):
        sys.exit(main([*words, "--help"]))
    assert "--json" in capsys.readouterr().out

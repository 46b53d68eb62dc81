"""One display of progress for all commands."""

import io

import pytest
from rich.console import Console

from berdiff import display
from berdiff.display import Display, duration, progress


def _shown(terminal: bool, on: bool = True) -> str:
    file = io.StringIO()
    shown = Display(Console(file=file, force_terminal=terminal, width=100), on)
    with shown.shown("the first steps ..."):
        shown.update(0.25, "step 5  loss 0.5  [not markup]")
        shown.update(0.26, "step 6  loss 0.4")
        shown.print("a line that stays")
        shown.update(1.0, "step 20  loss 0.1", last=True)
    return file.getvalue()


def test_a_terminal_gets_a_bar() -> None:
    shown = _shown(terminal=True)
    assert "━" in shown
    assert "100%" in shown
    assert "step 20  loss 0.1" in shown
    assert "a line that stays" in shown


def test_elsewhere_plain_lines_come_not_too_often() -> None:
    """The first and the last, but not one within ten seconds of another; no control characters."""
    assert _shown(terminal=False) == "step 5  loss 0.5  [not markup]\na line that stays\nstep 20  loss 0.1\n"


def test_other_processes_are_silent() -> None:
    assert _shown(terminal=False, on=False) == _shown(terminal=True, on=False) == ""


def test_a_command_prints_nothing_while_it_is_quick_and_the_time_left_when_it_is_not(
    capsys: pytest.CaptureFixture, monkeypatch
) -> None:
    now = iter([0.0, *[5.0] * 4, *[100.0] * 4])
    monkeypatch.setattr(display.time, "monotonic", lambda: next(now))
    with progress("counting") as update:
        update(1, 4)
        update(2, 4)
        update(2, 4)
    assert capsys.readouterr().err == "counting: 2 of 4, 1:40 left\n"


def test_duration() -> None:
    written = [duration(s) for s in (-1, 0, 59.6, 61, 3600, 90061)]
    assert written == ["0:00", "0:00", "1:00", "1:01", "1:00:00", "25:01:01"]


def test_names_are_no_markup(capsys):
    """Brackets, colons and links of a name are shown as they are."""
    from berdiff.display import plain_console
    from berdiff.text_tables import show

    name = "[red]x[/red] :smile: [link=http://x]y[/link]"
    plain_console().print(name)
    show([(["case", "ged"], [[name, "1"]])], [name])
    assert capsys.readouterr().out.count(name) == 3

import io

from rich.console import Console

from berdiff.training.progress import Display, duration


def _shown(terminal: bool, on: bool = True) -> str:
    file = io.StringIO()
    display = Display(on, Console(file=file, force_terminal=terminal, width=100))
    with display.shown():
        display.update(0.25, "step 5  loss 0.5  [not markup]")
        display.update(0.26, "step 6  loss 0.4")
        display.say("a line that stays")
        display.update(1.0, "step 20  loss 0.1")
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


def test_duration() -> None:
    assert [duration(s) for s in (-1, 0, 59.6, 61, 3600, 90061)] == [
        "0:00",
        "0:00",
        "1:00",
        "1:01",
        "1:00:00",
        "25:01:01",
    ]

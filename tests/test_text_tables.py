"""Tables fit the terminal, and a name is never broken into lines."""

import pytest
from rich.console import Console

from berdiff import text_tables
from berdiff.text_tables import shortened, show, show_markdown, width_of

NAME = "LIDC-IDRI-0123/scan-12/nodule-0/slice-100"
HEADER = ["case", "GED 16", "95 % interval", "of a perfect sampler"]
BODY = [[NAME, "0.210", "0.102 to 0.343", "0.935"], [NAME + "1", "0.210", "0.000866 to 0.00281", "[not markup]"]]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """What a terminal of a width shows, line by line."""

    def on(width: int, do, *args, **options) -> list[str]:
        monkeypatch.setattr(text_tables, "console", lambda: Console(width=width))
        do(*args, **options)
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return on


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_table_fits_and_names_stay_on_one_line(shown, width: int):
    lines = shown(width, show, [(HEADER, BODY)], ["a long line below " * 10])
    table = [line for line in lines if not line.startswith("a long line")]
    assert max(map(len, table)) <= width
    assert sum("0.210" in line for line in table) == 2
    assert next(line for line in table if "0.102 to 0.343" in line).split()[0].endswith("nodule-0/slice-100")
    assert any("[not markup]" in line for line in table)
    assert any(line.startswith("a long line") and len(line) > width for line in lines)


def test_columns_are_left_out_only_where_they_must_be(shown):
    drop = ("of a perfect sampler", "GED 16")
    assert "of a perfect sampler" in " ".join(shown(150, show, [(HEADER, BODY)], drop=drop))
    lines = shown(70, show, [(HEADER, BODY)], drop=drop)
    assert "left out to fit: of a perfect sampler; --json has all" in lines
    assert not any("perfect" in line for line in lines if "left out" not in line)
    assert sum("0.210" in line for line in lines) == 2


def test_elsewhere_nothing_is_folded(capsys: pytest.CaptureFixture):
    show([(HEADER, BODY)])
    first = capsys.readouterr().out.splitlines()[0]
    assert first.split("  ")[0] == "case"
    assert "of a perfect sampler" in first


def test_tables_of_markdown_fit_too(shown):
    table = "| training | GED 16 | HM-IoU |\n| --- | --- | --- |\n| short | .735 (.715 to .756) |  |\n|  | .1 | .2 |\n"
    text = f"# Title\n\n{table}\nThe end.\n"
    lines = shown(80, show_markdown, text)
    assert lines[0] == "# Title"
    assert "| ---" not in "\n".join(lines)
    assert any(line.startswith("short") and line.endswith(".735 (.715 to .756)") for line in lines)
    assert any(line.split() == [".1", ".2"] for line in lines)
    assert lines[-1] == "The end."


def test_names_lose_their_beginning():
    assert shortened(NAME, len(NAME)) == NAME
    assert shortened(NAME, 20) == "...odule-0/slice-100"
    assert width_of(["a", "bb cc"], [["x", "y"]]) == 1 + 1 + 2

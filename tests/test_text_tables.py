"""Tables fit the terminal; names stay on one line, and rows that differ never look the same."""

import pytest
from rich.console import Console

from berdiff import text_tables
from berdiff.text_tables import WIDE, TextTable, shortened, show, show_markdown, show_pairs

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
    path = "a/path/of/more/columns/than/any/of/these/terminals/" * 2
    lines = shown(width, show, [(HEADER, BODY)], ["a long line below " * 10 + path])
    table, below = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert max(map(len, table)) <= width
    assert sum("0.210" in line for line in table) == 2
    assert next(line for line in table if "0.102 to 0.343" in line).split()[0].endswith("nodule-0/slice-100")
    assert any("[not markup]" in line for line in table)
    *words, last = below
    assert " ".join(words) == ("a long line below " * 10).strip()
    assert max(map(len, words)) <= width
    assert last == path  # can be copied


def test_columns_are_left_out_only_where_they_must_be(shown):
    drop = ("of a perfect sampler", "GED 16")
    assert "of a perfect sampler" in " ".join(shown(150, show, [(HEADER, BODY)], drop=drop))
    lines = shown(70, show, [(HEADER, BODY)], drop=drop)
    assert "left out to fit: of a perfect sampler; --json has all" in lines
    assert not any("perfect" in line for line in lines if "left out" not in line)
    assert sum("0.210" in line for line in lines) == 2


def test_elsewhere_nothing_is_folded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.delenv("COLUMNS", raising=False)
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


@pytest.mark.parametrize(
    "pattern",
    ["a/folder/of/many/{}/slice-1", "{}/of/a/long/study/name/with/the/same/end.nii.gz", "same/{0}/{0}/ends" + "x" * 20],
)
@pytest.mark.parametrize("width", [40, 50])
def test_shortened_names_still_tell_rows_apart(shown, pattern: str, width: int):
    names = [pattern.format(f"patient-{i}") for i in range(3)]
    lines = shown(width, show, [(["input", "size"], [[name, "246 [148, 320] mm^2"] for name in names])])
    assert max(map(len, lines)) <= width
    rows, row = [], ""
    for line in lines[1:-1]:  # a name may take several lines, with the size in the last
        row += line[: width - 20].strip()
        if "mm^2" in line:
            rows, row = [*rows, row], ""
    assert len({*rows}) == 3


MANY: TextTable = (
    ["method", "whose", *(f"GED {n} (lower is better)" for n in (16, 8, 4, 1)), "network_passes"],
    [["Gaussian diffusion, the same network", "the paper's", *["0.735 (0.715 to 0.756)"] * 4, "384000"]],
)


@pytest.mark.parametrize("width", [72, 80, 100, 120])
def test_nothing_is_cut_where_folding_is_enough(shown, width: int):
    lines = shown(width, show, [MANY])
    assert max(map(len, lines)) <= width
    for word in ("Gaussian", "diffusion,", "same", "network", "the", "paper's", "384000"):
        assert word in " ".join(lines).split()
    assert sum(line.split().count("0.735") for line in lines) == 4
    assert not any("left out" in line for line in lines)


@pytest.mark.parametrize("width", [10, 24, 40])
def test_what_cannot_fit_is_left_out_and_named(shown, width: int):
    lines = shown(width, show, [MANY])
    assert max(map(len, lines)) <= max(width, len("network_passes;"))
    assert "left out to fit:" in " ".join(lines)
    assert "network_passes" in " ".join(lines)
    assert "Gaussian" in " ".join(lines)


def test_pairs_go_on_below_themselves(shown):
    lines = shown(40, show_pairs, [("packages", "one 1.0, " * 9), ("missing", "")])
    assert max(map(len, lines)) <= 40
    assert " ".join(line[10:] for line in lines[:-1]) == ("one 1.0, " * 9).strip()
    assert {line[:10].strip() for line in lines[1:-1]} == {""}
    assert lines[-1] == "missing"


@pytest.mark.parametrize(("columns", "edge"), [("80", 80), ("0", WIDE), ("wide", WIDE), (None, WIDE)])
def test_off_a_terminal_the_edge_is_what_the_user_asks_for(monkeypatch, columns: str | None, edge: int):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert text_tables.console().width == edge

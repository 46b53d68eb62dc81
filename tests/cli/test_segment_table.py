"""What `berdiff segment` prints of many inputs: one line each on a terminal of 80 columns."""

import pytest
from rich.console import Console

from berdiff import text_tables
from berdiff.cli.segment import _print
from berdiff.jobs.run import Outcome

NAME = "LIDC-IDRI-0{:03d}/scan-12/nodule-0/slice-{}"


def measured(unit: str, size: float = 246.0) -> dict:
    quantiles = {"q05": 0.6 * size, "q50": size, "q95": 1.3 * size}
    of = {
        "finding_probability": 0.94,
        "empty_share": 0.06,
        "disagreement": 0.216,
        "longest_diameter": {"unit": unit, **quantiles},
    }
    return {**of, "area": {"unit": f"{unit}^2", **quantiles}}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    monkeypatch.setattr(text_tables, "console", lambda: Console(width=80))

    def shown(measurements: dict) -> list[str]:
        _print(Outcome(list(measurements), measurements=measurements), "results in out")
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return shown


def test_one_line_per_case_within_80_columns(lines):
    found = lines({NAME.format(i, i): {"nodule": measured("mm", 10.0**i)} for i in range(4)})
    table = [line for line in found if "slice-" in line]
    assert len(table) == 4
    assert all(len(line) <= 80 and line.split()[0].endswith(f"slice-{i}") for i, line in enumerate(table))
    assert "(mm^2)" in " ".join(found)
    assert "target" not in found[0]  # one needs no column
    assert table[2].split()[1:] == ["94%", "6%", *["100", "[60.0,", "130]"] * 2, "0.22"]
    assert "4 segmented, 0 found done, 0 failed; results in out" in found


def test_units_that_differ_stand_with_each_number_and_targets_have_a_column(lines):
    found = lines({"a": {"core": measured("mm")}, "b": {"whole": measured("px")}})
    assert any(line.startswith("a ") and "core" in line and "246 [148, 320] mm^2" in line for line in found)
    assert any("whole" in line and "px^2" in line for line in found)


def test_many_are_cut(lines):
    found = lines({f"case-{i}": {"nodule": measured("px")} for i in range(25)})
    assert sum(line.startswith("case-") for line in found) == 20
    assert "... and 5 more" in found


def test_none_are_no_table(lines):
    assert lines({}) == ["0 segmented, 0 found done, 0 failed; results in out", "For research; not for clinical use."]

"""The list of 0.1.0's faults names tests that are there, and docs/reliability.md names each of the faults."""

from pathlib import Path

from .against_0_1_0 import FAULTS

ROOT = Path(__file__).parents[2]


def test_each_fault_has_its_test() -> None:
    for fault in FAULTS:
        file, _, test = fault.test.partition("::")
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8") if test else (ROOT / file).is_file(), fault


def test_each_fault_is_in_the_documents() -> None:
    text = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert [fault.name for fault in FAULTS if not any(line.startswith(f"| {fault.name} |") for line in rows)] == []
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)

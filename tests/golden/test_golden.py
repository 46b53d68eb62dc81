"""Nothing that users keep has changed: values of outputs, stores, configurations and evaluations by their SHA-256 sums.

A change that is meant: `python tests/golden/renew.py [SECTION ...]`, and say in the commit what changed and why. To see
what is behind a sum, `python tests/golden/renew.py --dump DIR [SECTION ...]` writes all values, as text and .npy; made
in two worktrees, `diff -r` shows the difference.
"""

import json

import pytest
from renew import SECTIONS, SUMS, digest, environment, sections

RECORDED = json.loads(SUMS.read_text())


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return sections(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("section", SECTIONS)
def test_nothing_has_changed(section, made):
    same = environment() == RECORDED["recorded on"]
    if section == "methods" and not same:
        pytest.skip(f"recorded on {RECORDED['recorded on']}, where convolutions are rounded otherwise")
    found = {name: digest(value) for name, value in made(section).items()}
    expected = RECORDED[section]
    lines = [f"changed: {name}" for name in expected if name in found and found[name] != expected[name]]
    lines += [f"gone: {name}" for name in expected if name not in found]
    lines += [f"new: {name}" for name in found if name not in expected]
    if lines:
        where = "" if same else f", recorded on {RECORDED['recorded on']}"
        pytest.fail("\n".join([f"{len(lines)} of {len(expected)} values of {section}{where}", *lines]), pytrace=False)

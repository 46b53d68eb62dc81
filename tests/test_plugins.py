"""Methods, networks and sources of other packages join by entry points; ours cannot be shadowed."""

from pathlib import Path

import pytest

from berdiff.errors import InputError
from berdiff.plugins import Registry

CODE = """
VALUE = 42
"""
ENTRY_POINTS = """
[berdiff.toys]
ball = toy_package:VALUE
whole = toy_package
ours = toy_package:VALUE
no-module = toy_packages:VALUE
no-name = toy_package:VALUES
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch) -> None:
    """A package with entry points, as pip would leave it."""
    (tmp_path / "toy_package.py").write_text(CODE)
    info = tmp_path / "toy_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)


def registry() -> Registry:
    return Registry("berdiff.toys", {"ours": "berdiff.errors:InputError", "here": "pathlib:Path"})


def test_ours_without_any_other_package():
    assert registry().names() == ["ours", "here"]
    assert registry().load("ours") is InputError
    with pytest.raises(InputError, match=r"^toy: expected one of ours, here, found 'ball'$"):
        registry().load("ball")


@pytest.mark.usefixtures("installed")
def test_a_package_joins_and_cannot_take_a_name_of_ours():
    toys = registry()
    assert toys.names()[:2] == ["ours", "here"]
    assert sorted(toys.names()[2:]) == ["ball", "no-module", "no-name", "whole"]
    assert toys.load("ball") == 42
    assert toys.load("whole").VALUE == 42, "a module, where no attribute is named"
    assert toys.load("ours") is InputError
    with pytest.raises(InputError, match=r"^toy: expected one of ours, here, .*ball.*, found 'bal'$"):
        toys.load("bal")


@pytest.mark.usefixtures("installed")
def test_a_broken_package_is_one_sentence():
    for name, value, reason in (
        ("no-module", "toy_packages:VALUE", "No module named 'toy_packages'"),
        ("no-name", "toy_package:VALUES", ".*VALUES"),
    ):
        with pytest.raises(
            InputError, match=f"^the entry point {name} = {value} of berdiff.toys: expected .* {reason}"
        ):
            registry().load(name)


def test_names_import_nothing(monkeypatch):
    monkeypatch.setattr("importlib.metadata.import_module", lambda name: pytest.fail(name))
    assert Registry("berdiff.toys", {"lazy": "no.such.module"}).names() == ["lazy"]

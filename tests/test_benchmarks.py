"""Benchmarks run by hand: here they are imported, so that none is left behind by a change of the source."""

from importlib import import_module
from pathlib import Path

import pytest

import benchmarks

NAMES = sorted(path.stem for path in Path(benchmarks.__file__).parent.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("name", NAMES)
def test_it_can_be_imported(name):
    import_module(f"benchmarks.{name}")

"""Shared by all tests: where the real data is, if it is."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; a test that asks for it is skipped where it is absent."""
    path = Path(os.environ.get("BERDIFF_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path} (set BERDIFF_SHARED_DATA)")
    return path

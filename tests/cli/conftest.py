"""What the tests of several commands share."""

from pathlib import Path

import pytest

from .small_model import save_model


@pytest.fixture(scope="module")
def grey(tmp_path_factory) -> Path:
    """A model of one CT channel, with random weights."""
    path = tmp_path_factory.mktemp("models") / "grey"
    return save_model(path, ("ct",), 32, rule="window", window=(-1000.0, 400.0))

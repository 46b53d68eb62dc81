"""A figure of matplotlib as a whole file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from berdiff.files import whole_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def picture(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """An empty figure of so many inches, which is written as a PNG after the block."""
    from matplotlib.figure import Figure  # no window, no global state

    figure = Figure(figsize=(width, height), layout="constrained")
    yield figure
    with whole_file(path) as part:
        figure.savefig(part, format="png", dpi=120)

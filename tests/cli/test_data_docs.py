"""docs/data.md is true: its example runs, and it names every source."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from layouts import blobs, save

from berdiff.cli.main import main
from berdiff.data.sources import SOURCES
from berdiff.data.store import Store

TEXT = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


def block(heading: str) -> str:
    """The first code block under a heading."""
    found = re.search(rf"## {heading}\n.*?```\w*\n(.*?)```", TEXT, re.DOTALL)
    assert found
    return found[1]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the example: two slices of each of six patients, two readers."""
    images, masks = blobs(12, readers=2, size=64)
    for i in range(12):
        case = f"p{i // 2:02d}_{'ab'[i % 2]}"
        save(tmp_path / f"mine/images/{case}.png", images[i])
        for reader, mask in zip(("alice", "bob"), masks[i], strict=True):
            save(tmp_path / f"mine/masks/{case}_{reader}.png", mask * np.uint8(255))
    save(tmp_path / "new-images/p01.png", images[1])
    monkeypatch.chdir(tmp_path)


def run_example() -> None:
    commands = [line for line in block("Your own data in four lines").splitlines() if line.startswith("berdiff ")]
    commands[1] += " --model.preset fast-tiny --max-steps 2 --engine.devices 1 --validation.every 0"
    commands[2] += " --samples 2 --steps 1 --views 1 --split all --limit 2"
    assert len(commands) == 4
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0


def test_own_data_in_four_lines(mine):
    run_example()
    store = Store.open("mine.zarr")
    assert (len(store), store.raters, len(set(store.cases.patient))) == (12, 2, 6)
    assert Path("results/p01/result.json").is_file()


def test_every_source_is_there():
    for name in SOURCES.names():
        assert f"`berdiff data prepare {name} " in TEXT

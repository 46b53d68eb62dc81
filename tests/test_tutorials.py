"""The tutorial "Add a method" is true: its package joins by the entry point and goes through its commands."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from layouts import blobs, save

PAGE = (Path(__file__).parents[1] / "docs/tutorials/add-a-method.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r'```\w+ title="levels/(.+?)"\n(.*?)```', PAGE, re.DOTALL))
SMALL = "--validation.every 0 --loop.batch-size 4 --engine.devices 1 --engine.accelerator cpu"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed as pip would, and a small store."""
    place = tmp_path_factory.mktemp("levels")
    project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
    info = place / "site" / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (place / "site/levels.py").write_text(BLOCKS["levels.py"], encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    ((group, points),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    images, masks = blobs(20, readers=2, size=64)
    for i in range(20):
        save(place / f"mine/images/p{i:02d}.png", images[i])
        for reader, mask in enumerate(masks[i]):
            save(place / f"mine/masks/p{i:02d}_{reader}.png", mask * np.uint8(255))
    berdiff(place, "data prepare folder mine mine.zarr")
    return place


def berdiff(place: Path, words: str) -> str:
    paths = os.pathsep.join([str(place / "site"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "berdiff.cli.main", *words.split()]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_method_of_the_tutorial(place: Path):
    data = "--data mine.zarr --data.crop None"
    assert "--model.width" in berdiff(place, "train demo --model.method levels --help")
    berdiff(place, f"train demo --model.method levels --max-steps 20 --out runs/levels {data} {SMALL}")
    berdiff(place, f"train demo --max-steps 2 --out runs/demo {data} {SMALL}")
    for name in ("levels", "demo"):
        berdiff(place, f"evaluate runs/{name} --limit 3 --samples 4 --out evals/{name} --device cpu")
    assert "GED" in berdiff(place, "compare evals/levels evals/demo")
    rows = "--rows levels --steps 2 --slices 2"
    assert "levels" in berdiff(place, f"table lidc {rows} --data mine.zarr --out tables/mine --device cpu")

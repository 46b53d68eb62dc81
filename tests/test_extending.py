"""docs/extending.md is true: the package on the page joins by entry points and goes through every command."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from berdiff.cli.main import main
from berdiff.metrics import all_metrics

PAGE = Path(__file__).parents[1] / "docs/extending.md"
BLOCKS = dict(re.findall(r'```\w+ title="(.+?)"\n(.*?)```', PAGE.read_text(), re.DOTALL))
SMALL = ["--loop.batch-size", "4", "--data.crop", "None", "--loop.log-every", "50", "--loop.checkpoint-every", "20"]
SMALL += ["--engine.accelerator", "cpu", "--engine.devices", "1", "--validation.samples", "2"]
SMALL += ["--validation.cases", "2", "--validation.sheet-cases", "0"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the page, installed as pip would, and a store prepared by its source."""
    folder = tmp_path_factory.mktemp("extending")
    project = tomllib.loads(BLOCKS["pyproject.toml"])["project"]
    for title, text in BLOCKS.items():
        (folder / "site" / title).parent.mkdir(parents=True, exist_ok=True)
        (folder / "site" / title).write_text(text)
    info = folder / "site" / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()) for group, points in groups
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (folder / "npz").mkdir()
    rng = np.random.default_rng(0)
    for i in range(24):
        image = rng.integers(0, 80, (64, 64), dtype=np.uint8)
        masks = np.zeros((2, 64, 64), np.uint8)
        masks[0, 20:40, 20:40] = masks[1, 20:44, 20:44] = 1
        image[20:40, 20:40] += 150
        np.savez(folder / "npz" / f"p{i:02d}-0.npz", image=image, masks=masks)
    Image.fromarray(image).save(folder / "scan.png")
    berdiff(folder, "data", "prepare", "npz", "npz", "my.zarr", "--target", "tumour")
    return folder


# Each command is a process of its own, forked: it has torch already, and what the package registers ends with it.
fork = multiprocessing.get_context("fork")


def _run(place: Path, argv: tuple[str, ...], call: Callable[[list[str]], int] = main) -> None:
    """In a child, which finds the package as if it were installed."""
    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(place / name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
    sys.path.insert(0, str(place / "site"))
    all_metrics.cache_clear()  # a test before may have asked, without the package
    os.chdir(place)
    sys.exit(call(list(argv)))


def start(place: Path, *argv: str) -> multiprocessing.Process:
    process = fork.Process(target=_run, args=(place, argv))
    process.start()
    return process  # type: ignore[return-value]


def berdiff(place: Path, *argv: str, code: int = 0) -> str:
    process = start(place, *argv)
    process.join(120)
    error = (place / "stderr").read_text()
    assert process.exitcode == code, error
    return (place / "stdout").read_text() if code == 0 else error


def train(run: str, *options: str) -> list[str]:
    return ["train", "demo", "--data", "my.zarr", "--out", run, *SMALL, *options]


THRESHOLD = ["--model.method", "threshold", "--model.width", "8", "--max-steps", "200", "--validation.every", "100"]


@pytest.fixture(scope="module")
def trained(place: Path) -> str:
    berdiff(place, *train("whole", *THRESHOLD))
    return "whole"


def test_the_method_is_one_file_of_sixty_lines() -> None:
    assert len(BLOCKS["quick/method.py"].splitlines()) <= 60


def test_a_method_trains_and_resumes_after_a_kill_to_the_same_bytes(place: Path, trained: str) -> None:
    process = start(place, *train("killed", *THRESHOLD))
    first = place / "killed/checkpoints/step-00000040"
    while process.is_alive() and not first.exists():
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "the run was over before it could be killed"
    assert "resuming after step " in berdiff(place, *train("killed", *THRESHOLD))
    files = sorted(path.relative_to(place / trained) for path in (place / trained).rglob("*.safetensors"))
    assert len(files) == 8
    assert all((place / "killed" / file).read_bytes() == (place / trained / file).read_bytes() for file in files)


def test_the_tests_of_the_page_pass(place: Path) -> None:
    process = fork.Process(target=_run, args=(place, ("-q", "-p", "no:cacheprovider", "site/tests"), pytest.main))
    process.start()
    process.join(300)
    output = (place / "stdout").read_text()
    assert process.exitcode == 0, output
    assert "3 passed" in output


def test_it_is_evaluated_and_segments(place: Path, trained: str) -> None:
    evaluate = f"evaluate {trained} --out evaluation --samples 4 --limit 3 --device cpu --json"
    result = json.loads(berdiff(place, *evaluate.split()))
    assert 0 <= result["metrics"]["ged_4"]["value"] < 2
    assert result["metrics"]["volume_error"]["value"] > 0
    assert result["references"]["empty mask"]["volume_error"]["value"] > 0
    assert "| error of volume (pixels) | lower | " in (place / "evaluation/table.md").read_text()
    berdiff(place, *f"segment {trained} scan.png --out segmented --device cpu".split())
    assert list((place / "segmented").rglob("*.png"))
    config = json.loads((place / trained / "model/config.json").read_text())
    assert config["model"] == {"method": "threshold", "width": 8, "variation": 0.02}
    assert config["input_spec"]["targets"] == ["tumour"]


def test_a_format_is_a_word_of_write(place: Path, trained: str) -> None:
    """In a process of its own, as the choices of a command are made when it starts."""
    run = "import sys; from berdiff.cli.main import main; sys.exit(main(sys.argv[1:]))"
    argv = f"segment {trained} scan.png --out counted --write mask pixels --samples 3 --device cpu".split()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "site"), *sys.path])}
    subprocess.run([sys.executable, "-c", run, *argv], cwd=place, env=environment, check=True)
    (table,) = (place / "counted").rglob("pixels.csv")
    head, *rows = table.read_text().splitlines()
    assert (head, len(rows), (table.parent / "mask.png").is_file()) == ("tumour", 3, True)
    assert "pixels.csv" in json.loads((table.parent / "done.json").read_text())["files"]


def test_a_network_is_a_preset_and_a_bad_setting_one_sentence(place: Path) -> None:
    berdiff(place, *train("plain", "--model.preset", "plain-cnn", "--max-steps", "2", "--validation.every", "0"))
    assert json.loads((place / "plain/model/config.json").read_text())["model"]["preset"] == "plain-cnn"
    error = berdiff(place, *train("bad", *THRESHOLD, "--model.width", "0"), code=2)
    assert error.endswith("berdiff train: --model.width: expected at least 1, found 0\n")
    assert "threshold" in berdiff(place, "train", "--help")

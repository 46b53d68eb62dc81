"""What is released: one version, every file in the wheel, and a wheel that works by itself."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import berdiff

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(*command: str | Path, where: Path = ROOT, **environment: str) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_version_is_written_once():
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "berdiff.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+)?", berdiff.__version__)


def test_the_changelog_begins_with_this_version():
    """In the form of keepachangelog.com: versions with dates, newest first, and known kinds of changes."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"\[(\d+\.\d+\.\d+|Unreleased)\]( - \d{4}-\d\d-\d\d)?", line) for line in versions), (
        versions
    )
    newest = "[Unreleased]" if "dev" in berdiff.__version__ else f"[{berdiff.__version__}] - "
    assert versions[0].startswith(newest)
    kinds = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_only_tested_pythons_are_claimed():
    """The tests run on one; the package claims no other."""
    claimed = {of.split(" :: ")[-1] for of in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", of)}
    assert claimed == {"3.11"}
    assert PROJECT["project"]["requires-python"] == ">=3.11"


def test_the_container_runs_as_nobody_special():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    commands = [line.split() for line in text.splitlines() if line and not line.startswith(("#", " "))]
    users = [words[1] for words in commands if words[0] == "USER"]
    assert users == ["berdiff"]
    assert not re.search(r"https?://|apt-get|curl|wget", text)  # nothing but packages of the registries
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for words in commands:
        for source in words[1:-1] if words[0] == "COPY" else []:
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make dist` builds it, sdist first and the wheel from that; without the network."""
    pytest.importorskip("build")
    out, made = tmp_path_factory.mktemp("dist"), ROOT / "src" / "berdiff.egg-info"
    known = made.exists()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    if not known:
        shutil.rmtree(made)
    (found,) = out.glob("*.whl")
    (source,) = out.glob("*.tar.gz")
    assert source.name == f"berdiff-{berdiff.__version__}.tar.gz"
    return found


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: Path):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = run("git", "ls-files", "src").splitlines() if (ROOT / ".git").exists() else []
    assert inside >= {name.removeprefix("src/") for name in tracked}
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in inside)
    metadata = next(name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    assert f"\nVersion: {berdiff.__version__}\n" in text
    assert "License-Expression: Apache-2.0" in text


@pytest.mark.slow
def test_the_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path):
    """A new environment with the wheel alone; its dependencies are those of this one, lent by a .pth file, since
    installing a gigabyte again would test pip. The demo, and the viewer's page of one image, with nothing else."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    home = Path(
        run(tmp_path / "venv/bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    zipfile.ZipFile(wheel).extractall(home)  # what pip does with a wheel of pure Python, but for the script
    lent = tmp_path / "lent"
    lent.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not re.match(r"(__editable__.*)?_*berdiff|.*\.pth$|.*_editable", entry.name):
            (lent / entry.name).symlink_to(entry)
    (home / "lent.pth").write_text(f"{lent}\n")
    program = [tmp_path / "venv/bin/python", "-m", "berdiff.cli.main"]
    environment = {"BERDIFF_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    where = run(*program, "doctor", "--json", where=tmp_path, **environment)
    assert json.loads(where)["installed_in"] == str(home / "berdiff")
    printed = run(*program, "demo", "--cases", "2", "--out", "demo", where=tmp_path, **environment)
    assert "demo/report.html" in printed
    assert (tmp_path / "demo/report.html").stat().st_size > 50_000
    assert not (tmp_path / "cache").exists()  # the demo makes only what it shows
    code = "import numpy as np; from PIL import Image; x = np.full((64, 64), 60, 'uint8'); x[20:40, 24:44] = 200; "
    run(program[0], "-c", code + "Image.fromarray(x).save('scan.png')", where=tmp_path, **environment)
    run(*program, "segment", "lidc", "scan.png", "--out", "out", "--write", "viewer", where=tmp_path, **environment)
    page = (tmp_path / "out/scan/viewer.html").read_text(encoding="utf-8")
    assert "niivue" in page.lower()
    assert str(ROOT) not in page

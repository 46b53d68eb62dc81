"""How much a command imports before it answers: the first run should feel fast (docs/fast.md)."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

# what a 2D picture, its masks and its measurements do without; each takes a tenth of a second to several
HEAVY = {"nibabel", "pydicom", "highdicom", "zarr", "matplotlib", "tensorboard", "monai", "h5py", "ray"}
HEAVY |= {"lightning_fabric", "huggingface_hub", "s3fs", "fastapi", "onnx", "pandas", "scipy.optimize", "scipy.spatial"}
HEAVY |= {"torch.utils.tensorboard", "torch._dynamo", "requests"}


def imported(argv: list[str], where: Path) -> set[str]:
    """The modules that are there after a command."""
    code = f"""
import json, sys
from berdiff.cli.main import main
try:
    code = main({argv!r})
except SystemExit as leaving:
    code = leaving.code
print(json.dumps([code or 0, sorted(sys.modules)]), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=False)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


@pytest.mark.parametrize("argv", [["--help"], ["segment", "--help"], ["evaluate", "--help"], ["push", "--help"]])
def test_help_imports_no_library_of_arrays(argv: list[str], tmp_path: Path):
    assert not imported(argv, tmp_path) & (HEAVY | {"torch", "numpy", "scipy"})


def test_segmenting_a_picture_imports_only_what_it_needs(tmp_path: Path):
    Image.fromarray(np.full((64, 64), 90, np.uint8)).save(tmp_path / "scan.png")
    found = imported(["segment", "lidc", "scan.png", "--samples", "2", "--out", "out"], tmp_path)
    assert (tmp_path / "out/scan/mask.png").is_file()
    assert "torch" in found
    assert not found & HEAVY

"""The house: which folder may import which, and that asking for help costs nothing."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_imports_run_one_way():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_diffusion_imports_only_torch_and_the_standard_library():
    names = set()
    for file in (ROOT / "src/berdiff/diffusion").glob("*.py"):
        for line in file.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                names.add(line.split()[1].split(".")[0])
    assert names - set(sys.stdlib_module_names) <= {"torch", "berdiff"}


def test_help_does_not_import_torch():
    code = "import sys; from berdiff.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: berdiff COMMAND" in done.stdout


def test_unknown_command_is_one_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "berdiff.cli.main", "segmnt"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("berdiff: no command 'segmnt'; expected one of ")
    assert len(done.stderr.splitlines()) == 1

"""The house: which folder may import which, what no line may hold, and that asking for help costs nothing."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def lines_with(pattern: str, files: list[Path]) -> list[str]:
    """`file:line: text` of every line that matches."""
    return [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in files
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_imports_run_one_way():
    """The contracts of pyproject.toml."""
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_diffusion_imports_only_torch_and_the_standard_library():
    names = set()
    for file in (ROOT / "src/berdiff/diffusion").rglob("*.py"):
        for line in file.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                names.add(line.split()[1].split(".")[0])
    assert names - set(sys.stdlib_module_names) == {"torch", "berdiff", "typing_extensions"}


def test_a_segmenter_is_typed_and_no_path_is_a_machines():
    assert not lines_with(r"segmenter: Any", SOURCES)
    everything = [
        *SOURCES,
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "docs").rglob("*.py"),
        *ROOT.glob("benchmarks/*.py"),
    ]
    everything += [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    assert not lines_with(r"(?<![\w.])/(" + "work|home|Users|root|tmp/base" + r")/\w", everything)


def test_configurations_import_no_torch():
    """`berdiff train RECIPE --help` reads all configurations."""
    code = """
import sys
from berdiff.methods.config import METHODS, method_class
from berdiff.methods.sampling import SamplerOptions
assert [method_class(name).method for name in METHODS.ours] == list(METHODS.ours)
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_help_does_not_import_torch_and_an_unknown_command_is_one_sentence():
    code = "import sys; from berdiff.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: berdiff COMMAND" in done.stdout
    command = [sys.executable, "-m", "berdiff.cli.main", "segmnt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("berdiff: no command 'segmnt'; expected one of ")
    assert len(done.stderr.splitlines()) == 1

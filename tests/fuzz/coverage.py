"""`make fuzz-coverage N=10000`: the readers alone, with atheris, which looks for inputs that reach new code.

A failing input is kept by atheris as crash-... in the folder where it runs.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["berdiff.data"]):
    from berdiff.data.csv_table import read_csv
    from berdiff.data.manifest import parse
    from berdiff.data.reading import read_image
    from berdiff.data.sources.plain_pickle import load_plain
    from berdiff.data.table import parse_table

from berdiff.errors import InputError
from fuzz.seeds import SEEDS

# what is read -> its seeds, the suffix of the file, and the reader
READERS: dict[str, tuple[str, str, Callable[[Path], Any]]] = {
    "png": ("pictures", ".png", read_image),
    "tiff": ("tiff", ".tif", read_image),
    "nifti": ("nifti", ".nii", read_image),
    "dicom": ("dicom", ".dcm", read_image),
    "npy": ("npy", ".npy", read_image),
    "pickle": ("pickle", ".pickle", load_plain),
    "csv": ("centers", ".csv", lambda path: read_csv(path, ("case",))),
    "manifest": ("store", ".json", lambda path: parse(path.read_text(errors="replace"), "store")),
    "cases": ("store", ".csv", lambda path: parse_table(path.read_text(errors="replace"), "cases.csv")),
}


def main() -> None:
    """Each reader in a process of its own: atheris ends the one that it runs in."""
    runs = sys.argv[1] if len(sys.argv) > 1 else "10000"
    failed = [name for name in READERS if os.spawnv(os.P_WAIT, sys.executable, _command(name, runs))]
    print(f"failed: {', '.join(failed)}" if failed else f"{runs} runs of each of {len(READERS)} readers: no fault")
    sys.exit(1 if failed else 0)


def _command(name: str, runs: str) -> list[str]:
    return [sys.executable, "-m", "fuzz.coverage", "--one", name, runs]


def one(name: str, runs: str) -> None:
    seeds, suffix, read = READERS[name]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus, made, path = folder / "corpus", folder / "made", folder / f"input{suffix}"
    corpus.mkdir()
    made.mkdir()
    SEEDS[seeds](made)
    for number, file in enumerate(sorted(file for file in made.rglob(f"*{suffix}") if file.is_file())):
        (corpus / str(number)).write_bytes(file.read_bytes())

    def test(content: bytes) -> None:
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            read(path)

    limits = [f"-atheris_runs={runs}", "-timeout=20", "-rss_limit_mb=2000", "-max_len=20000", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], test)
    atheris.Fuzz()


if __name__ == "__main__":
    one(*sys.argv[2:]) if sys.argv[1:2] == ["--one"] else main()

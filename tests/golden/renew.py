"""python tests/golden/renew.py [--dump DIR] [SECTION ...]: record the sums anew, or write the values behind them."""

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent
SUMS = HERE / "golden.json"
SECTIONS = ("segment", "stores", "configurations", "methods", "evaluations")
if __name__ == "__main__":  # as pytest has them
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent), str(HERE.parent / "data"), str(HERE.parent / "output")]
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import frozen  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402


def sections(root: Path) -> Callable[[str], dict[str, Any]]:
    """Makes the values of a section, by name, once; its files go to a folder of `root`."""
    makers: dict[str, Callable[[], frozen.Frozen]] = {
        "segment": lambda: frozen.segmented(root / "segment"),
        "stores": lambda: frozen.prepared(root / "stores"),
        "configurations": frozen.configured,
        "methods": frozen.drawn,
        "evaluations": lambda: frozen.evaluated(root / "evaluations", root / "stores" / "out"),
    }

    @cache
    def made(section: str) -> dict[str, Any]:
        if section == "evaluations":
            made("stores")
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with frozen.one_version(), patch("os.fsync"):  # nothing here needs to survive a power cut
                values = list(makers[section]())
        finally:
            torch.set_num_threads(threads)
        twice = [name for name, count in Counter(name for name, _ in values).items() if count > 1]
        assert not twice, f"values of one name: {twice}"
        return dict(values)

    return made


def digest(value: Any) -> str:
    """Of bytes, of an array with its type and shape, or of plain values as JSON: the first 64 bits of the SHA-256."""
    if isinstance(value, np.ndarray):
        value = f"{value.dtype.str} {value.shape} ".encode() + np.ascontiguousarray(value).tobytes()
    return hashlib.sha256(value if isinstance(value, bytes) else text(value).encode()).hexdigest()[:16]


def text(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True)


def dump(values: dict[str, Any], folder: Path) -> None:
    """Each value as a file: text, .npy, or the bytes as they are."""
    for name, value in values.items():
        path = folder / name.replace(": ", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        match value:
            case np.ndarray():
                np.save(path.with_name(f"{path.name}.npy"), value)
            case bytes():
                path.with_name(f"{path.name}.bin").write_bytes(value)
            case _:
                path.with_name(f"{path.name}.txt").write_text(f"{text(value)}\n")


def environment() -> dict[str, str]:
    """Where the sums were made: elsewhere convolutions are rounded otherwise."""
    return {"torch": torch.__version__, "processor": torch.backends.cpu.get_cpu_capability()}


def main() -> None:
    recorded = json.loads(SUMS.read_text()) if SUMS.exists() else {}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--dump", type=Path, metavar="DIR", help="write the values, and leave golden.json as it is")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        made = sections(Path(folder))
        for section in asked.sections or SECTIONS:
            values = made(section)
            if asked.dump:
                dump(values, asked.dump / section)
            else:
                recorded[section] = {name: digest(value) for name, value in values.items()}
    if not asked.dump:
        if "methods" in (asked.sections or SECTIONS):  # the one section that depends on the processor
            recorded["recorded on"] = environment()
        SUMS.write_text(json.dumps(recorded, indent=0) + "\n")


if __name__ == "__main__":
    main()

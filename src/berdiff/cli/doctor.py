"""berdiff doctor: what this machine has, and what is missing for what."""

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from berdiff.cli.arguments import parse, print_json

# extra -> what needs it; its packages are those of pyproject.toml
EXTRAS = {
    "viewer": "berdiff view",
    "onnx": "berdiff export --format onnx",
    "s3": "s3:// addresses of data and results",
    "ray": "berdiff segment --engine ray",
    "hub": "hf:// addresses of models, berdiff push",
}
# program -> what needs it; nothing else does
PROGRAMS = {
    "c++": "--compile",
    "git": "the commit in a run's environment.json",
    "chromium": "tests of the viewer; any browser shows its pages",
}
PLUG_INS = ("berdiff.methods", "berdiff.networks", "berdiff.sources")
CPU_INFO = Path("/proc/cpuinfo")
BF16 = ("avx512_bf16", "amx_bf16", "bf16")  # flags of the processor that compute in bf16


@dataclass(frozen=True)
class Doctor:
    """Show versions, devices, threads, data folders with their sizes, and what is missing for which extra."""

    json: bool = False  # print JSON

    def run(self) -> None:
        found = examine()
        if self.json:
            return print_json(found)
        from berdiff.text_tables import show_pairs

        show_pairs(_pairs(found))


def examine() -> dict[str, Any]:
    """Everything, in plain JSON types."""
    from berdiff import __version__
    from berdiff.methods.folder import bundled
    from berdiff.plugins import entry_points

    packages = _packages("")
    extras = {extra: {"for": purpose, "versions": _packages(extra)} for extra, purpose in EXTRAS.items()}
    return {
        "berdiff": __version__,
        "installed_in": str(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages,
        "missing": _missing(packages),
        "extras": {extra: {**of, "missing": _missing(of["versions"])} for extra, of in extras.items()},
        "programs": {name: {"for": purpose, "path": shutil.which(name)} for name, purpose in PROGRAMS.items()},
        "plug_ins": [f"{point.name} = {point.value}" for group in PLUG_INS for point in entry_points(group=group)],
        "machine": _machine(),
        "folders": _folders(),
        "bundled_weights": bundled(),
    }


def _packages(extra: str) -> dict[str, str | None]:
    """The packages that an extra needs, or berdiff itself, and the version that is installed of each."""
    marks = {line: re.search(r"extra == \"(\w+)\"", line) for line in metadata.requires("berdiff") or []}
    wanted = [line for line, mark in marks.items() if (mark[1] if mark else "") == extra]
    return {name: _version(name) for name in (re.split(r"[^\w.-]", line)[0] for line in wanted)}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _missing(versions: dict[str, str | None]) -> list[str]:
    return [name for name, version in versions.items() if version is None]


def _machine() -> dict[str, Any]:
    import torch

    from berdiff.device import bf16_ends_by, choose_device

    stated = CPU_INFO.read_text().splitlines() if CPU_INFO.is_file() else []
    lines = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in stated)}
    flags = {*lines.get("flags", lines.get("Features", "")).split()}
    properties = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return {
        "device": choose_device(),
        "cuda": [{"name": of.name, "memory": of.total_memory, "bf16": of.major >= 8} for of in properties],
        "mps": torch.backends.mps.is_available(),
        "cpu": lines.get("model name", platform.processor() or platform.machine()),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "threads_set_by": "OMP_NUM_THREADS" if os.environ.get("OMP_NUM_THREADS") else None,
        "bf16": sorted(flags & {*BF16}),
        # tried only where it may be announced and missing: it takes another second or two
        "bf16_ends_by": bf16_ends_by() if "amx_bf16" in flags else "",
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def _folders() -> dict[str, Any]:
    from berdiff.data.store import cache_folder, embedded_path

    cache = cache_folder()
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache/huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    paths = {"cache (BERDIFF_CACHE)": cache, "embedded data": embedded_path(cache), "models of hubs (HF_HOME)": hub}
    found = {name: {"path": str(path), "exists": path.exists(), "bytes": _size(path)} for name, path in paths.items()}
    free = next(path for path in (cache, *cache.parents) if path.exists())
    return {**found, "free": {"path": str(free), "exists": True, "bytes": shutil.disk_usage(free).free}}


def _size(path: Path) -> int:
    """Of all files, each once: caches of hubs link to them."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file() and not file.is_symlink())


def _pairs(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and what was found, in words."""
    from berdiff.device import BF16_REMEDY

    machine = found["machine"]
    bf16 = f"bf16 by {', '.join(machine['bf16'])}" if machine["bf16"] else "no bf16 in hardware"
    if machine["bf16_ends_by"]:
        bf16 += f", not usable: a product in it ends by {machine['bf16_ends_by']} unless {BF16_REMEDY} is set"
    threads = f"{machine['threads']} threads" + (f" ({machine['threads_set_by']})" if machine["threads_set_by"] else "")
    lines = [
        ("berdiff", f"{found['berdiff']} in {found['installed_in']}"),
        ("Python", f"{found['python']} at {sys.executable}"),
        ("platform", found["platform"]),
        ("device", f"--device auto takes {machine['device']}"),
        *(("GPU", f"{of['name']}, {_bytes(of['memory'])}{', bf16' if of['bf16'] else ''}") for of in machine["cuda"]),
        ("processor", f"{machine['cpu']}, {machine['cpus']} CPUs, {threads}, {bf16}"),
        ("memory", _bytes(machine["memory"])),
        ("weights", ", ".join(found["bundled_weights"])),
        ("plug-ins", ", ".join(found["plug_ins"]) or "none"),
        ("packages", ", ".join(f"{name} {version}" for name, version in found["packages"].items() if version)),
        ("missing", ", ".join(found["missing"]) or "nothing that segmenting, training and evaluating need"),
    ]
    for name, of in found["folders"].items():
        size = _bytes(of["bytes"]) + (" free" if name == "free" else "")
        lines.append((name, f"{of['path']}, {size if of['exists'] else 'not there yet'}"))
    for extra, of in found["extras"].items():
        state = f'without {", ".join(of["missing"])}: pip install "berdiff[{extra}]"' if of["missing"] else "complete"
        lines.append((f"[{extra}]", f"{state} ({of['for']})"))
    for name, of in found["programs"].items():
        lines.append((name, f"{of['path'] or 'not found'} (only for {of['for']})"))
    return lines


def _bytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def command(argv: list[str]) -> None:
    parse(Doctor, argv, "doctor").run()

"""`make fuzz N=10000`: damaged inputs of every format, each deterministic by its number, in a worker with limits.

The worker is forked when everything is imported, so an input costs milliseconds. It may take 20 s of the processor and
2 GB; one that hangs or crashes is ended and written down, and another goes on with the next.
"""

import argparse
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.mutations import damage
from fuzz.seeds import SEEDS
from fuzz.targets import TARGETS, attempt

SECONDS, MEGABYTES = 20, 2000  # of the processor: others may be at it
PATIENCE = 90  # seconds by the clock, for those that wait and do nothing
IDLE = 1  # seconds of the processor within that time: who takes less waits for something, also on a loaded machine
SINGLE = ("pictures", "tiff", "nifti", "dicom", "npy")  # each file or folder in it is an input
HARD_BYTES = 6 * 2**30  # of address space beyond what the worker has at its start: the machine is others' too


def make_seeds(folder: Path, formats: list[str]) -> None:
    for name in formats:
        (folder / name).mkdir(parents=True)
        SEEDS[name](folder / name)


def one_input(number: int, seed: int, seeds: Path, formats: list[str], work: Path) -> dict[str, Any]:
    """Damage a copy and give it to the command."""
    rng, name = np.random.default_rng([seed, number]), formats[number % len(formats)]
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(seeds / name, work / "in")
    if name in SINGLE:  # one to be damaged, and one that must not suffer
        entries = sorted((work / "in").iterdir())
        for entry in rng.permutation(len(entries))[2:]:
            path = entries[entry]
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    what = "nothing" if number < len(formats) else damage(rng, work / "in")  # the good ones first
    run = TARGETS[name][rng.integers(len(TARGETS[name]))]
    _reset_peak()
    start = time.process_time()
    refused, faults = attempt(run, work / "in", work / "out")
    seconds, peak = time.process_time() - start, _peak_megabytes()
    if number < len(formats) and refused:
        faults.append(("refused", "a good input"))  # type: ignore[arg-type]
    if seconds > SECONDS:
        faults.append(("hang", f"over {SECONDS} s"))  # type: ignore[arg-type]
    if peak > MEGABYTES:
        faults.append(("memory", f"{peak:.0f} MB"))  # type: ignore[arg-type]
    return {
        "number": number,
        "format": name,
        "what": what,
        "refused": refused,
        "seconds": seconds,
        "peak": peak,
        "faults": faults,
    }


def fuzz(count: int, seed: int, formats: list[str], first: int = 0, report: Any = None) -> list[dict[str, Any]]:
    """The outcome of each input, in order."""
    outcomes: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        seeds = Path(folder, "seeds")
        make_seeds(seeds, formats)
        while len(outcomes) < count:
            for outcome in _worker(first + len(outcomes), first + count, seed, seeds, formats, Path(folder, "work")):
                outcomes.append(outcome)
                if report is not None:
                    report(outcome)
    return outcomes


def _worker(first: int, last: int, seed: int, seeds: Path, formats: list[str], work: Path) -> Any:
    """Outcomes of inputs first, first + 1, ... until the last, or until the worker hangs or dies at one."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            _serve(write, first, last, seed, seeds, formats, work)
        except BaseException:  # the fuzzer's own fault
            Path(work.parent, "fuzzer.txt").write_text(traceback.format_exc())
        os._exit(0)
    os.close(write)
    number, text, begun = first, b"", 0.0
    with os.fdopen(read, "rb", buffering=0) as pipe:
        while number < last:
            before = _cpu_seconds(child)
            ready, _, _ = select.select([pipe], [], [], PATIENCE)
            if ready:
                begun = _cpu_seconds(child)
            elif _cpu_seconds(child) - before > IDLE and _cpu_seconds(child) - begun < SECONDS:
                continue  # it works, and others have the processor
            else:
                os.kill(child, signal.SIGKILL)
            piece = pipe.read(2**16) if ready else b""
            text += piece
            *lines, text = text.split(b"\n")
            for line in lines:
                yield json.loads(line)
                number += 1
            if not piece:
                _, status = os.waitpid(child, 0)
                idle = f"{PATIENCE} s without work, or over {SECONDS} s of it"
                kind = ("crash", f"signal {os.WTERMSIG(status)}") if ready else ("hang", idle)
                if (own := work.parent / "fuzzer.txt").exists():
                    raise RuntimeError(own.read_text())
                where = {"number": number, "format": formats[number % len(formats)], "what": "?"}
                yield {**where, "refused": False, "seconds": SECONDS, "peak": 0, "faults": [kind]}
                return
    os.waitpid(child, 0)


def _serve(pipe: int, first: int, last: int, seed: int, seeds: Path, formats: list[str], work: Path) -> None:
    warnings.simplefilter("ignore")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + HARD_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for number in range(first, last):
        outcome = one_input(number, seed, seeds, formats, work)
        os.write(pipe, json.dumps(outcome).encode() + b"\n")


def _cpu_seconds(process: int) -> float:
    """Of the processor, by a child that lives or was not waited for yet."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak_megabytes() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1000 for line in lines if line.startswith("VmHWM"))


def table(outcomes: list[dict[str, Any]]) -> str:
    """By format, in Markdown."""
    kinds = ("traceback", "crash", "hang", "memory", "half-written", "request", "refused")
    head = "| format | inputs | refused in a sentence | read | longest s | most MB | "
    lines = [head + "tracebacks | crashes | hangs | over 2 GB | half-written | requests | good ones refused |"]
    lines.append("|---" * 13 + "|")
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for outcome in outcomes:
        rows[outcome["format"]].append(outcome)
    for name, some in [*rows.items(), ("all", outcomes)]:
        faults = Counter(kind for one in some for kind, _ in one["faults"])
        refused = sum(one["refused"] for one in some)
        most = f"{max(one['seconds'] for one in some):.1f} | {max(one['peak'] for one in some):.0f}"
        counted = " | ".join(str(faults[kind]) for kind in kinds)
        lines.append(f"| {name} | {len(some)} | {refused} | {len(some) - refused} | {most} | {counted} |")
    return "\n".join(lines)


def main() -> int:
    options = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    options.add_argument("-n", type=int, default=1000, help="how many inputs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--first", type=int, default=0, help="number of the first input, to see one again")
    options.add_argument("--formats", nargs="*", default=list(SEEDS), choices=list(SEEDS))
    options.add_argument("--log", type=Path, help="file for the outcome of each input, a line of JSON each")
    options.add_argument("--show", nargs="*", type=Path, help="only print the table of such files")
    asked = options.parse_args()
    if asked.show:
        print(table([json.loads(line) for path in asked.show for line in path.read_text().splitlines()]))
        return 0
    found: Counter[str] = Counter()

    def report(outcome: dict[str, Any]) -> None:
        if asked.log is not None:
            with asked.log.open("a") as log:
                log.write(json.dumps(outcome) + "\n")
        for kind, text in outcome["faults"]:
            found[f"{kind}: {text}"] += 1
            if found[f"{kind}: {text}"] == 1:
                print(f"{outcome['number']} {outcome['format']}, {outcome['what']}: {kind}: {text}", flush=True)

    outcomes = fuzz(asked.n, asked.seed, asked.formats, asked.first, report)
    print(table(outcomes))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

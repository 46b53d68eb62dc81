"""Commands of any version of berdiff in forked children with limits of memory and time, and a small world for them."""

import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

GIGABYTES, MEGABYTES = 4, 1500  # of addresses beyond those at the start; of memory in all, for an input of a few kB
SECONDS, PATIENCE = 20, 15  # of the processor; by the clock without any work
SIDE = 32  # of the pictures


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # below 0: by this signal
    said: str
    megabytes: float
    hung: bool

    @property
    def last(self) -> str:
        """The last line, or how it begins."""
        return (self.said.strip().splitlines() or [""])[-1][:200]

    def wrong(self, *codes: int) -> str:
        """What nobody should see, or an exit code that is none of these; nothing where all is well."""
        if self.hung:
            return f"hangs, {PATIENCE} s without work"
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}"
        if "Traceback" in self.said or "should not happen" in self.said:
            return f"traceback, {self.last}"
        if self.megabytes > MEGABYTES:
            return f"takes {self.megabytes:.0f} MB"
        return "" if self.code in codes else f"exit code {self.code}, {self.last}"

    def refused(self, *words: str) -> str:
        """Nothing where it was refused in a sentence with these words."""
        missing = [word for word in words if word not in self.said]
        return self.wrong(2) or (f"does not say {missing[0]!r}, but {self.last}" if missing else "")


def start(
    argv: list[str],
    before: Callable[[], object] = lambda: None,
    gigabytes: float = GIGABYTES,
    seconds: int = SECONDS,
) -> tuple[int, int]:
    """The command in a child: its process id, and the pipe with what it prints."""
    read, write = os.pipe()
    if child := os.fork():
        os.close(write)
        os.set_blocking(read, False)
        return child, read
    try:
        os.setsid()
        os.dup2(write, 1)
        os.dup2(write, 2)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", closefd=False) for stream in (1, 2))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = int(pages * resource.getpagesize() + gigabytes * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        before()
        from berdiff.cli.main import main

        code = main(argv)
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def end(child: int, pipe: int, patience: float) -> Ended:
    """Wait for it, as long as it works."""
    said, worked, since, hung = b"", -1.0, time.monotonic(), False
    while True:
        said += _all_of(pipe)
        done, status, usage = os.wait4(child, os.WNOHANG)
        if done:
            break
        now = cpu_seconds(child)
        if now > worked or state(child) == "R":
            worked, since = now, time.monotonic()
        elif time.monotonic() - since > patience and not hung:
            hung = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.05)
    said += _all_of(pipe)
    os.close(pipe)
    return Ended(os.waitstatus_to_exitcode(status), said.decode(errors="replace"), usage.ru_maxrss / 1000, hung)


def berdiff(*argv: object, patience: float = PATIENCE, **limits: Any) -> Ended:
    """The command, within the limits of `start`, and how it ended."""
    return end(*start([str(word) for word in argv], **limits), patience)


def _all_of(pipe: int) -> bytes:
    try:
        return os.read(pipe, 2**20)
    except BlockingIOError:
        return b""


def state(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class World:
    """A small store, a run of two steps on it, and new folders for the faults."""

    base: Path

    @property
    def store(self) -> Path:
        return self.base / "store"

    @property
    def run(self) -> Path:
        return self.base / "run"

    def make(self) -> None:
        rng = np.random.default_rng(0)
        for case in range(6):
            picture(self.base / "data" / "images" / f"c{case}.png")
            mask = (rng.random((SIDE, SIDE)) < 0.2).astype(np.uint8) * 255
            save(Image.fromarray(mask), self.base / "data" / "masks" / f"c{case}.png")
        for argv in (["data", "prepare", "folder", self.base / "data", self.store], self.train(self.run)):
            if wrong := berdiff(*argv).wrong(0):
                sys.exit(f"{' '.join(map(str, argv))}: {wrong}")

    def train(self, out: Path) -> list[object]:
        options = ["--max-steps", 2, "--loop.batch-size", 2, "--loop.checkpoint-every", 1, "--loop.log-every", 1]
        options += ["--validation.every", 0, "--data.crop", None, "--engine.accelerator", "cpu", "--engine.threads", 1]
        return ["train", "demo", "--data", self.store, "--out", out, "--engine.devices", 1, *options]

    def folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.base))

    def segment(self, *inputs: Path, out: Path | None = None, more: tuple[object, ...] = (), **limits: Any) -> Ended:
        out = self.folder() / "out" if out is None else out
        return berdiff("segment", self.run, *inputs, "--out", out, "--samples", 1, "--device", "cpu", *more, **limits)


def save(image: Image.Image, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def picture(path: Path, side: int = SIDE) -> Path:
    return save(Image.fromarray(np.random.default_rng(1).integers(0, 256, (side, side), dtype=np.uint8)), path)


class Listener(threading.Thread):
    """A server on loopback that counts who comes and never answers."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self.socket.getsockname()[1]}/store"
        self.came: list[socket.socket] = []
        self.start()

    def run(self) -> None:
        while True:
            self.came.append(self.socket.accept()[0])

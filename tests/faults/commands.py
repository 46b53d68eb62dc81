"""Every command that writes, small, in a child that has everything imported; and what two results must share."""

import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from berdiff.boundary import run as behind_the_boundary
from berdiff.cli.main import main
from berdiff.data.reading import read_image
from berdiff.inference.inputs import find_inputs
from berdiff.methods.folder import save
from berdiff.training.session import train
from berdiff.training.stop import RunStopped
from berdiff_viewer.server.corrections import Corrections
from berdiff_viewer.server.items import Item
from fakes import Blur, make_spec, make_store
from reproduce.tables.run import run_table
from small_tables import job
from training.small import small_config

fork = multiprocessing.get_context("fork")
TIMES = ("seconds", "minutes", "cpu_minutes", "images_per_s", "memory_mb", "saved")
NOT_COMPARED = ("environment.json", "log.txt")  # one entry per session, and what the terminal showed


@dataclass(frozen=True)
class World:
    """What the commands work on."""

    base: Path

    @classmethod
    def make(cls, base: Path) -> "World":
        store = make_store(base, train=4, val=2, size=16)
        save(Blur(pause=0.01).build(make_spec(targets=("nodule",))), base / "blur")
        (base / "pictures").mkdir()
        rng = np.random.default_rng(0)
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (16, 16), dtype=np.uint8)).save(base / "pictures" / f"p{i}.png")
        world = cls(base)
        world.train(base / "runs" / "runs" / "small")
        assert store == base / "store.zarr"
        return world

    def segment(self, out: Path) -> int:
        written = ["samples", "saliency", "json", "report"]
        options = ["--out", str(out), "--samples", "2", "--batch-size", "1", "--write", *written]
        return main(["segment", str(self.base / "blur"), str(self.base / "pictures"), *options])

    def prepare(self, out: Path) -> int:
        return main(["data", "prepare", "lidc-hdf5", str(self.base / "data.hdf5"), str(out / "store.zarr")])

    def evaluate(self, out: Path) -> int:
        options = ["--data", str(self.base / "store.zarr"), "--out", str(out), "--split", "all"]
        options += ["--samples", "2", "--batch-size", "2", "--save-samples"]
        return main(["evaluate", str(self.base / "blur"), *options])

    def train(self, out: Path) -> int:
        config = small_config(self.base / "store.zarr", max_steps=4, checkpoint_every=2, log_every=2)
        config = replace(config, validation=replace(config.validation, every=2, cases=2, samples=2))
        return trained(lambda: train(config, out))

    def table(self, out: Path) -> int:
        made = job("kernel", str(self.base / "store.zarr"), out, steps=2)
        rows = tuple(row for row in made.table.rows if row.name == "bernoulli-short")
        return trained(lambda: run_table(replace(made, table=replace(made.table, rows=rows, claims=()))))

    def view(self, out: Path) -> int:
        """What the viewer does where a mask is saved."""
        (item, *_) = find_inputs([str(self.base / "pictures")])
        file, mask = read_image(item.paths[0]), np.zeros((16, 16), np.uint8)
        mask[4:9, 5:8] = 1

        def save() -> None:
            Corrections(out).save(Item("1", item, "a"), file, {"nodule": mask}, "A. Reader", {"model": "blur"})

        return behind_the_boundary("view", save)

    def plot(self, out: Path) -> int:
        files = ["--out", str(out / "curves.png"), "--csv", str(out / "curves.csv")]
        return main(["plot", str(self.base / "runs/runs"), *files])


COMMANDS = ("segment", "prepare", "evaluate", "train", "table", "view", "plot")


def trained(call: Callable[[], object]) -> int:
    """As `berdiff train` leaves."""

    def told() -> None:
        try:
            call()
        except RunStopped as stopped:
            print(f"berdiff train: {stopped}", file=sys.stderr)
            raise SystemExit(1) from None

    try:
        return behind_the_boundary("train", told)
    except SystemExit as left:
        return int(left.code or 0)


def start(world: World, command: str, out: Path, log: Path, before: Callable[[], object] = lambda: None):
    """The command in a forked child, which has torch already; what it prints goes to `log`."""

    def child() -> None:
        handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        before()
        code = getattr(world, command)(out)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    process = fork.Process(target=child)
    process.start()
    return process


def finish(world: World, command: str, out: Path, log: Path) -> int:
    process = start(world, command, out, log)
    process.join(300)
    assert process.exitcode is not None, f"{command} hangs"
    return process.exitcode


def content(out: Path) -> dict[str, object]:
    """Every file of a result, without what only says how long something took, and when."""
    found: dict[str, object] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file() or path.is_symlink()):
        name = path.relative_to(out).as_posix()
        if name.startswith("tensorboard/") or "/tensorboard/" in name or path.name in NOT_COMPARED:
            continue
        found[name] = _without_times(path, path.read_bytes())
    return found


def _without_times(path: Path, data: bytes) -> object:
    if path.suffix == ".json":
        read = _timeless(json.loads(data))
        if path.name == "state.json":
            del read["checksum"]  # of the times too
        return read
    if path.name == "stats.jsonl":
        return [_timeless(json.loads(line)) for line in data.splitlines()]
    if path.name == "per_case.csv":
        rows = [line.split(",") for line in data.decode().splitlines()]
        place = rows[0].index("seconds")
        return [row[:place] + row[place + 1 :] for row in rows]
    if path.name == "table.md":
        return re.sub(r"\|[^|\n]*seconds[^\n]*", "", data.decode())
    return data


def _timeless(value):
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in TIMES}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value

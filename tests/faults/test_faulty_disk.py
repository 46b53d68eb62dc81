"""Every call that changes the disk fails in turn: what is there is whole, and the same command finishes it."""

import os
import signal
from pathlib import Path

import pytest

from .commands import COMMANDS, World, content, finish, start
from .faulty_disk import FAULTS, FaultyDisk


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.make(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def whole(world: World):
    """The command's result, undisturbed, and how many calls it makes; made once."""
    made: dict[str, tuple[dict, int]] = {}

    def make(command: str) -> tuple[dict, int]:
        if command not in made:
            out, disk, count = world.base / f"whole-{command}", FaultyDisk(), world.base / f"count-{command}"
            process = start(world, command, out, world.base / "log", lambda: _count_into(disk, count))
            process.join(300)
            assert process.exitcode == 0, (world.base / "log").read_text()
            made[command] = content(out), int(count.read_text())
        return made[command]

    return make


def _count_into(disk: FaultyDisk, file: Path) -> None:
    """The number of calls, each time there is another: a child that ends with os._exit says nothing at its end."""
    counted, descriptor = disk.count, os.open(file, os.O_CREAT | os.O_RDWR)

    def count(*args, **kwargs) -> None:
        counted(*args, **kwargs)
        os.pwrite(descriptor, b"%d" % disk.calls, 0)

    disk.count = count  # type: ignore[method-assign]
    disk.install()  # after the file of the count was opened, which is no call of the command


def check(world: World, command: str, fault: str, at: int, whole: dict, base: Path) -> None:
    out, log = base / f"{command}-{fault}-{at}", base / "log"
    process = start(world, command, out, log, lambda: FaultyDisk(fault, at).install())
    process.join(300)
    said, code = log.read_text(), process.exitcode
    where = f"{command}, {fault} at call {at}"
    assert "Traceback" not in said, f"{where}: {said}"
    assert code in ((-signal.SIGKILL,) if fault == "killed" else (0, 1, 2)), f"{where}: {code}, {said}"
    if code in (1, 2):
        assert said.strip(), f"{where}: it ended without a word"
    stored = (out / "store.zarr" / "manifest.json").is_file()
    again = finish(world, command, out, log)
    if command == "prepare" and stored:
        assert again == 2, "it refuses to write over a store that is whole"
    else:
        assert again == 0, f"{where}, then again: {log.read_text()}"
    found = content(out)
    assert found.keys() == whole.keys(), f"{where}: {sorted(found.keys() ^ whole.keys())}"
    for name, value in whole.items():
        assert found[name] == value, f"{where}: {name} is another"


@pytest.mark.parametrize("command", COMMANDS)
def test_some_calls_that_fail(world: World, whole, tmp_path: Path, command: str) -> None:
    expected, calls = whole(command)
    place = COMMANDS.index(command)
    share = (0.4, 0.8)[place % 2]  # another fault for the next command
    check(world, command, FAULTS[place % len(FAULTS)], int(calls * share), expected, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_call_that_fails(world: World, whole, tmp_path: Path, command: str, fault: str) -> None:
    expected, calls = whole(command)
    print(f"{command}, {fault}: {calls} calls")
    for at in range(calls):
        check(world, command, fault, at, expected, tmp_path)

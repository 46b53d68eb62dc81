"""Fifty kills at any moment and twenty races of two processes in one folder: in the end, the bytes of one quiet run.

Slow; `pytest -s` shows the counts. What only says how long something took is left out (`commands.content`).
"""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from .commands import World, content, finish, start

COMMANDS = ("segment", "prepare", "evaluate", "train", "table")
KILLS, RACES = 50, 20


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World.make(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def quiet(world: World) -> dict[str, tuple[dict, float]]:
    """Of each command the result of one undisturbed run, and its seconds."""
    made = {}
    for command in COMMANDS:
        out, begun = world.base / f"quiet-{command}", time.monotonic()
        assert finish(world, command, out, world.base / "log") == 0, (world.base / "log").read_text()
        made[command] = content(out), time.monotonic() - begun
    return made


def same(out: Path, whole: dict, where: str) -> None:
    found = content(out)
    assert found.keys() == whole.keys(), f"{where}: {sorted(found.keys() ^ whole.keys())}"
    different = [name for name, value in whole.items() if found[name] != value]
    assert not different, f"{where}: {different}"


@pytest.mark.slow
def test_killed_at_any_moment(world: World, quiet, tmp_path: Path) -> None:
    rng, kills, number = random.Random(0), Counter[str](), 0
    while kills.total() < KILLS:
        command = min(COMMANDS, key=lambda name: kills[name])
        out, log, number = tmp_path / str(number), tmp_path / "log", number + 1
        whole, seconds = quiet[command]
        for _ in range(20):
            process = start(world, command, out, log)
            process.join(rng.uniform(0, seconds) if kills.total() < KILLS else 300)
            if not process.is_alive():
                break
            os.kill(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
            process.join()
            kills[command] += 1
        said = log.read_text()
        assert "Traceback" not in said
        if process.exitcode != 0 and not (command == "prepare" and "something there already" in said):
            assert finish(world, command, out, log) == 0, f"{command}: {said}, {log.read_text()}"
        same(out, whole, f"{command}, after {kills[command]} kills")
    print(f"\n{kills.total()} kills: {dict(kills)}; all ended with the bytes of an undisturbed run")


@pytest.mark.slow
def test_two_processes_in_one_folder(world: World, quiet, tmp_path: Path) -> None:
    rng, left = random.Random(1), Counter[tuple[str, int]]()
    for number in range(RACES):
        command = COMMANDS[number % len(COMMANDS)]
        out, logs = tmp_path / str(number), [tmp_path / "log-1", tmp_path / "log-2"]
        whole, seconds = quiet[command]
        first = start(world, command, out, logs[0])
        time.sleep(rng.uniform(0, 0.6) * seconds if number >= len(COMMANDS) else 0)
        second = start(world, command, out, logs[1])
        for process, log in ((first, logs[0]), (second, logs[1])):
            process.join(300)
            assert process.exitcode in (0, 2), f"{command}: {process.exitcode}, {log.read_text()}"
            assert "Traceback" not in log.read_text()
            if process.exitcode == 2:  # trainings, tables and stores have one writer, and say so
                words = ("another process at work", "another training at work", "something there already")
                assert any(word in log.read_text() for word in words), log.read_text()
                assert command in ("train", "table", "prepare")
            left[command, process.exitcode] += 1
        assert 0 in (first.exitcode, second.exitcode)
        same(out, whole, f"{command}, race {number}")
    told = ", ".join(f"{command} left with {code}: {count}" for (command, code), count in sorted(left.items()))
    print(f"\n{RACES} races: all ended with the bytes of an undisturbed run ({told})")

import json
import random
import resource
import shutil
from pathlib import Path

import pytest
import torch

from berdiff.errors import InputError
from berdiff.training import checkpoint
from berdiff.training.stop import RunStopped, disk_errors_as_sentence
from refusals import refused

FILES = ("raw.safetensors", "ema.safetensors", "optimizer.safetensors", "state.json")


def _tensors(seed: int) -> checkpoint.Tensors:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (2, 3), "b.c": (), "d/exp_avg": (4, 1, 2, 2)}
    return {
        part: {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        for part in checkpoint.PARTS
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for step in (10, 20, 30):
        checkpoint.write(tmp_path / "checkpoints", step, _tensors(step), {"step": step, "x": None}, keep=2)
    return tmp_path / "checkpoints"


def test_round_trip_and_only_the_newest_stay(folder: Path) -> None:
    assert [path.name for path in checkpoint.found(folder)] == ["step-00000020", "step-00000030"]
    newest, damaged = checkpoint.read_newest(folder)
    assert damaged == []
    assert newest is not None
    assert checkpoint.read_newest(folder / "none") == (None, [])
    assert newest.state == {"step": 30, "x": None}
    for part, tensors in _tensors(30).items():
        assert newest.tensors[part].keys() == tensors.keys()
        assert all(torch.equal(newest.tensors[part][name], value) for name, value in tensors.items())
    assert sorted(path.name for path in folder.glob("step-00000030/*")) == sorted(FILES)


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "empty"])
def test_a_damaged_newest_is_noticed_and_the_one_before_used(folder: Path, damage: str) -> None:
    for name in FILES:
        file = folder / "step-00000030" / name
        content = file.read_bytes()
        flipped = bytearray(content)
        flipped[random.Random(0).randrange(len(content))] ^= 1
        file.write_bytes({"truncate": content[:-7], "flip": bytes(flipped)}.get(damage, b""))
        if damage == "remove":
            file.unlink()
        newest, damaged = checkpoint.read_newest(folder)
        assert newest is not None
        assert newest.state["step"] == 20
        (line,) = damaged
        assert name in line
        assert line.startswith("step-00000030 is damaged")
        file.write_bytes(content)


def test_any_flipped_bit_of_the_state_is_noticed(folder: Path) -> None:
    """Except where it changes nothing that is read: the white space of the JSON."""
    path = folder / "step-00000030"
    content = (path / "state.json").read_bytes()
    before = checkpoint.read(path).state
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 1 << (place % 7)
        (path / "state.json").write_bytes(bytes(altered))
        try:
            assert checkpoint.read(path).state == before
        except InputError:
            continue
        assert json.loads(bytes(altered)) == json.loads(content)


def test_only_damaged_ones_is_an_error_not_a_fresh_start(folder: Path) -> None:
    for path in checkpoint.found(folder):
        (path / "raw.safetensors").write_bytes(b"")
    with refused(folder, code="damaged"):
        checkpoint.read_newest(folder)


def test_clean_removes_leftovers_and_damaged_ones(folder: Path) -> None:
    (folder / ".step-00000040.0123abcd.part").mkdir()
    (folder.parent / ".config.json.0123abcd.part").write_text("x")
    (folder.parent / "mine.part").write_text("kept")
    checkpoint.clean(folder.parent, newest_whole=20, keep=2)
    assert sorted(path.name for path in folder.iterdir()) == ["step-00000020"]
    assert sorted(path.name for path in folder.parent.iterdir()) == ["checkpoints", "mine.part"]


def test_a_full_disk_is_one_sentence_and_leaves_the_last_checkpoint_whole(folder: Path) -> None:
    """The system refuses to let any file grow beyond the limit: at the first file, or only at the state."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    sentence = r"^no room on the disk for the run \(.*\); step 30 is whole$"
    for limit in (100, 700, 900):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with (
                pytest.raises(RunStopped, match=sentence),
                disk_errors_as_sentence("the run", lambda: "step 30 is whole"),
            ):
                checkpoint.write(folder, 40, _tensors(40), {"step": 40, "x": "y" * 500}, keep=2)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [path.name for path in sorted(folder.iterdir())] == ["step-00000020", "step-00000030"]
        newest, damaged = checkpoint.read_newest(folder)
        assert newest is not None
        assert (newest.state["step"], damaged) == (30, [])


def test_other_errors_of_the_disk_stay_what_they_are(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file where the folder should be")
    with pytest.raises(FileExistsError), disk_errors_as_sentence("the run", str):
        checkpoint.write(folder, 40, _tensors(40), {}, keep=2)

"""Files and folders that appear whole or not at all, and locks."""

import os
import threading
from pathlib import Path

import pytest

from berdiff import files


def contents(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "deep" / "a.txt"
    files.write_text(path, "old")
    with files.whole_file(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"

    def fail(part: Path) -> None:
        part.write_text("half")
        raise OSError

    with pytest.raises(OSError), files.whole_file(path) as part:  # noqa: PT011
        fail(part)
    assert path.read_text() == "new"
    assert contents(tmp_path) == {"deep", "deep/a.txt"}


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path):
    with files.whole_folder(tmp_path / "out") as part:
        (part / "a").write_text("1")
        assert not (tmp_path / "out").exists()
    with pytest.raises(FileExistsError), files.whole_folder(tmp_path / "out"):
        pass
    with pytest.raises(FileNotFoundError), files.whole_folder(tmp_path / "other") as part:
        (part / "missing" / "a").write_text("1")
    assert contents(tmp_path) == {"out", "out/a"}


def test_what_a_killed_process_left_of_a_file_goes_and_what_a_living_one_writes_stays(tmp_path: Path):
    dead, other = tmp_path / ".a.txt.01234567.part", tmp_path / ".b.txt.01234567.part"
    for left in (dead, other):
        left.write_text("half")
    with files.whole_file(tmp_path / "a.txt") as first:
        first.write_text("first")
        files.write_text(tmp_path / "a.txt", "second")
        assert first.exists(), "its writer is alive"
    assert (tmp_path / "a.txt").read_text() == "first"
    assert contents(tmp_path) == {"a.txt", other.name}


def test_a_folder_is_replaced_in_one_step(tmp_path: Path, monkeypatch):
    def write(text: str) -> None:
        with files.replaced_folder(tmp_path / "out") as part:
            (part / "a").write_text(text)
            (part / "b").write_text(text)

    write("1")
    (tmp_path / "link").symlink_to("out")
    before = (tmp_path / "out").stat().st_ino
    write("2")
    assert (tmp_path / "out").stat().st_ino != before, "another folder took its place"
    with files.replaced_folder(tmp_path / "link") as part:
        (part / "a").write_text("3")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path) == {"out", "out/a", "link"}
    for failing in ("settle", "_exchange"):  # the disk is full, or broken: the older one stays
        with monkeypatch.context() as patch:
            patch.setattr(files, failing, lambda *folders: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(OSError, match="full"):
                write("4")
        assert (tmp_path / "out" / "a").read_text() == "3"
        assert contents(tmp_path) == {"out", "out/a", "link"}


def test_where_names_cannot_be_exchanged_the_newer_still_takes_the_place(tmp_path: Path, monkeypatch):
    class WithoutExchange:
        def __init__(self, *args, **kwargs) -> None: ...
        def renameat2(self, *args) -> int:
            return -1

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("")
    monkeypatch.setattr(files.ctypes, "CDLL", WithoutExchange)
    with files.replaced_folder(tmp_path / "out") as part:
        (part / "new").write_text("")
    assert contents(tmp_path) == {"out", "out/new"}


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_files_get_the_permissions_of_the_umask(tmp_path: Path, umask: int):
    """Also where a library makes a private file and renames it, as safetensors does."""

    def private(path: Path) -> None:
        other = path.with_name("private")
        os.close(os.open(other, os.O_CREAT | os.O_WRONLY, 0o600))
        os.replace(other, path)

    before = os.umask(umask)
    try:
        with files.whole_file(tmp_path / "a") as part:
            private(part)
        for make in (files.whole_folder, files.replaced_folder):
            with make(tmp_path / make.__name__) as part:
                (part / "sub").mkdir()
                private(part / "sub" / "b")
    finally:
        os.umask(before)
    for name in ("a", "whole_folder/sub/b", "replaced_folder/sub/b"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o666 & ~umask
    assert (tmp_path / "whole_folder").stat().st_mode & 0o777 == 0o777 & ~umask


def test_only_leftovers_are_removed(tmp_path: Path):
    keep = [".part", "a.part", ".a.1234567.part", ".a.0123456g.part", ".a.01234567.part.txt"]
    for name in keep:
        (tmp_path / name).write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".a.txt.01234567.part").write_text("")
    (tmp_path / ".folder.89abcdef.part").mkdir()
    (tmp_path / ".folder.89abcdef.part" / "b").write_text("")
    files.remove_leftovers(tmp_path)
    assert contents(tmp_path) == {*keep, "sub"}


def test_locks_shut_out_and_let_in(tmp_path: Path):
    """Two open files of one process hold flocks as two processes do."""
    path = tmp_path / "lock"
    one = files.lock(path, shared=True)
    two = files.lock(path, shared=True)
    assert one
    assert two
    assert files.lock(path, wait=False) is None
    assert not files.only_holder(one)
    assert files.only_holder(two), "the first has lost its lock"
    assert not files.only_holder(one)
    two.close()
    files.share(one)
    assert files.only_holder(one)
    assert files.lock(path, shared=True, wait=False) is None, "exclusive from then on"
    files.share(one)
    again = files.lock(path, shared=True, wait=False)
    assert again
    again.close()
    one.close()


def test_a_lock_file_that_its_holder_removed_is_made_anew(tmp_path: Path):
    path = tmp_path / "lock"
    held = files.lock(path)
    assert held
    got: list = []
    waiting = threading.Thread(target=lambda: got.append(files.lock(path)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "it waits"
    path.unlink()
    held.close()
    waiting.join(5)
    assert os.path.samestat(path.stat(), os.fstat(got[0].fileno())), "the lock of the file that is there now"
    got[0].close()

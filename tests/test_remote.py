"""Addresses: which are taken, how long an answer may take, and one sentence for whatever is wrong."""

import socket
import sys
import time
from pathlib import Path

import fsspec
import pytest

from berdiff.errors import InputError
from berdiff.remote import _filesystem, filesystem, is_remote, new_folder, place, speaking, typed_only

ADDRESSES = ("s3://bucket/a b", "gs://x", "az://x", "abfs://x", "http://x/y", "https://x/y", "memory://x")


def test_what_is_an_address_and_what_a_path():
    assert all(map(is_remote, ADDRESSES))
    for path in ("a/b", "/a/b", Path("/a"), "a::b", "reference::x", "file:///a", "C:/x", "s3:/bucket", ""):
        assert not is_remote(path)
    assert place("a//b/") == Path("a/b")
    assert place("file:///a/b") == Path("/a/b")
    assert place("s3://bucket/out/") == "s3://bucket/out"


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("reference://x.json", "found the protocol 'reference'"),
        ("ftp://host/x", "found the protocol 'ftp'"),
        ("github://org:repo@main/x", "found the protocol 'github'"),
        ("S3://bucket", "found the protocol 'S3'"),
        ("simplecache::s3://bucket/x", "found a chain of addresses"),
        ("s3://bucket/x::memory://y", "found a chain of addresses"),
        ("https://me:secret@host/x.png", "found one with them"),
        ("https://host/x.png?X-Amz-Signature=secret", "found one with them"),
    ],
)
def test_other_protocols_and_chains_are_refused_before_anything_is_opened(address, found, monkeypatch):
    monkeypatch.setattr(fsspec, "filesystem", lambda *given, **options: pytest.fail("it was opened"))
    with pytest.raises(InputError, match=f"^.*: expected .*, {found}$") as caught:
        filesystem(address)
    assert "X-Amz" not in str(caught.value)
    with pytest.raises(InputError, match=found):
        place(address)


def test_the_web_is_for_reading():
    with pytest.raises(InputError, match="expected a folder or an object store to write to, found an address to read"):
        place("https://host/out")


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    _filesystem.cache_clear()
    monkeypatch.setitem(sys.modules, "s3fs", None)  # what an import finds where it is not installed
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # imported by an earlier test
    with pytest.raises(InputError, match=r"the package s3fs for s3:// addresses, .* \(pip install 'berdiff\[s3\]'\)$"):
        filesystem("s3://bucket/x")


def test_an_address_out_of_a_file_is_not_opened():
    assert typed_only(None, "run", "--data") is None
    assert typed_only("/data/store", "run", "--data") == "/data/store"
    for address in ADDRESSES:
        with pytest.raises(InputError, match=r"^--data: expected .* on the command line, found it only in run/config"):
            typed_only(address, "run/config.json", "--data")


def test_errors_that_are_no_address_s_fault_go_on():
    with pytest.raises(KeyError), speaking("s3://x", "a store"):
        raise KeyError("ours")
    with (
        pytest.raises(InputError, match=r"^s3://x: expected a store, found permission denied"),
        speaking("s3://x", "a store"),
    ):
        raise PermissionError("Access Denied")


def test_missing_buckets_and_keys_are_one_sentence(bucket):
    fs, root = filesystem(f"{bucket}/none")
    with pytest.raises(InputError, match=r"expected a file, found nothing there$"), speaking("x", "a file"):
        fs.cat_file(root)
    with pytest.raises(InputError, match="expected a file, found no such bucket"), speaking("x", "a file"):
        fs.cat_file("no-such-bucket/none")
    with (
        pytest.raises(InputError, match=r"found no bucket 'no-such-bucket'$"),
        new_folder("s3://no-such-bucket/x", "z"),
    ):
        pytest.fail("nothing may be prepared for it")
    with (
        pytest.raises(InputError, match=r"^x: expected a file, found Parameter validation") as caught,
        speaking("x", "a file"),
    ):
        fs.cat_file("no bucket!/none")  # its library says so in two lines
    assert "\n" not in str(caught.value)


def _silent() -> socket.socket:
    """A server that takes connections and never answers."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def test_a_server_that_is_not_there_is_reported_within_seconds(bucket, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")  # bound, but nobody listens
        _filesystem.cache_clear()
        started = time.monotonic()
        fs, root = filesystem(f"{bucket}/x")
        with (
            pytest.raises(InputError, match=r"^x: expected an object store that answers, found no answer"),
            speaking("x", "y"),
        ):
            fs.cat_file(root)
    assert time.monotonic() - started < 20


@pytest.mark.slow
def test_a_server_that_never_answers_ends_by_the_named_time_outs(bucket, monkeypatch):
    from berdiff import remote

    monkeypatch.setitem(remote._S3, "read_timeout", 0.5)
    monkeypatch.setattr(remote, "ATTEMPTS", 2)
    with _silent() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.getsockname()))
        _filesystem.cache_clear()
        started = time.monotonic()
        fs, root = filesystem(f"{bucket}/x")
        with (
            pytest.raises(InputError, match="expected an object store that answers, found no answer"),
            speaking("x", "y"),
        ):
            fs.cat_file(root)
    assert time.monotonic() - started < 60


def test_an_upload_ends_with_its_last_file_and_leaves_nothing_when_it_fails(bucket, monkeypatch):
    fs, root = filesystem(f"{bucket}/store")
    with new_folder(f"{bucket}/store", last="b.json") as folder:
        (folder / "deep").mkdir(parents=True)
        for name in ("a.json", "b.json", "deep/c", "z"):
            (folder / name).write_text(name)
    assert sorted(path.removeprefix(f"{root}/") for path in fs.find(root)) == ["a.json", "b.json", "deep/c", "z"]
    again = pytest.raises(InputError, match="store: expected a new store, found something there already")
    with again, new_folder(f"{bucket}/store", last="b.json"):
        pytest.fail("it must be new")
    order, real = [], fs.put_file

    def put(local, remote, **options):
        order.append(Path(local).name)
        if len(order) == 3:
            raise PermissionError("Access Denied")
        return real(local, remote, **options)

    monkeypatch.setattr(fs, "put_file", put)
    with pytest.raises(InputError, match=r"found permission denied \(Access Denied\)$"):
        _fill(f"{bucket}/two")
    assert order == ["a", "c", "d"]
    assert not fs.find(f"{bucket}/two")


def _fill(address: str) -> None:
    with new_folder(address, "b") as folder:
        folder.mkdir()
        for name in "abcd":
            (folder / name).write_text(name)

"""Addresses: which are taken, how long an answer may take, and one sentence for whatever is wrong."""

import socket
import sys
import time
from pathlib import Path

import fsspec
import pytest

from berdiff.errors import InputError
from berdiff.remote import _filesystem, filesystem, is_remote, new_folder, place, speaking, typed_only
from refusals import refused

ADDRESSES = ("s3://bucket/a b", "gs://x", "az://x", "abfs://x", "http://x/y", "https://x/y", "memory://x")


def test_what_is_an_address_and_what_a_path():
    assert all(map(is_remote, ADDRESSES))
    for path in ("a/b", "/a/b", Path("/a"), "a::b", "reference::x", "file:///a", "C:/x", "s3:/bucket", ""):
        assert not is_remote(path)
    assert place("a//b/") == Path("a/b")
    assert place("file:///a/b") == Path("/a/b")
    assert place("s3://bucket/out/") == "s3://bucket/out"


@pytest.mark.parametrize(
    "address",
    [
        "reference://x.json",
        "ftp://host/x",
        "github://org:repo@main/x",
        "S3://bucket",
        "simplecache::s3://bucket/x",
        "s3://bucket/x::memory://y",
        "https://me:secret@host/x.png",
        "https://host/x.png?X-Amz-Signature=secret",
    ],
)
def test_other_protocols_and_chains_are_refused_before_anything_is_opened(address, monkeypatch):
    monkeypatch.setattr(fsspec, "filesystem", lambda *given, **options: pytest.fail("it was opened"))
    for taken in (filesystem, place):
        with pytest.raises(InputError) as said:
            taken(address)
        assert said.value.code == "unsupported"
        assert "X-Amz" not in str(said.value)


def test_the_web_is_for_reading():
    with refused("https://host/out", code="unsupported"):
        place("https://host/out")


def test_a_package_that_is_not_installed_is_named(monkeypatch):
    _filesystem.cache_clear()
    monkeypatch.setitem(sys.modules, "s3fs", None)  # what an import finds where it is not installed
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)  # imported by an earlier test
    with refused("s3://bucket/x", "pip install 'berdiff[s3]'", code="missing"):
        filesystem("s3://bucket/x")


def test_an_address_out_of_a_file_is_not_opened():
    assert typed_only(None, "run", "--data") is None
    assert typed_only("/data/store", "run", "--data") == "/data/store"
    for address in ADDRESSES:
        with refused("--data", "run/config.json", code="missing"):
            typed_only(address, "run/config.json", "--data")


def test_errors_that_are_no_address_s_fault_go_on():
    with pytest.raises(KeyError), speaking("s3://x", "a store"):
        raise KeyError("ours")
    with refused("s3://x", "Access Denied", code="access"), speaking("s3://x", "a store"):
        raise PermissionError("Access Denied")


def test_missing_buckets_and_keys_are_one_sentence(bucket):
    fs, root = filesystem(f"{bucket}/none")
    with refused("x: ", code="missing"), speaking("x", "a file"):
        fs.cat_file(root)
    with refused("x: ", "bucket does not exist", code="missing"), speaking("x", "a file"):
        fs.cat_file("no-such-bucket/none")
    with refused("'no-such-bucket'", code="missing"), new_folder("s3://no-such-bucket/x", "z"):
        pytest.fail("nothing may be prepared for it")
    with refused("x: ", "Parameter validation"), speaking("x", "a file"):
        fs.cat_file("no bucket!/none")  # its library says so in two lines


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
        with refused("x: ", "no answer", code="access"), speaking("x", "y"):
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
        with refused("x: ", "no answer", code="access"), speaking("x", "y"):
            fs.cat_file(root)
    assert time.monotonic() - started < 60


def test_an_upload_ends_with_its_last_file_and_leaves_nothing_when_it_fails(bucket, monkeypatch):
    fs, root = filesystem(f"{bucket}/store")
    with new_folder(f"{bucket}/store", last="b.json") as folder:
        (folder / "deep").mkdir(parents=True)
        for name in ("a.json", "b.json", "deep/c", "z"):
            (folder / name).write_text(name)
    assert sorted(path.removeprefix(f"{root}/") for path in fs.find(root)) == ["a.json", "b.json", "deep/c", "z"]
    with refused("store: ", code="conflict"), new_folder(f"{bucket}/store", last="b.json"):
        pytest.fail("it must be new")
    order, real = [], fs.put_file

    def put(local, remote, **options):
        order.append(Path(local).name)
        if len(order) == 3:
            raise PermissionError("Access Denied")
        return real(local, remote, **options)

    monkeypatch.setattr(fs, "put_file", put)
    with refused("Access Denied", code="access"):
        _fill(f"{bucket}/two")
    assert order == ["a", "c", "d"]
    assert not fs.find(f"{bucket}/two")


def _fill(address: str) -> None:
    with new_folder(address, "b") as folder:
        folder.mkdir()
        for name in "abcd":
            (folder / name).write_text(name)

"""Shared by all tests: where the real data is, if it is."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# some virtual machines announce AMX and end the process at its first instruction; read when torch first multiplies
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; a test that asks for it is skipped where it is absent."""
    path = Path(os.environ.get("BERDIFF_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not path.is_dir():
        pytest.skip(f"no real data at {path} (set BERDIFF_SHARED_DATA)")
    return path


@pytest.fixture(scope="session")
def _s3_server() -> Iterator[str]:
    """A server that speaks S3, on loopback; its address."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def bucket(_s3_server, monkeypatch) -> str:
    """The address of a new, empty bucket, reached by settings of the environment alone, as users have them."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**keys, "AWS_ENDPOINT_URL": _s3_server, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    from berdiff.remote import _filesystem, filesystem

    _filesystem.cache_clear()  # it may know another server
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    filesystem(f"s3://{name}")[0].mkdir(name)
    return f"s3://{name}"

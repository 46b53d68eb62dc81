"""Addresses on object stores, such as s3://bucket/folder: which are taken, how long to wait, one sentence when wrong.

Only an address that somebody typed is opened. One that was read out of a file may come from a stranger, and opening it
would send this machine's credentials, or a request from inside its network, wherever the file says (`typed_only`).
"""

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from berdiff.errors import InputError, first_line

CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 20, 3
# protocol -> (the package that speaks it, what installs it, options for it: time-outs, and listings that are never old)
_TIMES = {"connection_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}
_S3 = {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS, "retries": {"max_attempts": ATTEMPTS - 1}}
_PROTOCOLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "s3": ("s3fs", "berdiff[s3]", {"config_kwargs": _S3, "use_listings_cache": False}),
    "gs": ("gcsfs", "gcsfs", {"use_listings_cache": False}),
    "az": ("adlfs", "adlfs", {**_TIMES, "use_listings_cache": False}),
    "abfs": ("adlfs", "adlfs", {**_TIMES, "use_listings_cache": False}),
    "http": ("aiohttp", "aiohttp", {}),
    "https": ("aiohttp", "aiohttp", {}),
    "memory": ("fsspec", "fsspec", {}),
}
_READ_ONLY = ("http", "https")
_LIBRARIES = ("botocore", "aiobotocore", "aiohttp", "s3fs", "gcsfs", "google", "azure", "adlfs", "fsspec")
_NETWORK = (*_LIBRARIES, "urllib", "urllib3", "requests", "http", "httpx", "ssl", "socket")
_UNREACHABLE = re.compile("timeout|timed ?out|connect|resolve|endpoint", re.IGNORECASE)


def is_remote(address: str | Path) -> bool:
    """Whether it is an address at all; anything else is a path, whatever characters it has."""
    return "://" in str(address) and not str(address).startswith("file://")


def place(text: str | Path) -> Path | str:
    """Where to write: a local path, or an address that can be written to."""
    if not is_remote(text):
        return Path(str(text).removeprefix("file://"))
    if _protocol(str(text)) in _READ_ONLY:
        raise InputError(f"{text}: nothing can be written to this kind of address", "unsupported")
    return str(text).rstrip("/")


def typed_only(address: str | None, file: str | Path, option: str) -> str | None:
    """An address out of a file: the same, where it is a local path; refused, where it is not."""
    if address is not None and is_remote(address):
        raise InputError(
            f"{option}: give the address of the store on the command line; {address} is in {file} alone, and addresses "
            "out of files are not opened",
            "missing",
        )
    return address


def filesystem(address: str | Path) -> tuple[Any, str]:
    """The file system of a path or address, and the path on it."""
    address = str(address)
    protocol = _protocol(address) if is_remote(address) else "file"
    try:
        fs = _filesystem(protocol, os.getpid())
    except ImportError as error:
        package, install, _ = _PROTOCOLS[protocol]
        needed = f"{protocol}:// addresses need the package {package} (pip install '{install}')"
        raise InputError(f"{address}: {needed}", "missing") from error
    return fs, fs._strip_protocol(address)


@cache
def _filesystem(protocol: str, process: int) -> Any:
    """One per process: sessions with a server do not survive a fork, and fsspec's own cache would hand them on."""
    library: Any = import_module("fsspec")

    options = _PROTOCOLS[protocol][2] if protocol in _PROTOCOLS else {}
    if protocol in _READ_ONLY:
        import aiohttp

        wait = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        options = {"client_kwargs": {"timeout": wait}}
    fs = library.filesystem(protocol, skip_instance_cache=True, **options)
    fs.retries = ATTEMPTS  # s3fs's own, around those of its library
    return fs


def library_reason(error: BaseException) -> str | None:
    """What a library of object stores, or the network itself, says; None where the error is of another kind."""
    library = type(error).__module__.split(".")[0] in _NETWORK
    return first_line(error) if library or isinstance(error, TimeoutError | ConnectionError) else None


@contextmanager
def speaking(address: object, expected: str, missing: str = "nothing there") -> Generator[None, None, None]:
    """What the libraries of object stores raise, as one sentence; anything else goes on as it is."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        library = type(error).__module__.split(".")[0] in _LIBRARIES
        if not isinstance(error, OSError) and not library:
            raise
        reason, code = first_line(error), "access"
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            code = "missing"
            found = f"no such bucket ({reason})" if reason.endswith("bucket does not exist") else missing
        elif isinstance(error, PermissionError):
            found = f"permission denied ({reason})"
        elif isinstance(error, TimeoutError | ConnectionError) or (library and _UNREACHABLE.search(reason)):
            expected, found = "an object store that answers", f"no answer ({reason})"
        else:
            found = reason
        raise InputError(f"{address}: expected {expected}, found {found}", code) from error


@contextmanager
def new_folder(address: str, last: str) -> Generator[Path, None, None]:
    """Yield a local folder to fill; upload it on success, the file `last` at the very end: what has it is whole.

    The address must be new. What was uploaded is removed again where the upload fails.
    """
    fs, root = filesystem(address)
    with speaking(address, "an address that can be written"):
        require_bucket(fs, root, address)
        if fs.find(root):
            raise InputError(
                f"{address}: expected a new store, found something there already; remove it first", "conflict"
            )
    with TemporaryDirectory(prefix="berdiff-") as name:
        yield Path(name, "new")
        with speaking(address, "an address that can be written"):
            try:
                upload(Path(name, "new"), fs, root, last)
            except BaseException:
                remove(fs, root)
                raise


def upload(folder: Path, fs: Any, root: str, last: str) -> None:
    """Every file of a local folder, `last` at the end. No bucket is ever made."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: (path.name == last, path))
    for path in files:
        fs.put_file(str(path), f"{root}/{path.relative_to(folder).as_posix()}")


def remove(fs: Any, root: str) -> None:
    for path in fs.find(root):
        fs.rm_file(path)


def require_bucket(fs: Any, root: str, address: str) -> None:
    """Where nothing is yet, there must at least be the bucket."""
    bucket = root.strip("/").split("/")[0]
    try:
        if not address.startswith("memory://"):
            fs.info(bucket)
    except PermissionError:
        pass  # who may write objects need not be allowed to look at the bucket
    except FileNotFoundError as error:
        raise InputError(f"{address}: there is no bucket {bucket!r}", "missing") from error


def _protocol(address: str) -> str:
    protocol = address.split("://")[0]
    known = f"a folder or an address of {', '.join(_PROTOCOLS)}"
    if "::" in address:
        raise InputError(f"{address}: expected {known}, found a chain of addresses", "unsupported")
    if protocol not in _PROTOCOLS:
        raise InputError(f"{address}: expected {known}, found the protocol {protocol!r}", "unsupported")
    if protocol in _READ_ONLY and ("?" in address or "@" in address):
        raise InputError(f"{address.split('?')[0]}: addresses with a password or query are refused", "unsupported")
    return protocol

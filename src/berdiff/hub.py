"""Models on a model hub: hf://owner/name, or hf://owner/name@revision, through huggingface_hub.

Only three files are ever read or written: the configuration (JSON), the weights (safetensors) and the card. None can
hold code. A revision is looked up once and from then on is the commit it meant, so what was loaded can be loaded again.
Servers, caches and tokens are huggingface_hub's own: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE.
"""

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berdiff.display import is_quiet
from berdiff.errors import InputError, first_line

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
# The most that is downloaded of each, in bytes: a stranger's repository may hold anything under these names.
LARGEST = {CONFIG: 2**20, WEIGHTS: 8 * 2**30, CARD: 2**20}
SECONDS = 20
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_SNAPSHOT = re.compile(r"models--([\w.-]+)--([\w.-]+)/snapshots/([0-9a-f]{40})")


@dataclass(frozen=True)
class Address:
    repository: str  # owner/name
    revision: str | None = None  # a branch, tag or commit; None: the main branch

    def __str__(self) -> str:
        return f"hf://{self.repository}" + (f"@{self.revision}" if self.revision else "")

    @property
    def is_commit(self) -> bool:
        return re.fullmatch(r"[0-9a-f]{40}", self.revision or "") is not None


def is_hub(text: str | Path) -> bool:
    return str(text).startswith("hf:/")  # a path has lost one of the slashes


def parse(text: str) -> Address:
    match = _ADDRESS.fullmatch("hf://" + text.removeprefix("hf:").lstrip("/"))
    if match is None or ".." in text:
        raise InputError(f"{text}: expected hf://owner/name or hf://owner/name@revision, found another form", "name")
    return Address(*match.groups())


def address_of(folder: Path) -> str | None:
    """The address with its commit of a folder that `fetch` gave; None for any other."""
    match = _SNAPSHOT.search(folder.as_posix())
    return f"hf://{match[1]}/{match[2]}@{match[3]}" if match else None


def fetch(text: str) -> Path:
    """The model folder of an address, downloaded where this machine does not have that commit yet."""
    address = parse(text)
    hub = _package(text)
    if address.is_commit and (known := _cached(hub, address)):
        return known
    api = _api(hub)
    with _speaking(text):
        info = api.model_info(address.repository, revision=address.revision, files_metadata=True, timeout=SECONDS)
    files: list[Any] = info.siblings or []
    _check(text, {file.rfilename: file.size for file in files})
    commit = Address(address.repository, info.sha)
    where = {"repo_id": commit.repository, "revision": commit.revision, "endpoint": api.endpoint}
    wanted = [file.rfilename for file in files if file.rfilename in LARGEST]
    with _speaking(text):
        paths = [Path(hub.hf_hub_download(filename=name, etag_timeout=SECONDS, **where)) for name in wanted]
    return paths[0].parent


def push(folder: Path, text: str, card: str, private: bool = False, message: str = "Upload a berdiff model") -> str:
    """Publish a model folder with this card as one commit; the address with that commit.

    The repository is made where there is none, and a revision of the address is the branch to write to.
    """
    address = parse(text)
    hub = _package(text)
    if address.is_commit:
        raise InputError(f"{text}: a commit cannot be written to; name a branch", "unsupported")
    api, add = _api(hub), hub.CommitOperationAdd
    content = {CONFIG: folder / CONFIG, WEIGHTS: folder / WEIGHTS, CARD: card.encode()}
    operations = [add(path_in_repo=name, path_or_fileobj=of) for name, of in content.items()]
    with _speaking(text):
        api.create_repo(address.repository, private=private, exist_ok=True)
        if address.revision:
            api.create_branch(address.repository, branch=address.revision, exist_ok=True)
        done = api.create_commit(address.repository, operations, commit_message=message, revision=address.revision)
    return str(Address(address.repository, done.oid))


def _package(text: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        install = 'pip install "berdiff[hub]"'
        raise InputError(f"{text}: this needs `{install}`", "missing") from error
    from huggingface_hub.utils import disable_progress_bars, enable_progress_bars

    disable_progress_bars() if is_quiet() else enable_progress_bars()
    return huggingface_hub


def _api(hub: Any) -> Any:
    return hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="berdiff")


def _cached(hub: Any, address: Address) -> Path | None:
    """The folder of a commit whose files are all here: no server is asked."""
    paths = [hub.try_to_load_from_cache(address.repository, name, revision=address.revision) for name in LARGEST]
    needed = [path for path, name in zip(paths, LARGEST, strict=True) if name != CARD]
    return Path(needed[0]).parent if all(isinstance(path, str) for path in needed) else None


def _check(text: str, sizes: dict[str, int | None]) -> None:
    """What is there, and how large, before anything is downloaded."""
    for name in (CONFIG, WEIGHTS):
        if name not in sizes:
            raise InputError(f"{text}: no berdiff model: the repository has no {name}", "missing")
    for name, most in LARGEST.items():
        size = sizes.get(name, 0)
        if size is None or size > most:
            found = "an unknown size" if size is None else f"{size:,}"
            raise InputError(f"{text}: expected {name} of at most {most:,} bytes, found {found}", "limit")
    from huggingface_hub import constants

    cache = next(
        path for path in (Path(constants.HF_HUB_CACHE), *Path(constants.HF_HUB_CACHE).parents) if path.exists()
    )
    needed, free = sum(sizes.get(name) or 0 for name in LARGEST), shutil.disk_usage(cache).free
    if needed > free:
        raise InputError(f"{text}: expected {needed:,} bytes free in {cache}, found {free:,}", "limit")


@contextmanager
def _speaking(text: str) -> Generator[None, None, None]:
    """What huggingface_hub and its HTTP library raise, as one sentence."""
    try:
        yield
    except Exception as error:
        module = type(error).__module__.split(".")[0]
        if module not in ("huggingface_hub", "httpx", "httpx2", "requests") and not isinstance(error, OSError):
            raise
        raise InputError(f"{text}: {_refusal(error, first_line(error))}", "access") from error


def _refusal(error: Exception, reason: str) -> str:
    from huggingface_hub import errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.GatedRepoError):
        return "the owner of this model must grant access first"
    if isinstance(error, errors.RevisionNotFoundError):
        return "the repository has no such branch, tag or commit"
    if status == 403 or (status == 401 and "credentials" in str(error)):
        return f"your token (HF_TOKEN) does not allow this ({reason})"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such repository that your token (HF_TOKEN) may read"
    if status is not None:
        return f"the hub answers with status {status} ({reason})"
    return f"the hub does not answer ({reason})"

"""What all parts of the server share: how much it takes on, what a client is told, and what the log holds."""

import logging
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from berdiff.errors import Code, InputError

# --- limits: what goes beyond is refused in one sentence, before it costs anything ------------------------------------

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Of uploads, of work and of what is kept."""

    upload_bytes: int = 512 * MIB  # of one request
    upload_files: int = 4096  # of one upload, those in archives counted
    unpacked_bytes: int = 2048 * MIB  # of one upload, after unpacking
    stored_bytes: int = 8192 * MIB  # of all uploads together
    side: int = 2**15  # of a place or a number of slices
    items: int = 200  # of one session
    samples: int = 64  # masks of one job
    steps: int = 1000
    pool: int = 256
    representatives: int = 8
    pool_bytes: int = 1024 * MIB  # of the masks of one job, a byte per sample, target and pixel
    samples_file_bytes: int = 512 * MIB  # single samples of a larger result are left out of a download
    jobs: int = 8  # that wait (--queue)
    jobs_per_session: int = 4  # that wait or run
    results: int = 8  # kept per session
    results_bytes: int = 1024 * MIB  # kept of all sessions
    images_bytes: int = 1536 * MIB  # of opened images kept in memory
    sessions: int = 256
    session_seconds: float = 3600.0  # without a request
    abandoned_seconds: float = 20.0  # a job that nobody asks for is cancelled
    json_bytes: int = 64 * 1024  # of a request without files
    mask_bytes: int = 96 * MIB  # of a request with a rater's mask

    def shown(self) -> dict[str, int]:
        """What a client should know."""
        names = ("upload_bytes", "upload_files", "unpacked_bytes", "items", "samples", "steps", "pool")
        return {name: getattr(self, name) for name in (*names, "representatives", "jobs", "jobs_per_session")}


# --- refusals: one sentence and a status, never a path or a traceback -------------------------------------------------

MOST_CHARACTERS = 500
UNEXPECTED = "the server met a problem that its log has"
CODES_OF: dict[int, Code] = {
    **{400: "value", 404: "name", 406: "unsupported", 409: "conflict"},
    **{413: "limit", 429: "limit", 503: "limit"},
}


class Refused(InputError):
    """An answer with another status than 400, which every other InputError gets."""

    def __init__(self, status: int, sentence: str, retry: int = 0) -> None:
        super().__init__(sentence, CODES_OF.get(status, "access"))
        self.status, self.retry = status, retry  # seconds after which to ask again, where that may help


def not_found(what: str) -> Refused:
    return Refused(404, f"{what}: none of this name is open here")


def refusal(error: Exception, say: Callable[[InputError], str] = str) -> JSONResponse:
    """The answer that any error becomes, whoever asked: `error` is for the page, `detail` for MONAI Label's clients."""
    status, sentence, retry = 500, UNEXPECTED, 0
    if isinstance(error, InputError):
        status, retry = (error.status, error.retry) if isinstance(error, Refused) else (400, 0)
        sentence = say(error)
    elif isinstance(error, RequestValidationError):
        status, sentence = 422, fault(error, skip=1)  # the first part of a place is body, query or path
    elif isinstance(error, HTTPException):
        status, sentence = error.status_code, f"request: {error.detail}"
    told = sentence[:MOST_CHARACTERS]
    return JSONResponse({"error": told, "detail": told}, status, {"Retry-After": str(retry)} if retry else None)


def fault(error: RequestValidationError | ValidationError, skip: int = 0) -> str:
    """The first thing that is wrong in a request."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'][skip:])) or 'request'}: {first['msg']}"


def public(sentence: str, folders: Iterable[Path]) -> str:
    """A sentence about files, without the folders that they lie in on this machine."""
    sentence = sentence.replace("(--force segments", '("force": true segments')
    for folder in sorted(map(str, folders), key=len, reverse=True):
        if folder in sentence:
            here = rf"(?<![\w/.-]){re.escape(folder)}"  # a folder called `data` is not every word of that name
            sentence = re.sub(f"{here}/", "", sentence)
            sentence = re.sub(rf"{here}(?![\w-])", "the folder", sentence) if "/" in folder else sentence
    return sentence


# --- the log: one line per request, and where something failed; never a name of a file, a patient or a token ----------

logger = logging.getLogger("berdiff.view")
recent_lines: deque[str] = deque(maxlen=1000)  # for those who ask the server for its log


class _Keep(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        recent_lines.append(self.format(record))


def set_up_log(level: int = logging.INFO) -> None:
    logger.handlers[:] = [logging.StreamHandler(sys.stderr), _Keep()]
    for handler in logger.handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
    logger.propagate = False
    logger.setLevel(level)


def log_failure(error: BaseException) -> None:
    """Its kind and the lines of code it went through; its message may quote a file, so it is left out."""
    frames = traceback.extract_tb(error.__traceback__)
    places = " <- ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames[-6:]))
    logger.error("internal error %s at %s", type(error).__name__, places)

"""The one place where what the world does wrong becomes a sentence: disks, memory, networks, damaged bytes.

`berdiff.cli.main` runs every command through `run`. What nobody foresaw is told in one sentence too, and its traceback
goes into a log; `berdiff --debug` (or BERDIFF_DEBUG=1) shows it at once.
"""

import errno
import os
import platform
import re
import select
import struct
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

from berdiff import __version__
from berdiff.errors import InputError, first_line
from berdiff.remote import library_reason

DEBUG = "BERDIFF_DEBUG"
LOGS = 50  # of the newest are kept
MAX_LETTERS = 2000  # of a sentence
SAFE = "finished results are intact; rerun the command to resume"
_EXPECTED = {
    errno.ENOSPC: ("room on the disk", f"none left; {SAFE}"),
    errno.EDQUOT: ("room within the disk quota", f"none left; {SAFE}"),
    errno.EFBIG: ("a file that the file system can hold", "one that is too large for it"),
    errno.EROFS: ("a place that can be written", "a read-only file system"),
    errno.EACCES: ("permission to use it", "none (permission denied)"),
    errno.EPERM: ("permission to use it", "none (operation not permitted)"),
    errno.ENOTDIR: ("a folder", "a file on the way to it"),
    errno.EISDIR: ("a file", "a folder"),
    errno.ENOENT: ("a file or folder", "none of this name"),
    errno.EEXIST: ("a new file or folder", "one of this name"),
    errno.ENAMETOOLONG: ("a name that the file system can hold", "one that is too long"),
    errno.ELOOP: ("a file or folder", "symbolic links that lead in a circle"),
    errno.EMFILE: ("fewer open files (ulimit -n)", "as many as this process may have"),
    errno.ENFILE: ("fewer open files", "as many as this machine may have"),
    errno.EIO: ("a disk that works", f"an input or output error; {SAFE}"),
    errno.ESTALE: ("a network file system that works", f"a file that is no longer there; {SAFE}"),
    errno.ENOMEM: ("enough memory", "too little"),
}
_MEMORY = re.compile(r"not enough memory|can't allocate memory|out of memory", re.IGNORECASE)
# libraries that are not written in Python pass on the error of the operating system as text: "(os error 28)" of
# safetensors, "errno = 28" of HDF5
_NUMBER = re.compile(r"\(os error (\d+)\)|errno = (\d+)")
_BYTES = (UnicodeError, EOFError, struct.error, zlib.error)


def run(name: str, call: Callable[[], None]) -> int:
    """Run a command; its exit code: 0, 2 with a sentence on stderr, 130 where it was interrupted."""
    try:
        call()
    except KeyboardInterrupt:
        return _leave(name, "interrupted", 130)
    except Exception as error:  # of any kind: this is the end of the program
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return 1  # `berdiff ... | head`: the reader has seen enough
        if debugging():
            traceback.print_exc()
        return _leave(name, explain(error, name), 2)
    return 0


def explain(error: BaseException, what: str) -> str:
    """One sentence about an error that ends `what`; of one that nobody foresaw, with the path of a log."""
    return foreseen(error) or unforeseen(error, what)


def refusal(error: Exception, what: str) -> InputError:
    """An error that one input of several has met, as its refusal: the others go on."""
    if isinstance(error, InputError):
        return error
    if debugging():
        traceback.print_exception(error)
    memory = isinstance(error, MemoryError) or _MEMORY.search(str(error))
    code = "limit" if memory else "access" if foreseen(error) else "damaged"
    return InputError(f"{what}: {explain(error, what)}", code)


def foreseen(error: BaseException) -> str | None:
    """One sentence, where the cause lies outside of the program."""
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _MEMORY.search(str(error))):
        return f"memory: expected enough for this, found too little ({first_line(error)})"
    if (reason := library_reason(error)) is not None:
        return f"network: expected an answer, found {reason}"
    if (number := _os_error(error)) is not None:
        names = dict.fromkeys(os.fspath(of) for of in _files(error))
        where = " and ".join(os.fsdecode(name) for name in names) or "a file"
        expected, found = _EXPECTED.get(number, ("to read or write it", os.strerror(number)))
        return f"{where}: expected {expected}, found {found}"
    return None


def unforeseen(error: BaseException, what: str) -> str:
    """One sentence that names the log; of damaged bytes that no reader recognised, in their words."""
    about = f"{type(error).__name__}: {first_line(error)}"
    log = write_log(error, what)
    where = f"; please report it with {log}" if log else "; please report it with what --debug shows"
    if isinstance(error, _BYTES):
        return f"expected bytes that can be read, found others ({about}){where} if they should be readable"
    return f"expected to finish, found an error that should not happen ({about}){where}"


def debugging() -> bool:
    return os.environ.get(DEBUG, "") not in ("", "0")


def write_log(error: BaseException, what: str) -> Path | None:
    """The traceback in a file: in the cache folder, or that of temporary files; None where neither can be written."""
    lines = [f"berdiff {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    lines += [f"command: {' '.join(_without_token(sys.argv))}", f"at: {what}", ""]
    text = "\n".join(lines) + "".join(traceback.format_exception(error))
    cache = os.environ.get("BERDIFF_CACHE")
    for folder in (Path(cache) if cache else Path("~/.cache/berdiff").expanduser(), Path(gettempdir()) / "berdiff"):
        try:
            logs = folder / "logs"
            logs.mkdir(parents=True, exist_ok=True)
            name = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**9:09d}-{os.getpid()}.log"
            (logs / name).write_text(text, encoding="utf-8", errors="backslashreplace")
            for old in sorted(logs.glob("*.log"))[:-LOGS]:
                old.unlink(missing_ok=True)
            return logs / name
        except (OSError, RuntimeError):  # the latter: no home folder
            continue
    return None


def show_any_name() -> None:
    """Names that are not UTF-8 are printed with their odd bytes escaped, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _leave(name: str, sentence: str, code: int) -> int:
    """A line break within a file's name does not make it two sentences, nor a long setting a page."""
    cut = sentence if len(sentence) <= MAX_LETTERS else f"{sentence[:MAX_LETTERS]}..."
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)
    print(f"berdiff {name}: {line}", file=sys.stderr)
    return code


def _os_error(error: BaseException) -> int | None:
    """The number of the system's error, also where a library has passed it on as text alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _NUMBER.search(str(error))
    return None if found is None else int(found[1] or found[2])


def _files(error: BaseException) -> list[str | bytes]:
    found = (getattr(error, "filename", None), getattr(error, "filename2", None))
    return [name for name in found if isinstance(name, str | bytes)]


def _nobody_reads() -> bool:
    """Whether what is printed goes into a pipe that is closed; the flush at exit then finds no broken pipe."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        if any(event & select.POLLERR for _, event in poll.poll(0)):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            gone = True
    return gone


def _without_token(argv: list[str]) -> list[str]:
    words = [re.sub(r"^(--token=).*", r"\1...", word) for word in argv]
    return ["..." if before == "--token" else word for before, word in zip(["", *words], words, strict=False)]

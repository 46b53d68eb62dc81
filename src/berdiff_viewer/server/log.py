"""One line per request, and where something failed: never a name of a file, a patient or a token."""

import logging
import sys
import traceback
from collections import deque
from pathlib import Path

logger = logging.getLogger("berdiff.view")
_recent: deque[str] = deque(maxlen=1000)


class _Keep(logging.Handler):
    """For those who ask the server for its log."""

    def emit(self, record: logging.LogRecord) -> None:
        _recent.append(self.format(record))


def recent(lines: int) -> list[str]:
    return list(_recent)[-lines:] if lines else []


def set_up(level: int = logging.INFO) -> None:
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

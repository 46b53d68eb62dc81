"""What a client is told: one sentence and a status, never a path or a traceback."""

from collections.abc import Iterable
from pathlib import Path

MOST_CHARACTERS = 500


class Refused(Exception):
    """An answer other than success."""

    def __init__(self, status: int, sentence: str, retry: int = 0) -> None:
        super().__init__(sentence)
        self.status, self.retry = status, retry  # seconds after which to ask again, where that may help


def not_found(what: str) -> Refused:
    return Refused(404, f"{what}: expected one that is open here, found none of that name")


def busy(sentence: str, status: int = 503) -> Refused:
    return Refused(status, sentence, retry=1)


def public(error: BaseException | str, paths: Iterable[Path]) -> str:
    """A sentence about files, without the folders that they lie in on this machine."""
    sentence = str(error)
    for folder in sorted({str(path.parent) for path in paths}, key=len, reverse=True):
        sentence = sentence.replace(f"{folder}/", "").replace(folder, "the folder")
    return sentence[:MOST_CHARACTERS]

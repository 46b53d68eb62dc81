"""The one exception that means "the user's input is wrong", and nothing else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Code = Literal[
    "value", "conflict", "missing", "damaged", "kind", "shape", "place", "limit", "name", "access", "changed",
    "version", "unsupported",
]  # fmt: skip
CODES: dict[Code, str] = {
    "value": "an option, a field or a number in a file is not among those allowed",
    "conflict": "options or settings that do not go together, or one that needs another",
    "missing": "a file, case, column, tag or field that is needed is not there",
    "damaged": "a file that cannot be decoded, was cut short or altered",
    "kind": "a file, folder or image of another kind than was asked for",
    "shape": "sizes, dimensions or numbers of channels, slices or raters that do not fit",
    "place": "a place outside an image, or images that lie apart in space",
    "limit": "more than is allowed or than there is room for: pixels, bytes, memory, requests",
    "name": "a name that is unknown, used twice, or that no file can have",
    "access": "no permission, a full disk, or an address that does not answer",
    "changed": "what is there belongs to another input or configuration, or was changed meanwhile",
    "version": "a format of another version",
    "unsupported": "what this method, kernel or file format cannot do",
}
_FLAG = re.compile(r"(?<![\w-])--([a-z][\w.-]*\w)")


def first_line(error: BaseException) -> str:
    """The first line of a library's message, or what kind of error it is."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:160]


class InputError(ValueError):
    """Bad input: one sentence that names the file or option, and the code of what is wrong, one of `CODES`.

    The command line prints it without a traceback and leaves with exit code 2. Programs look at the code: sentences
    change.
    """

    def __init__(self, sentence: str, code: Code = "value") -> None:
        """Names out of files may hold anything: what is not printable is escaped here, for terminals and tables."""
        clean = sentence if sentence.isprintable() else "".join(map(_printable, sentence))
        super().__init__(clean)
        self.code: Code = code


def _printable(character: str) -> str:
    return character if character.isprintable() else ascii(character)[1:-1]


@contextmanager
def as_keywords(**names: str) -> Iterator[None]:
    """For what is called from Python: in the sentence of an InputError `--max-steps` becomes `max_steps`, or what
    `names` says. Also a decorator."""
    try:
        yield
    except InputError as error:

        def keyword(flag: re.Match[str]) -> str:
            name = flag[1].replace("-", "_")
            return names.get(name, name)

        error.args = (_FLAG.sub(keyword, str(error)),)
        raise

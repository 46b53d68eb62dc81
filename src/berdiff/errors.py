"""The one exception that means "the user's input is wrong", and nothing else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_FLAG = re.compile(r"(?<![\w-])--([a-z][\w.-]*\w)")


def first_line(error: BaseException) -> str:
    """The first line of a library's message, or what kind of error it is."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:160]


class InputError(ValueError):
    """Bad input: one sentence that names the file or option, what was expected and what was found.

    The command line prints it without a traceback and leaves with exit code 2.
    """

    def __init__(self, sentence: str) -> None:
        """Names out of files may hold anything: what is not printable is escaped here, for terminals and tables."""
        clean = sentence if sentence.isprintable() else "".join(map(_printable, sentence))
        super().__init__(clean)


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

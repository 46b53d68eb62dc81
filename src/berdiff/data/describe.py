"""The one form of an error sentence, WHERE: expected ..., found ..., and what was found in words."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from berdiff.errors import Code, InputError, first_line

Value = TypeVar("Value")


def by(shape: Iterable[int]) -> str:
    """128x128"""
    return "x".join(map(str, shape))


def some_values(array: np.ndarray, count: int = 6) -> str:
    """The different values of an array, or the first of them."""
    found = np.unique(array)
    return ", ".join(f"{value:g}" for value in found[:count]) + (", ..." if len(found) > count else "")


def present(value: Value | None, where: object, expected: str) -> Value:
    """The value, which must be there."""
    if value is None:
        raise InputError(f"{where}: expected {expected}, found none", "missing")
    return value


@contextmanager
def refusing(
    errors: tuple[type[Exception], ...], where: object, expected: str, found: str, code: Code = "damaged"
) -> Iterator[None]:
    """Say the same of what a library raises on a damaged or foreign file."""
    try:
        yield
    except InputError:
        raise
    except errors as error:
        raise InputError(f"{where}: expected {expected}, found {found} ({_first_sentence(error)})", code) from error


@contextmanager
def decoding(where: object, expected: str, found: str = "a damaged or foreign one") -> Iterator[None]:
    """Around a library that reads foreign bytes: whatever it happens to raise there means that they are wrong."""
    try:
        with refusing((Exception,), where, expected, found):
            yield
    except InputError as error:
        if isinstance(error.__cause__, MemoryError):
            raise InputError(f"{where}: needs more memory than there is", "limit") from error
        raise


def _first_sentence(error: BaseException) -> str:
    """The rest speaks to programmers."""
    return first_line(error).split(". ")[0]


def expect(right: object, where: object, expected: str, found: object = "none", code: Code | None = None) -> None:
    """Refuse what is not right: WHERE: expected ..., found ...; without a code, "missing" where none is found."""
    if not right:
        code = code or ("missing" if found == "none" else "value")
        raise InputError(f"{where}: expected {expected}, found {found}", code)


def check(right: object, sentence: str, code: Code = "value") -> None:
    """Refuse what is not right in a sentence that begins with the file or option."""
    if not right:
        raise InputError(sentence, code)


def refuse_older(content: Any, name: str, first: int, where: object) -> None:
    """Refuse a file whose format, the entry `name`, is older than the `first` that 0.2.0 wrote."""
    if isinstance(content, dict) and content.get(name) in range(1, first):  # pyright: ignore[reportUnknownMemberType]
        raise InputError(f"{where}: written before berdiff 0.2.0, which is the last version that reads it", "version")

"""Settings as typed data: the one place where plain JSON becomes a dataclass, checked, and back.

A group of settings is a frozen dataclass that inherits `Settings`, the content of a file one that inherits `Content`.
Bounds stand in their types (`Annotated[int, Ge(1)]`); what no type can say goes into a method `check`. The command line
(tyro), JSON files and Python all meet here. A file is measured before it is read, and its nesting before it is typed.
"""

import json
import stat
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from annotated_types import Ge, Lt

from berdiff.errors import InputError

T = TypeVar("T")
MAX_BYTES = 64 * 2**20  # of a JSON file
MAX_TABLE_BYTES = 512 * 2**20  # of a CSV file
MAX_DEPTH = 32  # of lists and objects within each other
MAX_WHOLE = 2**63  # what no counter reaches, and no array holds
Natural = Annotated[int, Ge(0), Lt(MAX_WHOLE)]
Count = Annotated[int, Ge(1), Lt(MAX_WHOLE)]
NotNegative = Annotated[float, Ge(0)]
SHOWN = 80  # characters of a wrong value in a message
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


class Settings:
    """Unknown names and other types than the declared ones are refused."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}

    def check(self) -> None:
        """Raise InputError("SETTING: expected ..., found ...") where settings do not go together."""


class Content(Settings):
    """Of a file that another version may have written: names that are not known are left aside."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "ignore", "strict": True, "allow_inf_nan": False}


def plain(value: Any) -> Any:
    """A dataclass, or whatever holds some, in plain JSON types."""
    from pydantic_core import to_jsonable_python  # a tenth of a second to import

    return to_jsonable_python(value)


def dump(value: Any) -> str:
    """The text of a JSON file."""
    return json.dumps(plain(value), indent=2, allow_nan=False) + "\n"


def parse(kind: type[T], content: Any, name: Callable[[str], str]) -> T:
    """`content`, in plain JSON types, as a `kind`; `name` turns the place of a fault ("loop.keep") into words."""
    from pydantic import ValidationError

    try:
        value = _adapter(kind).validate_json(json.dumps(content))
    except ValidationError as error:
        raise InputError(_sentence(error.errors()[0], name)) from None
    for place, group in _groups(value):
        try:
            group.check()
        except InputError as error:
            setting, _, rest = str(error).partition(":")
            raise InputError(f"{name(place + setting)}:{rest}", error.code) from error
    return value


@cache
def _adapter(kind: Any) -> Any:
    """Made once: for nested settings that takes some hundredths of a second."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def check(value: T, kind: type[T], name: Callable[[str], str]) -> T:
    """The same value, after every check that `parse` makes."""
    return parse(kind, plain(value), name)


def read_text(path: Path, what: str, most: int = MAX_TABLE_BYTES) -> str:
    """The text of a file; `what` says what was expected there. Only a regular file of a sensible size is opened."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path}: expected {what}, found no regular file")
        if found.st_size > most:
            raise InputError(f"{path}: expected {what} of at most {most >> 20} MB, found {found.st_size >> 20} MB")
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected {what}, found other bytes than UTF-8 text") from error
    except OSError as error:
        raise InputError(f"{path}: expected {what}, found no readable file ({error.strerror or error})") from error


def read_json(path: Path, what: str, nan: bool = False) -> Any:
    """The content of a JSON file; `what` says what was expected there."""
    return loads(read_text(path, what, MAX_BYTES), str(path), what, nan)


def loads(text: str | bytes, where: str, what: str, nan: bool = False) -> Any:
    """The content of a JSON text, in values that everything behind can hold; `nan`: numbers may be NaN."""
    try:
        content = json.loads(text)
        _refuse_odd(content, nan)
    except (ValueError, RecursionError) as error:
        reason = "too deep a nesting" if isinstance(error, RecursionError) else error
        raise InputError(f"{where}: expected {what} in JSON, found something else ({reason})") from error
    return content


def _refuse_odd(content: Any, nan: bool) -> None:
    """ValueError where a value is legal JSON but nothing that a file of ours would hold."""
    level = [content]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value, *value.values()]
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str):
                if "\0" in value:
                    raise ValueError("a text with a zero byte")
                if not value.isascii():
                    value.encode()  # half of a surrogate pair is no letter
            elif isinstance(value, float) and not isfinite(value) and not nan:
                raise ValueError(f"the number {value}")
            elif isinstance(value, int) and abs(value) >= MAX_WHOLE:
                raise ValueError(f"a number of {len(str(abs(value)))} digits")
        if not inner:
            return
        level = inner
    raise ValueError("too deep a nesting")


def read(path: Path, kind: type[T], what: str, nan: bool = False) -> T:
    """A JSON file as a `kind`."""
    return parse(kind, read_json(path, what, nan), lambda place: f"{path}: {place}" if place else f"{path}")


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting of nested groups as (dotted name, value)."""
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from flatten(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, inner


def _groups(value: Any, prefix: str = "") -> Iterator[tuple[str, Settings]]:
    """(the beginning of its settings' dotted names, the group) of each group in a value."""
    if isinstance(value, Settings):
        yield prefix, value
    if is_dataclass(value):
        for field in fields(value):
            yield from _groups(getattr(value, field.name), f"{prefix}{field.name}.")


def _sentence(fault: Any, name: Callable[[str], str]) -> str:
    # behind the name of a setting, pydantic puts the member of a union that did not fit ("int", "tuple[int, ...]")
    unknown = fault["type"] in ("unexpected_keyword_argument", "extra_forbidden")
    parts = fault["loc"][:-1] if unknown else fault["loc"]
    place = [str(part) for part in parts if str(part).isidentifier() and part not in ("int", "float", "str")]
    if unknown:
        return f"{name('.'.join(place))}: expected known settings, found an unknown one, {fault['loc'][-1]!r:.{SHOWN}}"
    if fault["type"] == "missing":
        return f"{name('.'.join(place))}: expected a value, found none"
    if fault["type"] == "value_error":  # raised by the dataclass itself, which begins with the setting's name
        setting, _, rest = str(fault["ctx"]["error"]).partition(":")
        return f"{name('.'.join([*place, setting]))}:{rest}"
    if fault["type"] in _BOUNDS:
        bound, words = _BOUNDS[fault["type"]]
        expected = f"{words} {fault['ctx'][bound]}"
    elif fault["type"] == "literal_error":
        expected = f"one of {fault['ctx']['expected']}"
    else:
        expected = str(fault["msg"]).removeprefix("Input should be ")
    found = repr(fault["input"])
    return f"{name('.'.join(place))}: expected {expected}, found {found[:SHOWN]}{'...' if len(found) > SHOWN else ''}"

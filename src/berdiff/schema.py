"""Settings as typed data: the one place where plain JSON becomes a dataclass, checked, and back.

A group of settings is a frozen dataclass that inherits `Settings`. Bounds stand in its types (`Annotated[int, Ge(1)]`);
what no type can say goes into a method `check`. The command line (tyro), JSON files and Python all meet here.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from berdiff.errors import InputError

T = TypeVar("T")
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
            raise InputError(f"{name(place + setting)}:{rest}") from error
    return value


@cache
def _adapter(kind: Any) -> Any:
    """Made once: for nested settings that takes some hundredths of a second."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def check(value: T, kind: type[T], name: Callable[[str], str]) -> T:
    """The same value, after every check that `parse` makes."""
    return parse(kind, plain(value), name)


def read_json(path: Path, what: str) -> Any:
    """The content of a JSON file; `what` says what was expected there."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: expected {what}, found no readable file ({error.strerror})") from error
    return json_of(content, path, what)


def json_of(content: bytes, where: object, what: str) -> Any:
    """The same of what was read from somewhere."""
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: expected {what} in JSON, found something else ({error})") from error


def read(path: Path, kind: type[T], what: str) -> T:
    """A JSON file as a `kind`."""
    return parse(kind, read_json(path, what), lambda place: f"{path}: {place}" if place else f"{path}")


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
    place = [str(part) for part in fault["loc"] if str(part).isidentifier() and part not in ("int", "float", "str")]
    if fault["type"] == "unexpected_keyword_argument":
        return f"{name('.'.join(place[:-1]))}: expected known settings, found an unknown one, {place[-1]!r}"
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
    return f"{name('.'.join(place))}: expected {expected}, found {fault['input']!r}"

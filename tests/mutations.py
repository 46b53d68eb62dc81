"""Wrong JSON and CSV files, made of right ones: every value and key in turn, and the text as a whole."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

ODD: tuple[Any, ...] = (None, True, "x", "", -1, 0, 1.5, -1e308, 10**30, float("nan"), float("inf"), [], {}, [[1]])
ODD += ({"a": {"b": []}}, "\ud800", "a\0b", "$x_1^$ [red]", "../../../etc/passwd", "s3://bucket/x", "x" * 5000)


def values(content: Any) -> Iterator[Any]:
    """The content with one place wrong: another value, no value, or one that should not be there."""
    for place in _places(content):
        for odd in ODD:
            yield _with(content, place, odd)
        if place and isinstance(place[-1], str):
            yield _with(content, place, ...)
    if isinstance(content, dict):
        yield {**content, "unknown": 1, "un known": 2}


def _places(content: Any, so_far: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield so_far
    inner = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(inner)[:40]:
        yield from _places(value, (*so_far, key))


def _with(content: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    new = copy.deepcopy(content)
    at = new
    for key in place[:-1]:
        at = at[key]
    if value is ...:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return new


def texts(text: str) -> Iterator[bytes]:
    """The file as a whole wrong: empty, cut off, too deep, of other bytes."""
    whole = text.encode()
    yield from (b"", b" ", b"null", b"[]", b"{}", b"3", b'"x"', b"{", b"\xff\xfe", b"\0" * 99, b"[1e999]", b"NaN")
    yield from (b"[" * 100_000, b'{"a":' * 50_000, b"[1" + b"0" * 6000 + b"]")
    yield from (b"\xef\xbb\xbf" + whole, whole + whole, whole.replace(b'"', b"'"))
    rng = random.Random(0)
    for _ in range(12):
        at = rng.randrange(len(whole))
        yield whole[:at]
        yield whole[:at] + bytes([rng.randrange(256)]) + whole[at + 1 :]


def of_json(text: str) -> Iterator[bytes]:
    for content in values(json.loads(text)):
        yield json.dumps(content).encode()
    yield from texts(text)


def of_lines(text: str) -> Iterator[bytes]:
    """JSON lines: the first one wrong, and the whole."""
    first, *rest = text.splitlines()
    for content in values(json.loads(first)):
        yield "\n".join([json.dumps(content), *rest, ""]).encode()
    yield from texts(text)


def of_csv(text: str) -> Iterator[bytes]:
    lines = [line.split(",") for line in text.splitlines()]
    for row in (0, 1, len(lines) - 1):
        for column in range(len(lines[row])):
            for odd in ("", "x", "-1", "0", "1e999", "nan", "9" * 30, "9" * 5000, '"', "a\nb", "y" * 200_000, "1.5"):
                new = [list(line) for line in lines]
                new[row][column] = odd
                yield "\n".join(map(",".join, new)).encode()
        yield "\n".join(map(",".join, lines[:row] + lines[row + 1 :])).encode()
        yield "\n".join(map(",".join, [*lines, lines[row]])).encode()
        yield "\n".join(map(",".join, [*lines, lines[row][:-1]])).encode()
    yield from texts(text)


def some(mutants: Iterator[bytes], count: int | None) -> list[bytes]:
    """As many of them, evenly spread; None: all."""
    every = list(mutants)
    return every if count is None else [every[i * len(every) // count] for i in range(min(count, len(every)))]

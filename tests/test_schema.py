"""Plain JSON becomes typed settings or one sentence."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Gt, Le, Lt

from berdiff import schema
from berdiff.errors import InputError


@dataclass(frozen=True)
class Inner(schema.Settings):
    rate: Annotated[float, Gt(0), Lt(1)] = 0.5
    window: tuple[float, float] | None = None
    kind: Literal["a", "b"] = "a"

    def check(self) -> None:
        if self.window and self.window[0] >= self.window[1]:
            raise InputError(f"window: expected a lower and a higher value, found {self.window}")


@dataclass(frozen=True)
class Unchecked:
    """A dataclass that is no group of settings, such as the sampler."""

    share: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share: expected a share in [0, 1], found {self.share}")


@dataclass(frozen=True)
class Outer(schema.Settings):
    name: str
    count: Annotated[int, Ge(1), Le(9)] = 3
    steps: int | tuple[int, ...] = 10
    inner: Inner = field(default_factory=Inner)
    plain: Unchecked = field(default_factory=Unchecked)

    def check(self) -> None:
        if self.name == "odd" and self.count % 2 == 0:
            raise InputError(f"count: expected an odd number, found {self.count}")


def flag(place: str) -> str:
    return f"--{place}" if place else "settings"


GOOD = {"name": "x", "count": 4, "steps": [5, 2], "inner": {"rate": 0.25, "window": [-1, 4.5], "kind": "b"}}


def test_what_is_right_becomes_the_dataclass_and_back():
    value = schema.parse(Outer, GOOD, flag)
    assert value == Outer("x", 4, (5, 2), Inner(0.25, (-1.0, 4.5), "b"))
    assert schema.plain(value) == {**GOOD, "plain": {"share": 1.0}}
    assert schema.parse(Outer, schema.plain(value), flag) == value
    assert schema.check(value, Outer, flag) == value
    assert json.loads(schema.dump(value)) == schema.plain(value)
    assert schema.dump(value).endswith("}\n")
    assert schema.parse(Outer, {"name": "x"}, flag) == Outer("x"), "defaults"
    assert dict(schema.flatten(value))["inner.window"] == (-1.0, 4.5)
    assert list(dict(schema.flatten(value))) == ["name", "count", "steps"] + [
        f"inner.{name}" for name in ("rate", "window", "kind")
    ] + ["plain.share"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"count": 0}, "--count: expected at least 1, found 0"),
        ({"count": 10}, "--count: expected at most 9, found 10"),
        ({"inner": {"rate": 0}}, "--inner.rate: expected more than 0.0, found 0"),
        ({"inner": {"rate": 1.0}}, "--inner.rate: expected less than 1.0, found 1.0"),
        ({"inner": {"rate": float("nan")}}, "--inner.rate: expected a finite number, found nan"),
        ({"inner": {"rate": float("-inf")}}, "--inner.rate: expected "),
        ({"plain": {"share": 2.0}}, "--plain.share: expected a share in [0, 1], found 2.0"),
        ({"plain": {"share": float("nan")}}, "--plain.share: expected a finite number, found nan"),
        ({"plain": {"share": 2}}, "--plain.share: expected a share in [0, 1], found 2.0"),
        ({"pace": 1}, "settings: expected known settings, found an unknown one, 'pace'"),
        ({"inner": {"pace": 1}}, "--inner: expected known settings, found an unknown one, 'pace'"),
        ({"plain": {"pace": 1}}, "--plain: expected known settings, found an unknown one, 'pace'"),
        ({"count": "3"}, "--count: expected a valid integer, found '3'"),
        ({"count": 3.0}, "--count: expected a valid integer, found 3.0"),
        ({"count": True}, "--count: expected a valid integer, found True"),
        ({"count": None}, "--count: expected a valid integer, found None"),
        ({"name": 3}, "--name: expected a valid string, found 3"),
        ({"steps": [1, "a"]}, "--steps: expected a valid integer, found [1, 'a']"),
        ({"inner": {"window": [1]}}, "--inner.window: expected "),
        ({"inner": {"kind": "c"}}, "--inner.kind: expected one of 'a' or 'b', found 'c'"),
        ({"inner": 3}, "--inner: expected an object, found 3"),
        ({"inner": {"window": [4, 1]}}, "--inner.window: expected a lower and a higher value, found (4.0, 1.0)"),
        ({"name": "odd", "count": 4}, "--count: expected an odd number, found 4"),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_place(change: dict, sentence: str):
    with pytest.raises(InputError) as caught:
        schema.parse(Outer, {**GOOD, **change}, flag)
    assert str(caught.value).startswith(sentence)
    assert len(str(caught.value).splitlines()) == 1


def test_what_is_missing_and_what_is_no_object():
    with pytest.raises(InputError, match=r"^--name: expected a value, found none$"):
        schema.parse(Outer, {}, flag)
    for content in ([], "x", None, 3):
        with pytest.raises(InputError, match=r"^settings: expected "):
            schema.parse(Outer, content, flag)


def test_a_value_made_in_python_is_checked_as_one_from_a_file():
    with pytest.raises(InputError, match=r"^--inner.rate: expected less than 1.0, found 7.0$"):
        schema.check(Outer("x", inner=Inner(rate=7.0)), Outer, flag)


def test_files(tmp_path: Path):
    file = tmp_path / "settings.json"
    with pytest.raises(
        InputError, match=r"settings\.json: expected the settings, found no readable file \(No such file"
    ):
        schema.read(file, Outer, "the settings")
    for text in ("{", "", "nan?", "[" * 100_000):
        file.write_text(text)
        with pytest.raises(InputError, match=r"settings\.json: expected the settings in JSON, found something else"):
            schema.read(file, Outer, "the settings")
    file.write_bytes(b"\xff\xfe{}")
    with pytest.raises(InputError, match=r"settings\.json: expected the settings, found other bytes than UTF-8"):
        schema.read_json(file, "the settings")
    file.write_text(json.dumps({"name": "x", "count": 99}))
    with pytest.raises(InputError, match=r"settings\.json: count: expected at most 9, found 99$"):
        schema.read(file, Outer, "the settings")
    file.write_text(schema.dump(Outer("x")))
    assert schema.read(file, Outer, "the settings") == Outer("x")
    with pytest.raises(ValueError, match="not JSON compliant"):
        schema.dump({"value": float("nan")})

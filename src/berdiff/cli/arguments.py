"""What every command does alike: its options are parsed by one set of rules, and JSON is printed in one form."""

import re
from collections.abc import Callable
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructTypeInfo,
)

from berdiff import schema
from berdiff.inference.settings import option

MODEL = "folder of a run, model folder, name of bundled weights, or hf://owner/name"
Model = Annotated[Positional[str], arg(metavar="MODEL", help=MODEL)]

T = TypeVar("T")
RULES = ConstructorRegistry()
_with_own_rules: list[Any] = []  # types that tyro's own rules describe at this moment


def parse(kind: Callable[..., T], argv: list[str], command: str, pairs: bool = False, **more: Any) -> T:
    """The options of `berdiff COMMAND`, checked where they are `Settings`. `pairs`: with --no-X beside each switch."""
    config = () if pairs else (FlagCreatePairsOff,)
    found = tyro.cli(kind, args=argv, prog=f"berdiff {command}", config=config, registry=RULES, **more)
    settings: Any = found
    if isinstance(settings, schema.Settings) and not pairs:
        schema.check(settings, type(settings), option)
    return found


def print_json(value: Any) -> None:
    print(dumps(schema.plain(value), indent=2))


@RULES.primitive_rule
def _metavars(info: PrimitiveTypeInfo) -> Any:
    """`None` is read, but not offered in help; several numbers are `N ...`, one or several `N [T ...]`."""
    kinds = {*get_args(info.type)}
    if info.type in _with_own_rules or not {type(None), tuple[int, ...], ...} & kinds:
        return None
    spec = _own(ConstructorRegistry.get_primitive_spec, info)
    if not isinstance(spec, PrimitiveConstructorSpec):
        return spec
    if {int, tuple[int, ...]} <= kinds:
        return replace(spec, metavar="N [T ...]")
    shown = spec.metavar.removeprefix("{None}|").replace("{None,", "{")
    return replace(spec, metavar=re.sub(r"^\{([^,|]+)\}$|^\[(\w+) \[\2 \.\.\.\]\]$", _plainer, shown))


def _plainer(found: re.Match[str]) -> str:
    return found[1] or f"{found[2]} ..."


@RULES.struct_rule
def _fields(info: StructTypeInfo) -> StructConstructorSpec | None:
    """No default is shown where it is nothing: None, no items, or a switch that is off."""
    if info.type in _with_own_rules:
        return None
    spec = _own(ConstructorRegistry.get_struct_spec, info)
    if not isinstance(spec, StructConstructorSpec):
        return spec
    unsaid = arg(help_behavior_hint="")
    fields = [
        field if _is_something(field.default) else replace(field, type=Annotated[field.type, unsaid])
        for field in spec.fields
    ]
    return replace(spec, fields=tuple(fields))


def _is_something(default: Any) -> bool:
    return isinstance(default, str | int | float | tuple | Path) and default is not False and default != ()


def _own(describe: Callable[[Any], Any], info: Any) -> Any:
    _with_own_rules.append(info.type)
    try:
        return describe(info)
    finally:
        _with_own_rules.pop()

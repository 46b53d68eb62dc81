"""The sampler a user means: the model's own, but for the options that were given. Flags come from `Sampler` itself."""

from collections.abc import Mapping
from dataclasses import fields, make_dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import tyro
from typing_extensions import Doc

from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError

_TYPES = get_type_hints(Sampler, include_extras=True)
_HINTS = {field.name: get_args(_TYPES[field.name]) for field in fields(Sampler)}  # (type, Doc)


def _flag(kind: Any, doc: Doc) -> Any:
    """Without None among the values to choose from: it is what the flag is where it is not given."""
    metavar = {int: "INT", float: "FLOAT"}.get(kind, "N [T ...]")
    if get_origin(kind) is Literal:
        metavar = "{" + ",".join(map(str, get_args(kind))) + "}"
    return tyro.conf.arg(help=doc.documentation, metavar=metavar, help_behavior_hint="(default: the model's own)")


if TYPE_CHECKING:
    from berdiff.methods.base import Segmenter

    class SamplerOptions:  # the fields of Sampler, each None by default
        def __init__(self, **options: Any) -> None: ...
else:
    SamplerOptions = make_dataclass(
        "SamplerOptions",
        [(name, Annotated[kind | None, _flag(kind, doc)], None) for name, (kind, doc) in _HINTS.items()],
        frozen=True,
    )
    SamplerOptions.__module__ = __name__  # so that it can be sent to other processes
    SamplerOptions.__doc__ = "How masks are sampled; what is not given is the model's own."


def choose_sampler(segmenter: "Segmenter", options: object = None) -> Sampler | None:
    """The segmenter's own sampler with the options (`SamplerOptions`, or names and values) that are not None instead.

    None for a method without steps. InputError, named as the option is on the command line, where it cannot sample so.
    """
    values = cast(Mapping[str, Any], options if isinstance(options, Mapping) else vars(options) if options else {})
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if unknown := set(given) - set(_HINTS):
        raise InputError(f"{min(unknown)}: no option of a sampler, which are {', '.join(_HINTS)}", "name")
    own = segmenter.sampler
    if own is None:
        if given:
            option = next(iter(given)).replace("_", "-")
            method = f"the method {segmenter.config.method}, which has no steps"
            raise InputError(f"--{option}: expected no sampler options for {method}", "unsupported")
        return None
    if not isinstance(given.get("steps", 0), int):  # one number is how many, several are the steps
        steps: tuple[int, ...] = tuple(given["steps"])
        given["steps"] = steps[0] if len(steps) == 1 else steps
    elif "spacing" in given and "steps" not in given:
        given["steps"] = own.count
    try:
        sampler = replace(own, **given)
        segmenter.check_sampler(sampler)
    except ValueError as error:
        option, _, rest = str(error).partition(":")
        raise InputError(f"--{option.replace('_', '-')}:{rest}") from error
    return sampler


def describe(sampler: Sampler | None) -> str:
    """For captions: "ddim in 5 steps, shared noise"; "one pass" for a method without steps."""
    if sampler is None:
        return "one pass"
    steps = f"{sampler.count} step{'s' if sampler.count > 1 else ''}"
    at = "" if isinstance(sampler.steps, int) else f" ({', '.join(map(str, sampler.steps))})"
    noise = ", shared noise" if sampler.noise == "shared" else ""
    views = f", {sampler.views} views" if sampler.views > 1 else ""
    smallest = f", masks of {sampler.smallest} pixels or more" if sampler.smallest > 1 else ""
    return f"{sampler.rule} in {steps}{at}{noise}{views}{smallest}"

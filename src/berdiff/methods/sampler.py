"""The sampler a user means: the model's own, but for what was asked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from berdiff.diffusion.sampling import Sampler, time_grid
from berdiff.errors import InputError


def choose_sampler(segmenter: Any, steps: int | Sequence[int] | None = None, **asked: Any) -> Sampler:
    """The segmenter's default with `steps` (how many, or the very steps) and other fields of `Sampler` instead.

    None means not asked. InputError, named as the option is on the command line, where the model cannot walk so.
    """
    own: Sampler = getattr(segmenter, "sampler", None) or Sampler()
    given = {name: value for name, value in asked.items() if value is not None}
    if steps is not None:
        given["steps"] = as_steps(steps)
    elif "spacing" in given and isinstance(own.steps, tuple):
        given["steps"] = len(own.steps)
    try:
        sampler = replace(own, **given)
        if (schedule := getattr(segmenter, "schedule", None)) is not None:
            time_grid(schedule.T, sampler.steps, sampler.spacing)
    except ValueError as error:
        option, _, rest = str(error).partition(":")
        raise InputError(f"--{'sampler' if option == 'rule' else option.replace('_', '-')}:{rest}") from error
    return sampler


def as_steps(steps: int | Sequence[int]) -> int | tuple[int, ...]:
    """One number is how many; several are the steps themselves."""
    if isinstance(steps, int):
        return steps
    return steps[0] if len(steps) == 1 else tuple(steps)

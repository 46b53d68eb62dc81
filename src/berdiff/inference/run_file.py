"""A run's config.json as far as every version has it, for whoever does not resume the run. No torch here."""

from pathlib import Path
from typing import Any, Required

from typing_extensions import TypedDict

from berdiff import schema
from berdiff.data.input_spec import Sides


class RunData(TypedDict):
    __pydantic_config__ = {"extra": "allow", "strict": True}  # type: ignore[misc]  # noqa: RUF012
    store: str | None
    crop: Sides | None


class RunFile(TypedDict, total=False):
    """`training.config.TrainConfig` is the whole of it, as the present version writes it."""

    __pydantic_config__ = {"extra": "allow", "strict": True}  # type: ignore[misc]  # noqa: RUF012
    loop: Required[dict[str, Any]]
    data: RunData
    recipe: str | None
    seed: int | None
    model: dict[str, Any]
    validation: dict[str, Any]


def read_run_file(run: Path) -> RunFile:
    """The config.json of a run folder; InputError where it is none."""
    return schema.read(run / "config.json", RunFile, "a training configuration")

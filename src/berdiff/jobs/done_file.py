"""done.json, which makes a folder a result: what was segmented, the files with their sizes, and what tables show."""

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Ge, Le
from typing_extensions import TypedDict

from berdiff import schema
from berdiff.errors import InputError
from berdiff.jobs.store import DONE, ResultFiles
from berdiff.schema import Natural, NotNegative

Sizes = dict[str, Natural]  # a file's name within the folder -> its bytes
Share = Annotated[float, Ge(0), Le(1)]


class Quantiles(TypedDict):
    unit: Literal["mm", "mm^2", "mm^3", "px", "px^2", "voxel"]
    q05: NotNegative | None  # None: no sample marks anything
    q50: NotNegative | None
    q95: NotNegative | None


class Measured(TypedDict):
    """One target's measurements: an area in a picture, a volume in a volume."""

    __pydantic_config__ = {"extra": "allow", "strict": True, "allow_inf_nan": False}  # type: ignore[misc]  # noqa: RUF012
    finding_probability: Share
    empty_share: Share  # not in older versions, whose quantiles are over all samples: such a result is made again
    area: NotRequired[Quantiles]
    volume: NotRequired[Quantiles]
    longest_diameter: Quantiles
    extent_mm: NotRequired[NotNegative | None]
    disagreement: float | None


@dataclass(frozen=True)
class DoneFile(schema.Content):
    """Without sources it is none of ours."""

    name: str = ""
    case: str | None = None
    finding: dict[str, Any] | None = None
    sources: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    files: Sizes = field(default_factory=dict[str, Natural])
    measurements: dict[str, Measured] = field(default_factory=dict[str, Measured])
    notes: list[str] = field(default_factory=list[str])
    title: str = ""
    warnings: list[str] = field(default_factory=list[str])

    def check(self) -> None:
        for target, measured in self.measurements.items():
            if ("area" in measured) == ("volume" in measured):
                raise InputError(f"measurements: {target!r} needs either an area or a volume")
        for name in self.files:
            if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                raise InputError(f"files: {name!r} is outside the folder", "name")


def read_done(folder: Path) -> DoneFile:
    return schema.read(folder / DONE, DoneFile, "what was segmented")


def parse_done(content: bytes, where: str) -> DoneFile:
    """`where` is the file, for the error."""
    what = "what was segmented"
    return schema.parse(DoneFile, schema.loads(content, where, what), lambda place: f"{where}: {place}")


def whole_result(files: ResultFiles, name: str) -> DoneFile | None:
    """The done.json of a result whose files are all as they were written; None where it is damaged or not there."""
    path = f"{name}/{DONE}"
    content = files.read([path]).get(path)
    try:
        done = None if content is None else parse_done(content, files.address(path))
    except InputError:
        return None
    return done if done is not None and are_whole(files, name, done.files) else None


def are_whole(files: ResultFiles, folder: str, listed: Sizes) -> bool:
    """Whether every file is there, and as long as it was."""
    there = files.sizes(folder)
    return all(there.get(name) == size for name, size in listed.items())

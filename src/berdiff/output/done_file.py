"""done.json, which makes a folder a result: what was segmented, the files with their sizes, and what tables show."""

from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, NotRequired

from annotated_types import Ge, Le
from typing_extensions import TypedDict

from berdiff import schema
from berdiff.errors import InputError

DONE = "done.json"
Natural = Annotated[int, Ge(0)]
Sizes = dict[str, Natural] | list[str]  # a file's name within the folder -> its bytes; older versions: names alone
NotNegative = Annotated[float, Ge(0)]


class Quantiles(TypedDict):
    unit: Literal["mm", "mm^2", "mm^3", "px", "px^2", "voxel"]
    q05: NotNegative
    q50: NotNegative
    q95: NotNegative


class Measured(TypedDict):
    """Of one target; of a picture it has an area, of a volume a volume."""

    __pydantic_config__ = {"extra": "allow", "strict": True, "allow_inf_nan": False}  # type: ignore[misc]  # noqa: RUF012
    finding_probability: Annotated[float, Ge(0), Le(1)]
    area: NotRequired[Quantiles]
    volume: NotRequired[Quantiles]
    longest_diameter: Quantiles
    disagreement: float | None


@dataclass(frozen=True)
class DoneFile(schema.Content):
    """Without sources it is none of ours."""

    name: str = ""
    case: str | None = None
    finding: dict[str, Any] | None = None
    sources: list[dict[str, Any]] = field(default_factory=list)
    files: Sizes = field(default_factory=dict)
    measurements: dict[str, Measured] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def check(self) -> None:
        for target, measured in self.measurements.items():
            if ("area" in measured) == ("volume" in measured):
                raise InputError(f"measurements: expected an area or a volume of {target!r}, found none or both")
        for name in self.files:
            if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
                raise InputError(f"files: expected files inside the folder, found {name!r}")


def read_done(folder: Path) -> DoneFile:
    return schema.read(folder / DONE, DoneFile, "what was segmented")


def sizes_of(folder: Path, names: list[str]) -> dict[str, int]:
    return {name: (folder / name).stat().st_size for name in names}


def are_whole(folder: Path, files: Sizes) -> bool:
    """Whether every file is there, and as long as it was."""
    found = {name: folder / name for name in files}
    if not all(path.is_file() for path in found.values()):
        return False
    return not isinstance(files, dict) or all(found[name].stat().st_size == size for name, size in files.items())

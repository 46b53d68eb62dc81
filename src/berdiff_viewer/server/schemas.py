"""What clients send and get, with bounds: the OpenAPI document is made of these."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from berdiff.inference.region import EXTENT
from berdiff.inference.settings import SetRule
from berdiff_viewer.server.common import Limits

LIMITS = Limits()  # of one request: they are part of the interface
State = Literal["queued", "running", "done", "failed", "cancelled"]
Name = Annotated[str, Field(min_length=1, max_length=200)]
ShortName = Annotated[str, Field(min_length=1, max_length=64)]
Place = Annotated[int, Field(ge=0, le=LIMITS.side)]


class ErrorAnswer(BaseModel):
    """Of every answer that is no success; both are the same sentence."""

    error: str
    detail: str


class ItemAnswer(BaseModel):
    id: str
    name: str
    title: str  # what people call it, where that is not the name
    kind: Literal["image", "volume", "result"]
    shape: tuple[int, ...]
    channels: int | None
    group: str
    own: bool
    error: str


class StateAnswer(BaseModel):
    token: str
    version: str
    models: list[dict[str, Any]]  # name, size, channels, targets, kind, patches, trained_on, notes, sampler
    items: list[ItemAnswer]
    limits: dict[str, int]
    corrections: bool


class SampleOptions(BaseModel):
    """Which masks are drawn. A field of a form that was left empty may come as null."""

    samples: Annotated[int, Field(ge=1, le=LIMITS.samples)] = 16
    steps: Annotated[int, Field(ge=1, le=LIMITS.steps)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    set: SetRule = "independent"
    force: bool = False  # what the model was not trained on is segmented with a warning, and not refused

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        given: Any = body
        return {name: given[name] for name in given if given[name] is not None} if isinstance(body, dict) else body


class JobRequest(SampleOptions):
    """Masks of an item around a point, which counts in upright slices as `berdiff segment --center` does: of a volume
    in the slices up to `extent` mm below and above it, or with `slice` in that slice alone."""

    model_config = ConfigDict(extra="forbid")

    item: Name
    center: Annotated[list[Place], Field(min_length=2, max_length=3)] | None = None
    slice: bool = False
    extent: Annotated[float, Field(ge=0, le=LIMITS.side)] = EXTENT
    model: Annotated[str, Field(max_length=200)] = ""
    pool: Annotated[int, Field(ge=1, le=LIMITS.pool)] = 64
    representatives: Annotated[int, Field(ge=1, le=LIMITS.representatives)] = 3


class JobStarted(BaseModel):
    id: str
    place: int  # jobs that wait before it


class JobAnswer(BaseModel):
    id: str
    state: State
    place: int | None  # jobs before it, while it waits
    done: int
    total: int
    error: str


class RaterRequest(BaseModel):
    """A rater's mask of a whole item: base64 of gzip of uint8 in C order ([Z,] H, W), upright.

    `slices`: those of a volume that the rater looked at; without it, those that the mask marks. Only these are prepared
    to train on. `new_target`: the target may be one that neither a model nor the corrections have yet.
    """

    model_config = ConfigDict(extra="forbid")

    name: ShortName
    target: ShortName
    mask: Annotated[str, Field(min_length=1, max_length=LIMITS.mask_bytes)]
    job: Annotated[str, Field(max_length=64)] | None = None  # the job whose mask was corrected
    sample: Annotated[int, Field(ge=1, le=LIMITS.pool)] | None = None  # its number among all samples
    slices: Annotated[list[Place], Field(max_length=LIMITS.side)] | None = None
    new_target: bool = False


class RaterAnswer(BaseModel):
    saved: list[str]
    missing: list[str]  # targets of the model that this rater has not saved of this image yet

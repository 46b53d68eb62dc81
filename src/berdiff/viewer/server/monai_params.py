"""What MONAI Label's clients put into the field `params`: a JSON object, of which the unknown parts are theirs."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from berdiff.inference.settings import SetRule
from berdiff.viewer.server.schemas import LIMITS

Number = Annotated[float, Field(ge=-(2**20), le=2**20, allow_inf_nan=False)]
Point = Annotated[list[Number], Field(min_length=2, max_length=4)]


class _Params(BaseModel):
    model_config = ConfigDict(extra="ignore")


class InferParams(_Params):
    """`what`: majority, representative N or sample N, which count from 1. Of several points the last one counts."""

    foreground: Annotated[list[Point], Field(max_length=1000)] = []
    what: Annotated[str, Field(pattern=r"^(majority|(representative|sample)( [0-9]{1,3})?)$")] = "majority"
    samples: Annotated[int, Field(ge=1, le=LIMITS.samples)] = 16
    steps: Annotated[int, Field(ge=1, le=LIMITS.steps)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    set: SetRule = "independent"
    force: bool = False  # as of a job
    result_extension: Annotated[str, Field(max_length=16)] = ".nii.gz"
    result_dtype: Literal["uint8", "uint16"] | Annotated[str, Field(max_length=16)] = "uint8"
    result_compress: bool = True

    def choice(self) -> tuple[str, int]:
        what, _, number = self.what.partition(" ")
        return what, int(number or 1)


class LabelInfo(_Params):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    idx: Annotated[int, Field(ge=1, le=255)]


class LabelParams(_Params):
    label_info: Annotated[list[LabelInfo], Field(max_length=255)] = []
    client_id: Annotated[str, Field(max_length=64)] | None = None

    @property
    def rater(self) -> str:
        """Who saves it, as far as the client says."""
        return self.client_id or "slicer"


def infer_form() -> dict[str, Any]:
    return _form({"params": _json_text(InferParams), "file": {"type": "string", "format": "binary"}}, [])


def label_form() -> dict[str, Any]:
    return _form({"params": _json_text(LabelParams), "label": {"type": "string", "format": "binary"}}, ["label"])


def _json_text(kind: type[BaseModel]) -> dict[str, Any]:
    about = f"JSON: {', '.join(kind.model_fields)}"
    return {"type": "string", "default": "{}", "description": about}


def _form(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": required}
    return {"requestBody": {"content": {"multipart/form-data": {"schema": schema}}}}

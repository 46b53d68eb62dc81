"""MONAI Label's data store: images, masks that are sent back, and which image comes next.

Images are those of the command line, and those that a client adds. A label is named by its image and a tag.
"""

import io
import json
from pathlib import PureWindowsPath
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile

from berdiff.data.reading import read_labels
from berdiff.output.nifti import nifti_bytes
from berdiff_viewer.server.api import REFUSALS
from berdiff_viewer.server.common import Refused, not_found, public
from berdiff_viewer.server.context import Context, context
from berdiff_viewer.server.corrections import Saved, case_name, safe_name
from berdiff_viewer.server.items import Item

router = APIRouter(responses=REFUSALS, tags=["MONAI Label"])
On = Annotated[Context, Depends(context)]
Short = Annotated[str, Query(max_length=200)]
FINAL = "final"  # the tag of a label that was submitted without one
STRATEGIES = {
    "first": "the first image without a mask by you",
    "random": "images without a mask by you, in a random order drawn with `seed`",
    "disagreement": "of images without a mask by you, that whose samples disagree most; last those not segmented",
}


class Params(BaseModel):
    """The field `params` of a form: a JSON object. What is unknown in it is the client's own."""

    model_config = ConfigDict(extra="ignore")

    client_id: Annotated[str, Field(max_length=64)] | None = None

    @property
    def rater(self) -> str:
        """Who saves it, as far as the client says."""
        return self.client_id or "slicer"


class LabelInfo(BaseModel):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    idx: Annotated[int, Field(ge=1, le=255)]


class LabelParams(Params):
    label_info: Annotated[list[LabelInfo], Field(max_length=255)] = []


class NextParams(Params):
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


def parsed_params(kind: type[Any], given: Any) -> Any:
    try:
        content = json.loads(given if isinstance(given, str) and given else "{}") or {}
        return kind(**content)
    except (ValueError, TypeError, RecursionError) as error:
        detail = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "a JSON object"}
        place = ".".join(["params", *map(str, detail["loc"])])
        expected = str(detail["msg"]).removeprefix("Input should be ")
        raise Refused(400, f"{place}: expected {expected}, found something else"[:300]) from error


def base_name(file: UploadFile, default: str) -> str:
    """3D Slicer sends the whole path of its file, with / or, from Windows, \\: the folders are not for us."""
    return PureWindowsPath(file.filename or "").name or default


def params_form(kind: type[BaseModel], file: str, required: bool = True) -> dict[str, Any]:
    """For the OpenAPI document: a form with `params` and a file."""
    about = f"JSON: {', '.join(kind.model_fields)}"
    properties = {
        "params": {"type": "string", "default": "{}", "description": about},
        file: {"type": "string", "format": "binary"},
    }
    schema = {"type": "object", "properties": properties, "required": [file] if required else []}
    return {"requestBody": {"content": {"multipart/form-data": {"schema": schema}}}}


# --- what there is ---------------------------------------------------------------------------------------------------


def shared_item(on: Context, image: str) -> Item:
    found = on.service.shared_named(image)
    if found is None:
        raise not_found("image")
    return found


def _item(on: Context, image: str) -> Item:
    """A shared one, or that of a session, by its id."""
    one = on.service.sessions.get(image)
    return next(iter(one.items.values())) if one is not None and one.items else shared_item(on, image)


def _key(on: Context, item: Item) -> str:
    """What the data store calls it: as the client that added it did."""
    return item.name if item.id in on.service.added else item.id


def _saved(on: Context) -> dict[str, list[Saved]]:
    return on.service.corrections.saved() if on.service.corrections else {}


def _labels(saved: list[Saved]) -> dict[str, Saved]:
    """By tag; of several raters, whoever saved last."""
    return {one.tag or FINAL: one for one in saved}


def datastore_status(on: Context) -> dict[str, Any]:
    saved, shared = _saved(on), on.service.shared.values()
    tags = [tag for item in shared for tag in _labels(saved.get(item.name, []))]
    completed = sum(item.name in saved for item in shared)
    return {"total": len(shared), "completed": completed, "label_tags": {tag: tags.count(tag) for tag in tags}}


def _label_info(item: Item, one: Saved) -> dict[str, Any]:
    info = [{"name": name, "idx": value} for name, value in one.values.items()]
    named = {"name": f"{item.name}.nii.gz", "client_id": one.rater, "ts": int(one.when), "label_info": info}
    return {**named, "params": {"label_names": one.values}}


@router.get("/datastore", include_in_schema=False)
@router.get("/datastore/", summary="Images and labels")
async def datastore(on: On, output: Literal["stats", "all", "train"] = "stats") -> Any:
    if output == "stats":
        return await on.heavy(lambda: datastore_status(on))
    if output == "train":  # paths of this machine, in MONAI Label's own server
        raise not_offered("a list of files; `berdiff data prepare folder` reads the folder of --corrections")
    saved = await on.heavy(lambda: _saved(on))

    def described(item: Item) -> dict[str, Any]:
        labels = _labels(saved.get(item.name, [])).items()
        image = {"ext": ".nii.gz", "info": {"name": item.name}}
        return {
            "image": image,
            "labels": {tag: {"ext": ".nii.gz", "info": _label_info(item, one)} for tag, one in labels},
        }

    objects = {_key(on, item): described(item) for item in on.service.shared.values()}
    return {"name": "berdiff", "description": "", "objects": objects}


# --- images ----------------------------------------------------------------------------------------------------------


@router.put("/datastore", include_in_schema=False)
@router.put("/datastore/", include_in_schema=False)
@router.put("/datastore/image", openapi_extra=params_form(Params, "file"), summary="Add an image, for all clients")
async def add_image(request: Request, on: On, image: Short = "") -> dict[str, Any]:
    async with request.form(max_files=4, max_fields=16) as form:
        parsed_params(Params, form.get("params"))
        file = _file(form, "file", "an image")
        name = base_name(file, "image.nii.gz")
        item = await on.heavy(lambda: on.service.share(image or name.split(".")[0], name, file.file))
    return {"image": _key(on, item)}


@router.head("/datastore/image", include_in_schema=False)
async def has_image(on: On, image: Short) -> dict[str, Any]:
    _item(on, image)
    return {}


@router.get("/datastore/image/info", summary="About an image")
async def image_info(on: On, image: Short) -> dict[str, Any]:
    return {"name": _item(on, image).name}


@router.get("/datastore/image", response_class=Response, summary="A shared image as NIfTI")
async def download(on: On, image: Short) -> Response:
    item = shared_item(on, image)

    def made() -> Response:
        file = on.service.values(item)
        return _nifti(nifti_bytes(file.values[0, 0] if file.planar else file.values[0], file.grid), "image")

    return await on.heavy(made, item)


# --- labels ----------------------------------------------------------------------------------------------------------


@router.put("/datastore/label", openapi_extra=params_form(LabelParams, "label"), summary="Save a label map as masks")
async def save_label(request: Request, on: On, image: Short, tag: Short = "") -> dict[str, Any]:
    async with request.form(max_files=4, max_fields=16) as form:
        params, label = parsed_params(LabelParams, form.get("params")), _file(form, "label", "a label map in NIfTI")
        item, name = _item(on, image), base_name(label, "label.nii.gz")
        if not name.lower().endswith((".nii", ".nii.gz")):
            raise Refused(
                400, "label: expected NIfTI (in 3D Slicer, File Extension .nii.gz), found another kind of file"
            )
        named = {entry.idx: entry.name for entry in params.label_info}
        known = named or dict(enumerate(on.service.models.first.spec.targets, 1))
        content = io.BytesIO(await label.read())
        scratch = on.service.sessions.new()
        try:
            note = {"program": "MONAI Label client", "tag": tag}
            saved = await on.heavy(
                lambda: on.service.save_labels(scratch, item, name, content, known, params.rater, note), item
            )
        except Refused as refused:
            raise Refused(refused.status, public(str(refused), [scratch.folder / "x"])) from refused
        finally:
            on.service.sessions.end(scratch)
    return {"image": image, "label": image, "saved": saved}


@router.get("/datastore/label", response_class=Response, summary="A saved label map as NIfTI")
async def download_label(on: On, label: Short, tag: Short = FINAL) -> Response:
    item = _item(on, label)
    one = await on.heavy(lambda: _label(on, item, tag), item)

    def made() -> Response:
        file = on.service.values(item)
        labels = np.zeros(file.values.shape[1:], np.uint8)
        for target, path in one.masks.items():
            labels[read_labels(path, file) > 0] = one.values[target]
        name = safe_name(item.name.replace("/", "-"), "image").encode("ascii", "replace").decode().replace("?", "-")
        return _nifti(nifti_bytes(labels[0] if file.planar else labels, file.grid), name)

    return await on.heavy(made, item)


@router.head("/datastore/label", include_in_schema=False)
async def has_label(on: On, image: Short, tag: Short = FINAL) -> dict[str, Any]:
    item = _item(on, image)
    await on.heavy(lambda: _label(on, item, tag), item)
    return {}


@router.get("/datastore/label/info", summary="About a saved label map")
async def label_info(on: On, label: Short, tag: Short = FINAL) -> dict[str, Any]:
    item = _item(on, label)
    return _label_info(item, await on.heavy(lambda: _label(on, item, tag), item))


def _label(on: Context, item: Item, tag: str) -> Saved:
    saved = _saved(on).get(item.name, [])
    case = case_name(item, on.service.values(item)) if saved else ""  # not that of another image of the same name
    found = _labels([one for one in saved if one.case == case]).get(tag or FINAL)
    if found is None:
        raise not_found("label")
    return found


def _file(form: FormData, field: str, what: str) -> UploadFile:
    found = form.get(field)
    if not isinstance(found, UploadFile):
        raise Refused(400, f"{field}: expected {what}, found none")
    return found


def _nifti(content: bytes, name: str) -> Response:
    disposition = f'attachment; filename="{name}.nii.gz"'
    return Response(content, 200, {"Content-Disposition": disposition}, "application/gzip")


# --- the next image --------------------------------------------------------------------------------------------------


@router.post("/activelearning/{strategy}", summary="The next image to draw masks on")
async def next_sample(request: Request, strategy: str, on: On) -> dict[str, Any]:
    if strategy not in STRATEGIES:
        raise Refused(404, f"strategy: expected one of {', '.join(STRATEGIES)}, found another")
    params = parsed_params(NextParams, (await request.body()).decode("utf-8", "replace"))

    def found() -> dict[str, Any]:
        rater, saved = safe_name(params.rater, "client_id"), _saved(on)
        items = [item for item in on.service.shared.values() if not item.input.error]
        if strategy == "random":
            items = [items[i] for i in np.random.default_rng(params.seed).permutation(len(items))]
        if strategy == "disagreement":  # a stable order: of equal ones the first
            items.sort(key=lambda item: -1.0 if item.disagreement is None else item.disagreement, reverse=True)
        left = (i for i in items if all(safe_name(one.rater, "rater") != rater for one in saved.get(i.name, [])))
        item = next(left, None)
        if item is None:
            return {}
        # 3D Slicer keeps what it downloads by this name: it must be that of no other image
        name = f"{case_name(item, on.service.values(item))}.nii.gz"
        return {"id": _key(on, item), "name": name, "path": "", "disagreement": item.disagreement}

    return await on.heavy(found)


# --- what is not there -----------------------------------------------------------------------------------------------


def not_offered(what: str) -> Refused:
    """As MONAI Label's own server answers for what is switched off."""
    return Refused(406, f"request: this server does not offer {what}")

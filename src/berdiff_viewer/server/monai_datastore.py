"""MONAI Label's data store: images, masks that are sent back, and which image comes next.

Images are those of the command line, and those that a client adds. A label is named by its image and a tag.
"""

import json
from pathlib import PureWindowsPath
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import numpy as np
from fastapi import APIRouter, Form, Query, Request, UploadFile
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError

from berdiff.data.describe import check
from berdiff.data.reading import read_labels
from berdiff.errors import InputError
from berdiff.output.nifti import nifti_bytes
from berdiff_viewer.server.api import REFUSALS, On, download
from berdiff_viewer.server.common import Refused, fault, not_found
from berdiff_viewer.server.corrections import Saved, case_name, file_name, safe_name
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.service import Service

router = APIRouter(responses=REFUSALS, tags=["MONAI Label"])
Short = Annotated[str, Query(max_length=200)]
FINAL = "final"  # the tag of a label that was submitted without one
STRATEGIES = {
    "first": "the first image without a mask by you",
    "random": "images without a mask by you, in a random order drawn with `seed`",
    "disagreement": "of images without a mask by you, that whose samples disagree most; last those not segmented",
}


class Params(BaseModel):
    """The field `params` of a form: a JSON object. What is unknown in it is the client's own."""

    client_id: Annotated[str, Field(max_length=64)] = "slicer"  # who saves it, as far as the client says


class LabelInfo(BaseModel):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    idx: Annotated[int, Field(ge=1, le=255)]


class LabelParams(Params):
    label_info: Annotated[list[LabelInfo], Field(max_length=255)] = []


class NextParams(Params):
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


P = TypeVar("P", bound=Params)
ParamsForm = Annotated[str, Form(description="JSON")]


def parsed_params(kind: type[P], given: str) -> P:
    try:
        return kind.model_validate(json.loads(given or "{}") or {})
    except ValidationError as error:
        raise InputError(f"params.{fault(error)}") from error
    except (ValueError, RecursionError) as error:
        raise InputError("params: this is no JSON object", "damaged") from error


def sent_file(file: UploadFile, default: str) -> tuple[str, BinaryIO]:
    """(name, content). 3D Slicer sends the whole path of its file, with / or, from Windows, \\: its folders are not
    for us."""
    return PureWindowsPath(file.filename or "").name or default, file.file


def not_offered(what: str) -> Refused:
    """As MONAI Label's own server answers for what is switched off."""
    return Refused(406, f"request: this server does not offer {what}")


# --- what there is ---------------------------------------------------------------------------------------------------


def shared_item(on: Service, image: str) -> Item:
    if (item := on.shared_named(image)) is None:
        raise not_found("image")
    return item


def _item(on: Service, image: str) -> Item:
    """A shared one, or that of a session, by its id."""
    one = on.sessions.get(image)
    return next(iter(one.items.values())) if one is not None and one.items else shared_item(on, image)


def _key(on: Service, item: Item) -> str:
    """What the data store calls it: as the client that added it did."""
    return item.name if item.id in on.added else item.id


def _saved(on: Service) -> dict[str, list[Saved]]:
    return on.corrections.saved() if on.corrections else {}


def _labels(saved: list[Saved]) -> dict[str, Saved]:
    """By tag; of several raters, whoever saved last."""
    return {one.tag or FINAL: one for one in saved}


def datastore_status(on: Service) -> dict[str, Any]:
    saved, shared = _saved(on), on.shared.values()
    tags = [tag for item in shared for tag in _labels(saved.get(item.name, []))]
    completed = sum(item.name in saved for item in shared)
    return {"total": len(shared), "completed": completed, "label_tags": {tag: tags.count(tag) for tag in tags}}


@router.get("/datastore", summary="Images and labels")
async def datastore(on: On, output: Literal["stats", "all", "train"] = "stats") -> Any:
    if output == "stats":
        return await on.heavy(lambda: datastore_status(on))
    if output == "train":  # paths of this machine, in MONAI Label's own server
        raise not_offered("a list of files; `berdiff data prepare folder` reads the folder of --corrections")
    saved = await on.heavy(lambda: _saved(on))

    def label(item: Item, one: Saved) -> dict[str, Any]:
        named = {"name": f"{item.name}.nii.gz", "client_id": one.rater, "ts": int(one.when)}
        info = [{"name": name, "idx": value} for name, value in one.values.items()]
        return {"ext": ".nii.gz", "info": {**named, "label_info": info, "params": {"label_names": one.values}}}

    def described(item: Item) -> dict[str, Any]:
        labels = {tag: label(item, one) for tag, one in _labels(saved.get(item.name, [])).items()}
        return {"image": {"ext": ".nii.gz", "info": {"name": item.name}}, "labels": labels}

    objects = {_key(on, item): described(item) for item in on.shared.values()}
    return {"name": "berdiff", "description": "", "objects": objects}


# --- images ----------------------------------------------------------------------------------------------------------


@router.put("/datastore", include_in_schema=False)
@router.put("/datastore/image", summary="Add an image, for all clients")
async def add_image(on: On, file: UploadFile, image: Short = "") -> dict[str, Any]:
    name, content = sent_file(file, "image.nii.gz")
    item = await on.heavy(lambda: on.share(image or name.split(".")[0], name, content))
    return {"image": _key(on, item)}


@router.get("/datastore/image", response_class=Response, summary="A shared image as NIfTI")
async def download_image(on: On, image: Short) -> Response:
    item = shared_item(on, image)

    def made() -> Response:
        file = on.values(item)
        content = nifti_bytes(file.values[0, 0] if file.grid.planar else file.values[0], file.grid)
        return download(content, "image.nii.gz", "application/gzip")

    return await on.heavy(made)


# --- labels ----------------------------------------------------------------------------------------------------------


@router.put("/datastore/label", summary="Save a label map as masks")
async def save_label(
    on: On, image: Short, label: UploadFile, tag: Short = "", params: ParamsForm = "{}"
) -> dict[str, Any]:
    item, note = _item(on, image), {"program": "MONAI Label client", "tag": tag}
    asked, (name, content) = parsed_params(LabelParams, params), sent_file(label, "label.nii.gz")
    nifti = name.lower().endswith((".nii", ".nii.gz"))
    check(nifti, "label: only NIfTI is read (in 3D Slicer, File Extension .nii.gz)", "kind")
    names = {entry.idx: entry.name for entry in asked.label_info}
    names = names or dict(enumerate(on.models.first.spec.targets, 1))
    saved = await on.heavy(lambda: on.save_labels(item, name, content, names, asked.client_id, note))
    return {"image": image, "label": image, "saved": saved}


@router.get("/datastore/label", response_class=Response, summary="A saved label map as NIfTI")
async def download_label(on: On, label: Short, tag: Short = FINAL) -> Response:
    item = _item(on, label)

    def made() -> Response:
        file, saved = on.values(item), _saved(on).get(item.name, [])
        case = case_name(item, file)  # not that of another image of the same name
        one = _labels([one for one in saved if one.case == case]).get(tag or FINAL)
        if one is None:
            raise not_found("label")
        labels = np.zeros(file.values.shape[1:], np.uint8)
        for target, path in one.masks.items():
            labels[read_labels(path, file) > 0] = one.values[target]
        content = nifti_bytes(labels[0] if file.grid.planar else labels, file.grid)
        return download(content, f"{file_name(item)}.nii.gz", "application/gzip")

    return await on.heavy(made)


# --- the next image --------------------------------------------------------------------------------------------------


@router.post("/activelearning/{strategy}", summary="The next image to draw masks on")
async def next_sample(request: Request, strategy: str, on: On) -> dict[str, Any]:
    if strategy not in STRATEGIES:
        raise Refused(404, f"strategy: only {', '.join(STRATEGIES)} are offered")
    params = parsed_params(NextParams, (await request.body()).decode("utf-8", "replace"))

    def answer() -> dict[str, Any]:
        rater, saved = safe_name(params.client_id, "client_id"), _saved(on)
        items = [item for item in on.shared.values() if not item.input.error]
        if strategy == "random":
            order: list[int] = np.random.default_rng(params.seed).permutation(len(items)).tolist()
            items = [items[i] for i in order]
        if strategy == "disagreement":  # a stable order: of equal ones the first
            items.sort(key=lambda item: -1.0 if item.disagreement is None else item.disagreement, reverse=True)
        for item in items:
            if all(safe_name(one.rater, "rater") != rater for one in saved.get(item.name, [])):
                # 3D Slicer keeps what it downloads by this name: it must be that of no other image
                name = f"{case_name(item, on.values(item))}.nii.gz"
                return {"id": _key(on, item), "name": name, "path": "", "disagreement": item.disagreement}
        return {}

    return await on.heavy(answer)

"""MONAI Label's data store: the images of the command line, and masks that are sent back."""

import io
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from starlette.datastructures import UploadFile

from berdiff.viewer.server.api import REFUSALS
from berdiff.viewer.server.context import Context, context
from berdiff.viewer.server.grid import on_grid
from berdiff.viewer.server.monai_common import datastore_status, parsed_params, shared_item
from berdiff.viewer.server.monai_params import LabelParams, label_form
from berdiff.viewer.server.refusal import Refused, public

router = APIRouter(responses=REFUSALS, tags=["MONAI Label"])
On = Annotated[Context, Depends(context)]
Short = Annotated[str, Query(max_length=200)]


@router.get("/datastore", include_in_schema=False)
@router.get("/datastore/", summary="The shared images")
async def datastore(on: On, output: Literal["stats", "all", "train"] = "stats") -> Any:
    if output == "stats":
        return datastore_status(on)
    if output == "train":
        return []
    objects = {item.id: {"image": {"info": {"name": item.name}}, "labels": {}} for item in on.service.shared.values()}
    return {"name": "berdiff", "description": "", "objects": objects}


@router.get("/datastore/image", response_class=Response, summary="A shared image as NIfTI")
async def download(on: On, image: Short) -> Response:
    item = shared_item(on, image)

    def made() -> Response:
        file = on.service.values(item)
        name = "image.nii.gz"
        content = on_grid(file, file.values[0, 0] if file.planar else file.values[0])
        return Response(content, 200, {"Content-Disposition": f'attachment; filename="{name}"'}, "application/gzip")

    return await on.heavy(made, item)


@router.put("/datastore/label", openapi_extra=label_form(), summary="Save a label map as a rater's masks")
async def save_label(request: Request, on: On, image: Short, tag: Short = "") -> dict[str, Any]:
    async with request.form(max_files=4, max_fields=16) as form:
        params, label = parsed_params(LabelParams, form), form.get("label")
        if not isinstance(label, UploadFile):
            raise Refused(400, "label: expected a label map in NIfTI, found none")
        one = on.service.sessions.get(image)
        item = next(iter(one.items.values())) if one is not None and one.items else shared_item(on, image)
        named = {entry.idx: entry.name for entry in params.label_info}
        known = named or dict(enumerate(on.service.models.first.spec.targets, 1))
        content = io.BytesIO(await label.read())
        scratch = on.service.sessions.new()
        try:
            note = {"program": "MONAI Label client", "tag": tag}
            saved = await on.heavy(
                lambda: on.service.save_labels(
                    scratch, item, label.filename or "label.nii.gz", content, known, params.rater, note
                ),
                item,
            )
        except Refused as refused:
            raise Refused(refused.status, public(str(refused), [scratch.folder / "x"])) from refused
        finally:
            on.service.sessions.end(scratch)
    return {"image": image, "label": saved[0]}

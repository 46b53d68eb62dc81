"""MONAI Label's interface, as far as its clients in 3D Slicer and OHIF use it for clicks, so that they connect here.

Points are voxels (i, j, k) of the image's NIfTI file, as 3D Slicer counts them; label maps lie on that very grid.
"""

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from starlette.datastructures import FormData, UploadFile

from berdiff import __version__
from berdiff.errors import InputError
from berdiff.inference.label_map import label_map
from berdiff.viewer.server.api import FORM, REFUSALS
from berdiff.viewer.server.context import Context, context
from berdiff.viewer.server.grid import on_grid, upright_place
from berdiff.viewer.server.items import Item
from berdiff.viewer.server.monai_common import datastore_status, parsed_params, shared_item
from berdiff.viewer.server.monai_params import InferParams, infer_form
from berdiff.viewer.server.refusal import Refused, not_found
from berdiff.viewer.server.schemas import JobRequest
from berdiff.viewer.server.sessions import Session
from berdiff.viewer.server.wire import multipart, nrrd

router = APIRouter(responses=REFUSALS, tags=["MONAI Label"])
On = Annotated[Context, Depends(context)]
Short = Annotated[str, Query(max_length=200)]
LOOK = 0.02  # seconds between two looks at a job


@router.get("/info", include_in_schema=False)
@router.get("/info/", summary="Models and labels")
async def info(on: On) -> dict[str, Any]:
    models = {entry.name: _model(entry) for entry in on.service.models}
    labels = list(dict.fromkeys(target for entry in on.service.models for target in entry.spec.targets))
    described = {"name": "berdiff", "description": "Plausible masks around a click. For research.", "labels": labels}
    unused: dict[str, Any] = {"trainers": {}, "strategies": {}, "scoring": {}, "train_stats": {}}
    return {**described, "version": __version__, "models": models, **unused, "datastore": datastore_status(on)}


def _model(entry: Any) -> dict[str, Any]:
    spec = entry.spec
    what = ["majority", *(f"representative {i}" for i in (1, 2, 3)), *(f"sample {i}" for i in (1, 2, 3, 4))]
    return {
        "type": "segmentation" if spec.patches else "deepgrow",
        "labels": {target: k for k, target in enumerate(spec.targets, 1)},
        "dimension": 2,  # a click is answered in its slice
        "description": f"{entry.config.method}: {', '.join(spec.targets)}; {'; '.join(spec.notes)}".rstrip("; "),
        "config": {"what": what, "samples": 16, "seed": 0, "set": ["independent", "representative", "systematic"]},
    }


@router.get("/auth", include_in_schema=False)
@router.get("/auth/", summary="No user has to log in: the address has the token, where there is one")
async def auth() -> dict[str, Any]:
    return {"enabled": False, "client_id": "", "realm": ""}


# --- sessions: an image that the client uploads once and clicks into often -------------------------------------------


@router.put("/session", include_in_schema=False)
@router.put("/session/", openapi_extra=FORM, summary="Upload an image for later clicks")
async def create_session(request: Request, on: On) -> dict[str, Any]:
    one = on.service.sessions.new()
    try:
        async with request.form(max_files=on.service.limits.upload_files, max_fields=16) as form:
            item = await _uploaded(on, one, form)
    except BaseException:
        on.service.sessions.end(one)
        raise
    return {"session_id": one.id, "session_info": _session(on, one, item)}


@router.get("/session/{id}", summary="Whether a session is still there")
async def get_session(id: str, on: On) -> dict[str, Any]:
    one = _own(on, id)
    return _session(on, one, next(iter(one.items.values())))


@router.delete("/session/{id}", summary="End a session and remove its image")
async def delete_session(id: str, on: On) -> dict[str, Any]:
    one = _own(on, id)
    shown = _session(on, one, next(iter(one.items.values())))
    await on.heavy(lambda: on.service.sessions.end(one))
    return shown


def _session(on: Context, one: Session, item: Item) -> dict[str, Any]:
    expiry = int(on.service.limits.session_seconds)
    return {"name": one.id, "image": item.name, "meta": {}, "create_ts": int(one.created), "expiry": expiry}


def _own(on: Context, id: str) -> Session:
    one = on.service.sessions.get(id)
    if one is None or not one.items:
        raise not_found("session")
    return one


async def _uploaded(on: Context, one: Session, form: FormData) -> Item:
    """The one image that the files of a form are: a volume in one file, or the slices of a series."""
    parts = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
    files = [(part.filename or "image.nii.gz", part.file) for part in parts]
    items = await on.heavy(lambda: on.service.upload(one, files))
    if len(items) != 1:
        raise Refused(400, f"files: expected one image or one DICOM series, found {len(items)}")
    return items[0]


# --- clicks ----------------------------------------------------------------------------------------------------------


@router.post("/infer/{model}", openapi_extra=infer_form(), response_class=Response, summary="Segment around a point")
async def infer(
    request: Request,
    model: str,
    on: On,
    image: Short = "",
    session_id: Short = "",
    output: Literal["image", "json", "all", "dicom_seg"] = "all",
) -> Response:
    entry = on.service.models.get(model)
    temporary: Session | None = None
    async with request.form(max_files=8, max_fields=16) as form:
        params = parsed_params(InferParams, form)
        try:
            if isinstance(form.get("file"), UploadFile) and not session_id:
                one = temporary = on.service.sessions.new()
                item = await _uploaded(on, one, FormData([("file", form["file"])]))
            elif session_id:
                one = _own(on, session_id)
                item = next(iter(one.items.values()))
            else:
                one = temporary = on.service.sessions.new()
                item = shared_item(on, image)
            return await _infer(request, on, one, item, entry, params, output)
        finally:
            if temporary is not None:
                on.service.sessions.end(temporary)


async def _infer(
    request: Request, on: Context, one: Session, item: Item, entry: Any, params: InferParams, output: str
) -> Response:
    opened = await on.heavy(lambda: on.service.images.shown(item), item)
    center = None
    if params.foreground:
        try:
            center = upright_place(params.foreground[-1], opened.geometry, opened.image.shape[1:])
        except InputError as error:
            raise Refused(400, str(error)) from error
    elif not entry.spec.patches:
        raise Refused(400, "foreground: expected a point (i, j, k), around which this model segments, found none")
    asked = {"samples": params.samples, "seed": params.seed, "set": params.set, "steps": params.steps}
    asked["force"] = params.force
    job = on.service.start_job(one, JobRequest(item=item.id, center=center, model=entry.name, **asked))
    while not job.over:
        job.touch()
        one.touch()
        if await request.is_disconnected():
            on.service.queue.cancel(job)
        await asyncio.sleep(LOOK)
    if job.state != "done" or job.result is None:
        raise Refused(400, job.error or "the segmentation was cancelled")
    done = job.result

    def answered() -> Response:
        what, number = params.choice()
        labels = label_map(done.mask(what, number))
        facts = _facts(done, params.what)
        if output == "json":
            return Response(json.dumps(facts), media_type="application/json")
        if output == "dicom_seg":
            seg = dict(done.files("dicom-seg", on.service.limits))["mask.seg.dcm"]
            return Response(seg, media_type="application/dicom")
        content, name = on_grid(opened, labels), "label.nii.gz"
        if params.result_extension == ".nrrd":
            content, name = nrrd(content, params.result_compress, params.result_dtype), "label.nrrd"
        if output == "image":
            return Response(content, media_type="application/octet-stream")
        body, kind = multipart(facts, name, content)
        return Response(body, headers={"Content-Type": kind})

    return await on.heavy(answered, item)


def _facts(done: Any, what: str) -> dict[str, Any]:
    targets = done.result.targets
    shares = [{"frequency": one.frequency, "sample": one.index + 1} for one in done.representatives]
    names = {target: k for k, target in enumerate(targets, 1)}
    return {
        "label_names": names,
        "what": what,
        "measurements": done.result.measurements(),
        "representatives": shares,
        "warnings": list(done.result.warnings),
    }

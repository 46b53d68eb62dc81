"""MONAI Label's interface, as far as its clients in 3D Slicer and OHIF use it for clicks, so that they connect here.

Points are voxels (i, j, k) of the image's NIfTI file, as 3D Slicer counts them; label maps lie on that very grid.
"""

import asyncio
import json
import secrets
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field
from starlette.datastructures import FormData, UploadFile

from berdiff import __version__
from berdiff.errors import InputError
from berdiff.inference.settings import SetRule
from berdiff.output.nifti import nifti_bytes
from berdiff.targets.targets import label_map
from berdiff_viewer.server.api import FORM, REFUSALS
from berdiff_viewer.server.common import Refused, not_found, recent_lines
from berdiff_viewer.server.context import Context, context
from berdiff_viewer.server.grid import nrrd, upright_place
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.monai_datastore import (
    STRATEGIES,
    Params,
    base_name,
    datastore_status,
    not_offered,
    params_form,
    parsed_params,
    shared_item,
)
from berdiff_viewer.server.schemas import LIMITS, JobRequest
from berdiff_viewer.server.sessions import Session
from berdiff_viewer.server.work import Segmented

router = APIRouter(responses=REFUSALS, tags=["MONAI Label"])
On = Annotated[Context, Depends(context)]
Short = Annotated[str, Query(max_length=200)]
LOOK = 0.02  # seconds between two looks at a job
FEW = 3  # of fewer samples the majority says little
Number = Annotated[float, Field(ge=-(2**20), le=2**20, allow_inf_nan=False)]
Points = Annotated[list[Annotated[list[Number], Field(min_length=2, max_length=4)]], Field(max_length=1000)]


class InferParams(Params):
    """`what`: majority, representative N or sample N, which count from 1. The first foreground point is the centre."""

    foreground: Points = Field([])
    background: Points = Field([])
    label: Annotated[str, Field(max_length=200)] | None = None  # the segment that the client fills
    roi: Annotated[list[Any], Field(max_length=64)] | None = None
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


@router.get("/info", include_in_schema=False)
@router.get("/info/", summary="Models and labels")
async def info(on: On) -> dict[str, Any]:
    models = {entry.name: _model(entry) for entry in on.service.models}
    labels = list(dict.fromkeys(target for entry in on.service.models for target in entry.spec.targets))
    described = {"name": "berdiff", "description": "Plausible masks around a click. For research.", "labels": labels}
    strategies = {name: {"description": about, "config": {}} for name, about in STRATEGIES.items()}
    strategies["random"]["config"] = {"seed": 0}
    unused: dict[str, Any] = {"trainers": {}, "scoring": {}, "train_stats": {}}
    known = {"models": models, "strategies": strategies, **unused}
    return {**described, "version": __version__, **known, "datastore": await on.heavy(lambda: datastore_status(on))}


def _model(entry: Any) -> dict[str, Any]:
    spec = entry.spec
    what = ["majority", *(f"representative {i}" for i in (1, 2, 3)), *(f"sample {i}" for i in (1, 2, 3, 4))]
    return {
        "type": "segmentation" if spec.patches else "deepgrow",
        "labels": {target: k for k, target in enumerate(spec.targets, 1)},
        "dimension": 3,
        "description": f"{entry.config.method}: {', '.join(spec.targets)}; {'; '.join(spec.notes)}".rstrip("; "),
        "config": {"what": what, "samples": 16, "seed": 0, "set": ["independent", "representative", "systematic"]},
    }


@router.get("/auth", include_in_schema=False)
@router.get("/auth/", summary="No user has to log in: the address has the token, where there is one")
async def auth() -> dict[str, Any]:
    return {"enabled": False, "client_id": "", "realm": ""}


@router.post("/auth/token", include_in_schema=False)
async def auth_token() -> dict[str, Any]:
    return {"access_token": None, "token_type": None}


@router.get("/auth/token/valid", include_in_schema=False)
async def auth_valid() -> dict[str, Any]:
    return {}


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
    files = [(base_name(part, "image.nii.gz"), part.file) for part in parts]
    items = await on.heavy(lambda: on.service.upload(one, files))
    if len(items) != 1:
        raise Refused(400, f"files: expected one image or one DICOM series, found {len(items)}")
    return items[0]


# --- clicks ----------------------------------------------------------------------------------------------------------


@router.post(
    "/infer/{model}",
    openapi_extra=params_form(InferParams, "file", False),
    response_class=Response,
    summary="Segment around a point",
)
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
        params = parsed_params(InferParams, form.get("params"))
        if params.roi or isinstance(form.get("label"), UploadFile):
            raise not_offered("segmentation from a box or from scribbles, but from points")
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
    try:
        shape = opened.image.shape[1:]
        marked, free = (
            [upright_place(point, opened.geometry, shape, field) for point in points]
            for field, points in (("foreground", params.foreground), ("background", params.background))
        )
    except InputError as error:
        raise Refused(400, str(error)) from error
    if not marked and (free or not entry.spec.patches):
        raise Refused(400, "foreground: expected a point (i, j, k), around which this model segments, found none")
    center = marked[0] if marked else None
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
    whole = job.result

    def answered() -> Response:
        targets = whole.result.targets
        only = targets.index(params.label) if params.label in targets else None  # one segment, one target
        done, more = _agreeing(whole, marked, free, only) if len(marked) + len(free) > 1 else (whole, {})
        facts = {**_facts(done, params.what), "measurements": whole.result.measurements(), **more}
        what, number = params.choice()
        masks = done.mask(what, number)
        if only is not None:
            masks, facts["label_names"] = masks[only : only + 1], {targets[only]: 1}
        labels = label_map(masks)
        if output == "json":
            return Response(json.dumps(facts), media_type="application/json")
        if output == "dicom_seg":
            seg = dict(done.files("dicom-seg", on.service.limits))["mask.seg.dcm"]
            return Response(seg, media_type="application/dicom")
        content, name = nifti_bytes(labels, opened), "label.nii.gz"
        if params.result_extension == ".nrrd":
            content, name = nrrd(content, params.result_compress, params.result_dtype), "label.nrrd"
        if output == "image":
            return Response(content, media_type="application/octet-stream")
        body, kind = _multipart(facts, name, content)
        return Response(body, headers={"Content-Type": kind})

    return await on.heavy(answered, item)


def _multipart(params: dict[str, Any], name: str, content: bytes) -> tuple[bytes, str]:
    """(body, content type): the field `params` in JSON, then the file `image`."""
    boundary = secrets.token_hex(16)
    parts = [
        b'Content-Disposition: form-data; name="params"\r\nContent-Type: application/json\r\n\r\n'
        + json.dumps(params).encode(),
        f'Content-Disposition: form-data; name="image"; filename="{name}"\r\n'.encode()
        + b"Content-Type: application/octet-stream\r\n\r\n"
        + content,
    ]
    mark = f"--{boundary}".encode()
    body = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
    return body, f"multipart/form-data; boundary={boundary}"


def _facts(done: Any, what: str) -> dict[str, Any]:
    targets = done.result.targets
    shares = [{"frequency": one.frequency, "sample": one.index + 1} for one in done.representatives]
    names = {target: k for k, target in enumerate(targets, 1)}
    warnings = list(done.result.warnings)
    return {"label_names": names, "what": what, "representatives": shares, "warnings": warnings}


def _agreeing(
    done: Segmented, foreground: list[list[int]], background: list[list[int]], only: int | None
) -> tuple[Segmented, dict[str, Any]]:
    """The samples that mark all foreground points and no background point, by any target or by `only` this one."""
    targets = slice(None) if only is None else slice(only, only + 1)
    keep = np.ones(len(done.result.pool), bool)
    for points, wanted in ((foreground, True), (background, False)):
        for point in points:
            keep &= done.marked_at(point)[:, targets].any(1) == wanted
    agree, samples = int(keep.sum()), len(keep)
    if not agree:
        sentence = f"at least one of {samples} samples that agrees with all points, found none"
        raise Refused(400, f"foreground, background: expected {sentence}; remove a point, or ask for more samples")
    chosen = done.only(keep)
    facts: dict[str, Any] = {"agree": agree, "samples": samples, "measurements": chosen.result.measurements()}
    if agree < FEW:
        facts["warning"] = f"only {agree} of {samples} samples agree with the points"
    return chosen, {"points": facts}


@router.post("/infer", include_in_schema=False)
@router.post("/infer/", include_in_schema=False)
async def infer_without_model() -> None:
    """3D Slicer's automatic segmentation of the next image, where no model segments without a point."""
    raise Refused(400, "model: expected one, found none; click into the image with a model under SmartEdit")


# --- the log, and what there is none of ------------------------------------------------------------------------------


@router.get("/logs", include_in_schema=False)
@router.get("/logs/", response_class=PlainTextResponse, summary="The last lines of the log: one per request")
async def logs(lines: Annotated[int, Query(ge=0, le=1000)] = 300) -> PlainTextResponse:
    return PlainTextResponse("".join(f"{line}\n" for line in recent_lines(lines)))


@router.get("/train", include_in_schema=False)
@router.get("/train/", include_in_schema=False)
@router.get("/scoring", include_in_schema=False)
@router.get("/scoring/", include_in_schema=False)
@router.get("/batch/infer", include_in_schema=False)
async def no_task() -> None:
    raise Refused(404, "task: none is running, and this server starts none")


NOT_OFFERED = {
    "train": "training; `berdiff train` does it",
    "scoring": "scoring; `berdiff evaluate` does it",
    "batch": "segmentation of many images; `berdiff segment` does it",
    "model": "download or change of a model's weights",
    "datastore": "this request; images and labels can be added and read, not changed or removed",
    **dict.fromkeys(("infer", "session", "activelearning", "logs", "auth", "proxy", "ohif"), "this request"),
}


def _refuser(what: str) -> Any:
    async def refuse() -> None:
        raise not_offered(what)

    return refuse


def add_not_offered(app: FastAPI) -> None:
    """After all other routes: whatever else MONAI Label's interface has."""
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    for prefix, what in NOT_OFFERED.items():
        for path in (f"/{prefix}", f"/{prefix}/{{rest:path}}"):
            app.add_api_route(path, _refuser(what), methods=methods, include_in_schema=False)

"""MONAI Label's interface, as far as its clients in 3D Slicer and OHIF use it for clicks, so that they connect here.

Points are voxels (i, j, k) of the image's NIfTI file, as 3D Slicer counts them; label maps lie on that very grid.
"""

import asyncio
import json
import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request, UploadFile
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from berdiff import __version__
from berdiff.data.describe import check
from berdiff.output.nifti import nifti_bytes
from berdiff.targets.targets import label_map
from berdiff_viewer.server.api import FORM, REFUSALS, On, files_of
from berdiff_viewer.server.common import Refused, not_found, recent_lines
from berdiff_viewer.server.grid import nrrd, upright_place
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.models import ModelEntry
from berdiff_viewer.server.monai_datastore import (
    STRATEGIES,
    Params,
    ParamsForm,
    Short,
    datastore_status,
    not_offered,
    parsed_params,
    sent_file,
    shared_item,
)
from berdiff_viewer.server.schemas import JobRequest, SampleOptions
from berdiff_viewer.server.service import Service
from berdiff_viewer.server.sessions import Session
from berdiff_viewer.server.work import Segmented

router = APIRouter(responses=REFUSALS, tags=["MONAI Label"])
LOOK = 0.02  # seconds between two looks at a job
FEW = 3  # of fewer samples the majority says little
Number = Annotated[float, Field(ge=-(2**20), le=2**20, allow_inf_nan=False)]
Points = Annotated[list[Annotated[list[Number], Field(min_length=2, max_length=4)]], Field(max_length=1000)]


class InferParams(Params, SampleOptions):
    """`what`: majority, representative N or sample N, which count from 1. The first foreground point is the centre."""

    foreground: Points = Field([])
    background: Points = Field([])
    label: Annotated[str, Field(max_length=200)] | None = None  # the segment that the client fills
    roi: Annotated[list[Any], Field(max_length=64)] | None = None
    what: Annotated[str, Field(pattern=r"^(majority|(representative|sample)( [0-9]{1,3})?)$")] = "majority"
    result_extension: Annotated[str, Field(max_length=16)] = ".nii.gz"
    result_dtype: Annotated[str, Field(max_length=16)] = "uint8"  # of NRRD: uint8 or uint16
    result_compress: bool = True


@router.get("/info", summary="Models and labels")
async def info(on: On) -> dict[str, Any]:
    strategies: dict[str, Any] = {name: {"description": about, "config": {}} for name, about in STRATEGIES.items()}
    strategies["random"]["config"] = {"seed": 0}
    return {
        "name": "berdiff",
        "description": "Plausible masks around a click. For research.",
        "version": __version__,
        "labels": list(dict.fromkeys(target for entry in on.models for target in entry.spec.targets)),
        "models": {entry.name: _model(entry) for entry in on.models},
        "strategies": strategies,
        "trainers": {},
        "scoring": {},
        "train_stats": {},
        "datastore": await on.heavy(lambda: datastore_status(on)),
    }


def _model(entry: ModelEntry) -> dict[str, Any]:
    spec = entry.spec
    what = ["majority", *(f"representative {i}" for i in (1, 2, 3)), *(f"sample {i}" for i in (1, 2, 3, 4))]
    return {
        "type": "segmentation" if spec.patches else "deepgrow",
        "labels": {target: k for k, target in enumerate(spec.targets, 1)},
        "dimension": 3,
        "description": f"{entry.config.method}: {', '.join(spec.targets)}; {'; '.join(spec.notes)}".rstrip("; "),
        "config": {"what": what, "samples": 16, "seed": 0, "set": ["independent", "representative", "systematic"]},
    }


@router.get("/auth", summary="No user has to log in: the address has the token, where there is one")
async def auth() -> dict[str, Any]:
    return {"enabled": False, "client_id": "", "realm": ""}


# --- sessions: an image that the client uploads once and clicks into often -------------------------------------------


@router.put("/session", openapi_extra=FORM, summary="Upload an image for later clicks")
async def create_session(request: Request, on: On) -> dict[str, Any]:
    one = on.sessions.new()
    try:
        async with request.form(max_files=on.limits.upload_files, max_fields=16) as form:
            await on.heavy(lambda: on.only_image(one, files_of(form)))
    except BaseException:
        on.sessions.end(one)
        raise
    return {"session_id": one.id, "session_info": _shown(on, one)}


@router.get("/session/{id}", summary="Whether a session is still there")
async def get_session(id: str, on: On) -> dict[str, Any]:
    return _shown(on, _own(on, id))


@router.delete("/session/{id}", summary="End a session and remove its image")
async def delete_session(id: str, on: On) -> dict[str, Any]:
    one = _own(on, id)
    shown = _shown(on, one)
    await on.heavy(lambda: on.sessions.end(one))
    return shown


def _shown(on: Service, one: Session) -> dict[str, Any]:
    expiry, (item, *_) = int(on.limits.session_seconds), one.items.values()
    return {"name": one.id, "image": item.name, "meta": {}, "create_ts": int(one.created), "expiry": expiry}


def _own(on: Service, id: str) -> Session:
    one = on.sessions.get(id)
    if one is None or not one.items:
        raise not_found("session")
    return one


# --- clicks ----------------------------------------------------------------------------------------------------------


@router.post("/infer/{model}", response_class=Response, summary="Segment around a point")
async def infer(
    request: Request,
    model: str,
    on: On,
    image: Short = "",
    session_id: Short = "",
    output: Literal["image", "json", "all", "dicom_seg"] = "all",
    params: ParamsForm = "{}",
    file: UploadFile | None = None,
    label: UploadFile | None = None,
) -> Response:
    entry, asked = on.models.get(model), parsed_params(InferParams, params)
    if asked.roi or label is not None:
        raise not_offered("segmentation from a box or from scribbles, but from points")
    if session_id:
        one = _own(on, session_id)
        return await _infer(request, on, one, next(iter(one.items.values())), entry, asked, output)
    one = on.sessions.new()
    try:
        if file is not None:
            item = await on.heavy(lambda: on.only_image(one, [sent_file(file, "image.nii.gz")]))
        else:
            item = shared_item(on, image)
        return await _infer(request, on, one, item, entry, asked, output)
    finally:
        on.sessions.end(one)


async def _infer(
    request: Request, on: Service, one: Session, item: Item, entry: ModelEntry, params: InferParams, output: str
) -> Response:
    opened = await on.heavy(lambda: on.images.shown(item))
    marked, free = (
        [upright_place(point, opened.grid.source, opened.image.shape[1:], kind) for point in points]
        for kind, points in (("foreground", params.foreground), ("background", params.background))
    )
    needed = "foreground: a point (i, j, k) is needed, around which this model segments"
    check(marked or (entry.spec.patches and not free), needed, "missing")
    options = params.model_dump(include=set(SampleOptions.model_fields))
    center = marked[0] if marked else None
    job = on.start_job(one, JobRequest(item=item.id, center=center, model=entry.name, **options))
    while not job.over:
        job.touch()
        on.sessions.get(one.id)  # it is in use
        if await request.is_disconnected():
            on.queue.cancel(job)
        await asyncio.sleep(LOOK)
    if job.result is None:
        raise Refused(400, job.error or "the segmentation was cancelled")
    whole = job.result

    def answered() -> Response:
        targets, measurements = whole.result.targets, whole.result.measurements()
        only = targets.index(params.label) if params.label in targets else None  # one segment, one target
        done, points = _agreeing(whole, marked, free, only) if len(marked) + len(free) > 1 else (whole, {})
        shares = [{"frequency": shown.frequency, "sample": shown.index + 1} for shown in done.representatives]
        facts = {
            "label_names": {target: k for k, target in enumerate(targets, 1)},
            "what": params.what,
            "representatives": shares,
            "warnings": list(done.result.warnings),
            "measurements": measurements,
            **points,
        }
        what, _, number = params.what.partition(" ")
        masks = done.mask(what, int(number or 1))
        if only is not None:
            masks, facts["label_names"] = masks[only : only + 1], {targets[only]: 1}
        if output == "json":
            return Response(json.dumps(facts), media_type="application/json")
        if output == "dicom_seg":
            seg = dict(done.files("dicom-seg", on.limits))["mask.seg.dcm"]
            return Response(seg, media_type="application/dicom")
        content, name = nifti_bytes(label_map(masks), opened.grid), "label.nii.gz"
        if params.result_extension == ".nrrd":
            content, name = nrrd(content, params.result_compress, params.result_dtype), "label.nrrd"
        if output == "image":
            return Response(content, media_type="application/octet-stream")
        return _multipart(facts, name, content)

    return await on.heavy(answered)


def _multipart(params: dict[str, Any], name: str, content: bytes) -> Response:
    """Both in one answer, as the clients take it apart."""
    mark = secrets.token_hex(16)
    parts = [
        ('name="params"', "application/json", json.dumps(params).encode()),
        (f'name="image"; filename="{name}"', "application/octet-stream", content),
    ]
    head = "--{}\r\nContent-Disposition: form-data; {}\r\nContent-Type: {}\r\n\r\n"
    body = b"".join(head.format(mark, field, kind).encode() + data + b"\r\n" for field, kind, data in parts)
    kind = f"multipart/form-data; boundary={mark}"
    return Response(body + f"--{mark}--\r\n".encode(), headers={"Content-Type": kind})


def _agreeing(
    done: Segmented, foreground: Sequence[Sequence[int]], background: Sequence[Sequence[int]], only: int | None
) -> tuple[Segmented, dict[str, Any]]:
    """The samples that mark all foreground points and no background point, by any target or by `only` this one."""
    targets = slice(None) if only is None else slice(only, only + 1)
    keep = np.ones(len(done.result.pool), bool)
    for points, wanted in ((foreground, True), (background, False)):
        for point in points:
            keep &= done.marked_at(point)[:, targets].any(1) == wanted
    agree, samples = int(keep.sum()), len(keep)
    none = f"none of {samples} samples agrees with all points; remove a point, or ask for more samples"
    check(agree, f"foreground, background: {none}")
    chosen = done.only(keep)
    facts: dict[str, Any] = {"agree": agree, "samples": samples, "measurements": chosen.result.measurements()}
    if agree < FEW:
        facts["warning"] = f"only {agree} of {samples} samples agree with the points"
    return chosen, {"points": facts}


@router.post("/infer", include_in_schema=False)
async def infer_without_model() -> None:
    """3D Slicer's automatic segmentation of the next image, where no model segments without a point."""
    raise Refused(400, "model: none given; click into the image with a model under SmartEdit")


# --- the log, and what there is none of ------------------------------------------------------------------------------


@router.get("/logs", response_class=PlainTextResponse, summary="The last lines of the log: one per request")
async def logs(lines: Annotated[int, Query(ge=0, le=1000)] = 300) -> PlainTextResponse:
    kept = list(recent_lines)
    return PlainTextResponse("".join(f"{line}\n" for line in kept[max(0, len(kept) - lines) :]))


@router.get("/train", include_in_schema=False)
@router.get("/scoring", include_in_schema=False)
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


def not_offered_router() -> APIRouter:
    """After all other routes: whatever else MONAI Label's interface has."""
    others = APIRouter(include_in_schema=False)

    async def refuse(request: Request) -> None:
        raise not_offered(NOT_OFFERED[request.url.path.split("/")[1]])

    for prefix in NOT_OFFERED:
        for path in (f"/{prefix}", f"/{prefix}/{{rest:path}}"):
            others.add_api_route(path, refuse, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
    return others

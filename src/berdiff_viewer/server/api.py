"""The JSON interface of the page."""

import io
import json
import zipfile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import UploadFile

from berdiff_viewer.page import live_page
from berdiff_viewer.server.common import Refused, not_found
from berdiff_viewer.server.context import Context, context, new_session, policy_of, session, writing_session
from berdiff_viewer.server.corrections import safe_name
from berdiff_viewer.server.jobs import Job
from berdiff_viewer.server.schemas import (
    ErrorAnswer,
    JobAnswer,
    JobRequest,
    JobStarted,
    RaterAnswer,
    RaterRequest,
    StateAnswer,
    UploadAnswer,
)
from berdiff_viewer.server.sessions import Session

REFUSALS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorAnswer} for code in (400, 401, 403, 404, 405, 409, 413, 422, 429, 503)
}
DOCUMENT: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"schema": {"type": "object"}}}}}
ZIP: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}
}
FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
                    },
                }
            }
        },
    }
}
router = APIRouter(responses=REFUSALS)
On = Annotated[Context, Depends(context)]
Reading = Annotated[Session, Depends(session)]
Writing = Annotated[Session, Depends(writing_session)]


@router.get("/", response_class=HTMLResponse, summary="The page")
async def page(request: Request, on: On) -> Response:
    one, cookie = new_session(request, on)
    if request.scope["state"].get("by_token"):  # out of the address, before anyone copies or bookmarks it
        answer: Response = RedirectResponse("/", 303)
    else:
        html = live_page(one.token)
        answer = HTMLResponse(html, headers={"Content-Security-Policy": policy_of(html)})
    answer.headers.append("Set-Cookie", cookie)
    return answer


@router.get("/api/state", summary="Models, items and limits")
async def state(request: Request, on: On, response: Response) -> StateAnswer:
    one, cookie = new_session(request, on)
    response.headers.append("Set-Cookie", cookie)
    return StateAnswer(**on.service.state(one))


@router.get("/api/items/{id}/document", responses=DOCUMENT, summary="An image for the page")
async def item_document(id: str, on: On, one: Reading) -> Response:
    item = on.service.item(one, id)
    return await on.heavy(lambda: _json(on.service.document(item)), item)


@router.post("/api/items", openapi_extra=FORM, summary="Upload PNG, NIfTI, .npy or DICOM files, or a zip of them")
async def upload(request: Request, on: On, one: Writing) -> UploadAnswer:
    limits = on.service.limits
    async with request.form(max_files=limits.upload_files, max_fields=16) as form:
        files = [
            (file.filename or "image", file.file) for _, file in form.multi_items() if isinstance(file, UploadFile)
        ]
        items = await on.heavy(lambda: on.service.upload(one, files))
    return UploadAnswer(items=[item.shown() for item in items])  # pyright: ignore[reportArgumentType]


@router.post("/api/jobs", status_code=202, summary="Segment an item around a point")
async def start(body: JobRequest, on: On, one: Writing) -> JobStarted:
    job = on.service.start_job(one, body)
    return JobStarted(id=job.id, place=on.service.queue.shown(job)["place"] or 0)


@router.get("/api/jobs/{id}", summary="How far it is; a job that nobody asks about is cancelled")
async def job(id: str, on: On, one: Reading) -> JobAnswer:
    found = one.job(id)
    found.touch()
    return JobAnswer(**on.service.queue.shown(found))


@router.delete("/api/jobs/{id}", summary="Cancel")
async def cancel(id: str, on: On, one: Writing) -> JobAnswer:
    found = one.job(id)
    on.service.queue.cancel(found)
    return JobAnswer(**on.service.queue.shown(found))


@router.get("/api/jobs/{id}/document", responses=DOCUMENT, summary="The masks for the page")
async def job_document(id: str, on: On, one: Reading) -> Response:
    done = _done(one.job(id))
    return await on.heavy(lambda: _json(done.document()))


@router.get("/api/jobs/{id}/files", responses=ZIP, response_class=Response, summary="The masks as files")
async def files(
    id: str, on: On, one: Reading, kind: Annotated[Literal["nifti", "dicom-seg", "json"], Query()]
) -> Response:
    found = one.job(id)
    done, item = _done(found), on.service.item(one, found.item)

    def zipped() -> Response:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:  # NIfTI is compressed already
            for name, data in done.files(kind, on.service.limits):
                archive.writestr(zipfile.ZipInfo(name), data)
        name = safe_name(item.name.replace("/", "-"), "name").encode("ascii", "replace").decode().replace("?", "-")
        disposition = f'attachment; filename="{name}-{kind}.zip"'
        return Response(content.getvalue(), 200, {"Content-Disposition": disposition}, "application/zip")

    return await on.heavy(zipped, item)


@router.post("/api/items/{id}/raters", status_code=201, summary="Save a rater's mask")
async def rater(id: str, body: RaterRequest, on: On, one: Writing) -> RaterAnswer:
    item = on.service.item(one, id)
    saved, missing = await on.heavy(lambda: on.service.save_rater(one, item, body), item)
    return RaterAnswer(saved=saved, missing=missing)


def _done(job: Job):
    if job.state != "done" or job.result is None:
        raise not_found("job") if job.over else Refused(409, f"job: expected a finished one, found it {job.state}")
    return job.result


def _json(document: dict[str, Any]) -> Response:
    return Response(json.dumps(document, allow_nan=False), media_type="application/json")

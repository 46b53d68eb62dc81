"""The JSON interface of the page."""

import io
import json
import zipfile
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData, UploadFile

from berdiff_viewer.page import live_page, policy
from berdiff_viewer.server.common import Refused
from berdiff_viewer.server.corrections import file_name
from berdiff_viewer.server.schemas import (
    ErrorAnswer,
    ItemAnswer,
    JobAnswer,
    JobRequest,
    JobStarted,
    RaterAnswer,
    RaterRequest,
    StateAnswer,
)
from berdiff_viewer.server.service import Service
from berdiff_viewer.server.sessions import COOKIE, Session

Described = dict[int | str, dict[str, Any]]  # for the OpenAPI document
REFUSALS: Described = {code: {"model": ErrorAnswer} for code in (400, 401, 403, 404, 405, 409, 413, 422, 429, 503)}
ZIP: Described = {200: {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}}


FILES = {"type": "array", "minItems": 1, "items": {"type": "string", "format": "binary"}}
FORM = {  # more files than FastAPI's own parameters allow
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": {"type": "object", "required": ["files"], "properties": {"files": FILES}}}
        },
    }
}


def service_of(request: Request) -> Service:
    return request.app.state.service


def reading_session(request: Request) -> Session:
    one = service_of(request).sessions.of(request.headers)
    if one is None:
        raise Refused(403, "session: there is none, or it has expired (GET /api/state begins one)")
    return one


def writing_session(request: Request) -> Session:
    """Of a request that changes something: it must carry the token too, which no other site's page can know."""
    one = reading_session(request)
    one.check_token(request.headers.get("x-berdiff-token", ""))
    return one


def new_session(request: Request) -> tuple[Session, str]:
    """The one that the request belongs to, or a new one; and the cookie that says so."""
    sessions = service_of(request).sessions
    one = sessions.of(request.headers) or sessions.new()
    port = (request.scope.get("server") or ("", 0))[1]  # cookies are of a host, whatever the port
    secure = "; Secure" if request.url.scheme == "https" else ""
    return one, f"{COOKIE}-{port}={one.id}; Path=/; HttpOnly; SameSite=Lax{secure}"


router = APIRouter(responses=REFUSALS)
On = Annotated[Service, Depends(service_of)]
Reading = Annotated[Session, Depends(reading_session)]
Writing = Annotated[Session, Depends(writing_session)]


@router.get("/", response_class=HTMLResponse, summary="The page")
async def page(request: Request) -> Response:
    one, cookie = new_session(request)
    if request.scope["state"].get("by_token"):  # out of the address, before anyone copies or bookmarks it
        answer: Response = RedirectResponse("/", 303)
    else:  # only a header can forbid framing
        answer = HTMLResponse(live_page(one.token))
        answer.headers["Content-Security-Policy"] = f"{policy(live=True)}; frame-ancestors 'none'"
    answer.headers.append("Set-Cookie", cookie)
    return answer


@router.get("/api/state", summary="Models, items and limits")
async def state(request: Request, on: On, response: Response) -> StateAnswer:
    one, cookie = new_session(request)
    response.headers.append("Set-Cookie", cookie)
    return on.state(one)


@router.get("/api/items/{id}/document", summary="An image for the page")
async def item_document(id: str, on: On, one: Reading) -> Response:
    item = on.item(one, id)
    return await on.heavy(lambda: _json(on.document(item)))


@router.post("/api/items", openapi_extra=FORM, summary="Upload PNG, NIfTI, .npy or DICOM files, or a zip of them")
async def upload(request: Request, on: On, one: Writing) -> dict[str, list[ItemAnswer]]:
    async with request.form(max_files=on.limits.upload_files, max_fields=16) as form:
        items = await on.heavy(lambda: on.upload(one, files_of(form)))
    return {"items": [on.shown(item) for item in items]}


def files_of(form: FormData) -> list[tuple[str, Any]]:
    return [(part.filename or "image", part.file) for _, part in form.multi_items() if isinstance(part, UploadFile)]


@router.post("/api/jobs", status_code=202, summary="Segment an item around a point")
async def start(body: JobRequest, on: On, one: Writing) -> JobStarted:
    job = on.start_job(one, body)
    return JobStarted(id=job.id, place=on.queue.shown(job).place or 0)


@router.get("/api/jobs/{id}", summary="How far it is; a job that nobody asks about is cancelled")
async def job(id: str, on: On, one: Reading) -> JobAnswer:
    found = one.job(id)
    found.touch()
    return on.queue.shown(found)


@router.delete("/api/jobs/{id}", summary="Cancel")
async def cancel(id: str, on: On, one: Writing) -> JobAnswer:
    found = one.job(id)
    on.queue.cancel(found)
    return on.queue.shown(found)


@router.get("/api/jobs/{id}/document", summary="The masks for the page")
async def job_document(id: str, on: On, one: Reading) -> Response:
    done = one.job(id).finished()
    return await on.heavy(lambda: _json(done.document()))


@router.get("/api/jobs/{id}/files", responses=ZIP, response_class=Response, summary="The masks as files")
async def files(
    id: str, on: On, one: Reading, kind: Annotated[Literal["nifti", "dicom-seg", "json"], Query()]
) -> Response:
    found = one.job(id)
    done, item = found.finished(), on.item(one, found.item)

    def zipped() -> Response:
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:  # NIfTI is compressed already
            for name, data in done.files(kind, on.limits):
                archive.writestr(zipfile.ZipInfo(name), data)
        return download(content.getvalue(), f"{file_name(item)}-{kind}.zip", "application/zip")

    return await on.heavy(zipped)


@router.post("/api/items/{id}/raters", status_code=201, summary="Save a rater's mask")
async def rater(id: str, body: RaterRequest, on: On, one: Writing) -> RaterAnswer:
    item = on.item(one, id)
    return await on.heavy(lambda: on.save_rater(one, item, body))


def download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, 200, {"Content-Disposition": f'attachment; filename="{name}"'}, kind)


def _json(document: dict[str, Any]) -> Response:
    return Response(json.dumps(document, allow_nan=False), media_type="application/json")

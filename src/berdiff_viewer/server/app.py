"""The application: routes, refusals, and the guard around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from berdiff import __version__
from berdiff_viewer.server import api, monai, monai_datastore
from berdiff_viewer.server.common import Refused
from berdiff_viewer.server.context import Context, known_session
from berdiff_viewer.server.guard import UNEXPECTED, Access, Guard
from berdiff_viewer.server.service import Service

MOST_CHARACTERS = 300


def create_app(service: Service, access: Access) -> Guard:
    """The ASGI application. It starts the service with itself, and closes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="berdiff view",
        version=__version__,
        description="Images, and the plausible masks around a point of them. For research; not for clinical use.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.context = Context(service)
    app.include_router(api.router)
    app.include_router(monai.router)
    app.include_router(monai_datastore.router)
    monai.add_not_offered(app)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    return Guard(app, access, service.limits, lambda headers: known_session(headers, service) is not None)


def _answer(request: Request, status: int, sentence: str, retry: int = 0) -> JSONResponse:
    content = {"error": sentence}
    if request.url.path.split("/")[1] in monai.NOT_OFFERED:  # what MONAI Label's clients look for
        content["detail"] = sentence
    return JSONResponse(content, status, {"Retry-After": str(retry)} if retry else None)


async def _refused(request: Request, error: Any) -> JSONResponse:
    return _answer(request, error.status, str(error), error.retry)


async def _not_valid(request: Request, error: Any) -> JSONResponse:
    fault = error.errors()[0]
    place = ".".join(map(str, fault["loc"][1:])) or "request"  # the first part says body, query or path
    expected = str(fault["msg"]).removeprefix("Input should be ")
    return _answer(request, 422, f"{place}: expected {expected}, found something else"[:MOST_CHARACTERS])


async def _http(request: Request, error: Any) -> JSONResponse:
    return _answer(request, error.status_code, f"request: {error.detail}"[:MOST_CHARACTERS])


async def _unexpected(request: Request, error: Exception) -> JSONResponse:
    return _answer(request, 500, UNEXPECTED)

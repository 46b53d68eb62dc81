"""The application: routes, refusals, and the guard around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from berdiff import __version__
from berdiff.errors import InputError
from berdiff_viewer.server import api, monai, monai_datastore
from berdiff_viewer.server.common import refusal
from berdiff_viewer.server.guard import Access, Guard
from berdiff_viewer.server.service import Service


def create_app(service: Service, access: Access) -> Guard:
    """The ASGI application. It starts the service with itself, and closes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    async def refuse(request: Request, error: Any) -> Response:
        return refusal(error, service.say)

    app = FastAPI(
        title="berdiff view",
        version=__version__,
        description="Images, and the plausible masks around a point of them. For research; not for clinical use.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        exception_handlers=dict.fromkeys((InputError, RequestValidationError, HTTPException, Exception), refuse),
    )
    app.state.service = service
    for router in (api.router, monai.router, monai_datastore.router, monai.not_offered_router()):
        app.include_router(router)
    return Guard(app, access, service.limits, lambda headers: service.sessions.of(headers) is not None)

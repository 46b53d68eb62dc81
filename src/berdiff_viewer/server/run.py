"""The application, and listening: one process, one address, printed once; whatever ends it, no temporary file stays."""

import json
import logging
import signal
import socket
import threading
import webbrowser
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from berdiff import __version__
from berdiff.display import is_quiet, note
from berdiff.errors import InputError
from berdiff_viewer.server import api, monai, monai_datastore
from berdiff_viewer.server.common import Limits, refusal, set_up_log
from berdiff_viewer.server.corrections import Corrections
from berdiff_viewer.server.guard import PREFIX, Access, Guard
from berdiff_viewer.server.items import shared_items
from berdiff_viewer.server.models import Models
from berdiff_viewer.server.service import Service


def create_app(service: Service, access: Access) -> Guard:
    """The ASGI application. It starts the service with itself, and closes it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
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


def make_service(
    models: Sequence[str],
    paths: Sequence[str],
    split: str,
    most: int,
    limits: Limits,
    corrections: Path | None,
    device: str,
) -> Service:
    """Of what the command line names: models, the first one in memory, and at most so many images per path."""
    known = Models(models[0], models[1:], device)
    note(f"opening {known.first.name} and the images ...")
    known.first.load()  # so that the first click is as fast as the next
    shared = shared_items(paths, known.first.spec.channels, split, most)
    folder = Corrections(corrections) if corrections else None
    return Service(known, {item.id: item for item in shared}, limits, folder)


def serve(service: Service, access: Access, port: int = 0, browser: bool = True, as_json: bool = False) -> None:
    """Until SIGINT or SIGTERM. `as_json`: how the address is printed."""
    import uvicorn

    set_up_log(logging.WARNING if is_quiet() else logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn hands it on once it has shut down
    try:
        with listen(access.host, port) as sock:
            url = printed_address(access, sock.getsockname()[1], as_json)
            config = uvicorn.Config(
                create_app(service, access),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                limit_concurrency=512,
                timeout_keep_alive=15,
                timeout_graceful_shutdown=3,
            )
            if browser:
                threading.Timer(0.5, webbrowser.open, [url]).start()
            with suppress(KeyboardInterrupt):
                uvicorn.Server(config).run(sockets=[sock])
            note("stopped")
    finally:
        service.close()
        signal.signal(signal.SIGTERM, before)


def listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(128)
    except (OSError, OverflowError) as error:
        sock.close()
        raise InputError(f"--host, --port: cannot listen at {host}:{port} ({error})", "access") from error
    return sock


def printed_address(access: Access, port: int, as_json: bool = False) -> str:
    """The page's address, and the one for 3D Slicer; with the token, which is shown here and nowhere else."""
    wildcard = access.host in ("0.0.0.0", "::")
    name = socket.gethostname() if wildcard else f"[{access.host}]" if ":" in access.host else access.host
    base = f"http://{name}:{port}"
    url = f"{base}/?token={access.token}" if access.token else f"{base}/"
    server = f"{base}{PREFIX}{access.token}" if access.token else base
    if as_json:
        print(json.dumps({"viewer": url, "monai_label": server}), flush=True)
    else:
        print(f"viewer: {url}\n3D Slicer (MONAI Label server): {server}", flush=True)
        print("For research; not for clinical use. Ctrl-C ends it.", flush=True)
    return url

"""The server's JSON API in a few lines: one volume, one image, and a job that takes two looks to finish."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from berdiff_viewer.document import live_document
from berdiff_viewer.page import page

TOKEN = "secret"


class FakeApi:
    """`documents`: item -> the document of its image; `segment`: (item, center) -> the document with masks."""

    def __init__(
        self, documents: dict[str, dict[str, Any]], segment: Callable[[str, list[int]], dict[str, Any]]
    ) -> None:
        self.documents, self.segment = documents, segment
        self.posts: list[tuple[str, Any, str | None]] = []  # (path, body, token)
        self.deleted: list[str] = []
        self.looks = 0
        self.hang = self.busy = False
        self.known = {"nodule"}  # targets

    def state(self) -> dict[str, Any]:
        model = {"name": "bright", "size": [16, 16], "channels": ["ct"], "targets": ["nodule"], "sampler": {"steps": 3}}
        kinds = {True: "volume", False: "image"}
        items = [
            {
                "id": key,
                "name": of["name"],
                "kind": kinds[of["volume"]],
                "shape": of["shape"],
                "channels": 1,
                "group": "",
            }
            for key, of in self.documents.items()
        ]
        return {"models": [model], "items": items, "limits": {"samples": 64}, "corrections": True}

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/api/state":
            return 200, self.state()
        _, _, kind, key, *rest = path.split("/")
        if kind == "items":
            return 200, self.documents[key]
        if rest == ["document"]:
            body = next(body for where, body, _ in reversed(self.posts) if where == "/api/jobs")
            return 200, self.segment(body["item"], body["center"])
        self.looks += 1
        if self.looks == 1:
            return 200, {"state": "queued", "place": 2, "done": 0, "total": None, "error": None}
        if self.looks == 2 or self.hang:
            return 200, {"state": "running", "place": None, "done": 5, "total": 16, "error": None}
        return 200, {"state": "done", "place": None, "done": 16, "total": 16, "error": None}

    def post(self, path: str, body: Any, token: str | None) -> tuple[int, Any]:
        self.posts.append((path, body, token))
        if path == "/api/items":
            return 422, {"error": "broken.png: expected an image, found a damaged file"}
        if path == "/api/jobs":
            self.looks = 0
            return (
                (429, {"error": "The server is busy: 4 segmentations wait already"})
                if self.busy
                else (202, {"id": "j1"})
            )
        if not body.get("new_target") and body["target"] not in self.known:
            return 409, {"error": f"target: expected nodule, found {body['target']!r}"}
        self.known.add(body["target"])
        return 201, {}


@contextmanager
def served(api: FakeApi) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self, status: int, content: Any) -> None:
            html = isinstance(content, str)
            data = (content if html else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html; charset=utf-8" if html else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path == "/favicon.ico":
                self.answer(404, {})
            else:
                self.answer(*((200, page(live_document(TOKEN))) if self.path == "/" else api.get(self.path)))

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(data) if self.headers["Content-Type"] == "application/json" else data
            self.answer(*api.post(self.path, body, self.headers["X-Berdiff-Token"]))

        def do_DELETE(self) -> None:
            api.deleted.append(self.path)
            self.answer(200, {})

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()

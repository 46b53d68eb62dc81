"""Before and after every request: who may ask, how much may be sent, what a browser may do with the answer.

A page of another site must not reach a server on this machine. It cannot read an answer (there are no CORS headers),
and what it could send is refused by Host (DNS rebinding), by Origin and by the session's token.
"""

import ipaddress
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any
from urllib.parse import parse_qs, urlsplit

from berdiff_viewer.server.common import MIB, Limits, Refused, log_failure, logger, refusal

PREFIX = "/token/"  # .../token/TOKEN/info/: for programs that can be given an address and nothing else
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


@dataclass(frozen=True)
class Access:
    """Under which names the server answers, and with which token. Other machines can reach another address than this
    machine's own: then a token is needed, and made where none is given."""

    host: str = "127.0.0.1"
    token: str | None = None
    names: tuple[str, ...] = ()  # further names, such as that of a proxy
    known: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        names = {"localhost", "127.0.0.1", "::1", self.host.lower(), *(name.lower() for name in self.names)}
        if not self.local:
            object.__setattr__(self, "token", self.token or secrets.token_urlsafe(24))
            names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
        object.__setattr__(self, "known", frozenset(names))

    @property
    def local(self) -> bool:
        """Whether other machines cannot reach it."""
        return self.host == "localhost" or (_is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)

    def check_host(self, host: str) -> None:
        name = (urlsplit(f"//{host}").hostname or "") if _parses(host) else ""
        # a name can be made to point here by its owner, an address cannot
        if name not in self.known and (self.local or not _is_address(name)):
            raise Refused(400, "Host: this is not the address that the server was started with")

    def check_origin(self, headers: dict[str, str], navigation: bool) -> None:
        origin, host = headers.get("origin"), headers.get("host", "")
        if origin is not None and (not _parses(origin) or urlsplit(origin).netloc.lower() != host.lower()):
            raise Refused(403, "Origin: this is not the server's own page")
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not navigation:
            raise Refused(403, "Sec-Fetch-Site: this is not the server's own page")

    def opens(self, token: str) -> bool:
        return self.token is None or compare_digest(token.encode(), self.token.encode())


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: Any, access: Access, limits: Limits, known: Callable[[dict[str, str]], bool]) -> None:
        self.app, self.access, self.limits = app, access, limits
        self.known = known  # whether headers carry a session's cookie or token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _http(self, scope: Any, receive: Any, send: Any) -> None:
        began, status, method = time.perf_counter(), 0, scope["method"]

        async def answer(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {name.lower() for name, _ in message.get("headers", [])}
                more = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items() if k.lower().encode() not in own]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._check(scope, headers)
            await self.app(scope, self._limited(scope, headers, receive), answer)
        except Exception as error:  # the client learns that it failed, the log where
            if not isinstance(error, Refused):
                log_failure(error)
            if not status:
                await refusal(error)(scope, receive, answer)
        route = getattr(scope.get("route"), "path", "(no such page)")
        logger.info("%s %s %d %.0f ms", method, route, status, 1e3 * (time.perf_counter() - began))

    def _check(self, scope: Any, headers: dict[str, str]) -> None:
        self.access.check_host(headers.get("host", ""))
        opened = self._strip_prefix(scope)
        first = scope["method"] in ("GET", "HEAD") and scope["path"] == "/"
        self.access.check_origin(headers, navigation=first)
        given = headers.get("x-berdiff-token") or headers.get("authorization", "").removeprefix("Bearer ")
        asked = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0] if first else ""
        if not (opened or self.access.opens(given) or self.access.opens(asked) or self.known(headers)):
            raise Refused(401, "token: open the address with the token that the server printed at its start")
        scope["state"] = {**scope.get("state", {}), "by_token": bool(asked) and self.access.token is not None}

    def _strip_prefix(self, scope: Any) -> bool:
        """Whether the path had the token in front, which is then taken off; so is a / at the end."""
        path, opened = scope["path"], False
        if path.startswith(PREFIX):
            token, _, path = path.removeprefix(PREFIX).partition("/")
            if self.access.token is None or not self.access.opens(token):
                raise Refused(401, "token: it is not the one that the server printed at its start")
            opened = True
        scope["path"] = f"/{path.removeprefix('/').rstrip('/')}"
        scope["raw_path"] = scope["path"].encode()
        return opened

    def _limited(self, scope: Any, headers: dict[str, str], receive: Any) -> Any:
        most, seen = self._most(scope["method"], scope["path"]), 0
        too_much = Refused(413, f"request: it is larger than {most // MIB or 1} MiB")
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > most:
            raise too_much

        async def limited() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most:
                raise too_much
            return message

        return limited

    def _most(self, method: str, path: str) -> int:
        if path.startswith("/api/items/"):
            return self.limits.mask_bytes
        with_files = ("/api/items", "/session", "/infer/", "/datastore")
        return self.limits.upload_bytes if method != "GET" and path.startswith(with_files) else self.limits.json_bytes


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _parses(text: str) -> bool:
    try:
        urlsplit(text if "//" in text else f"//{text}").port  # noqa: B018  # reads the port, or raises
    except ValueError:
        return False
    return True

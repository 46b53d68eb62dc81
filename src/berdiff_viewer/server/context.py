"""What the routes share: the service, and which session a request belongs to."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.cookies import CookieError, SimpleCookie
from typing import TypeVar

import anyio
import anyio.to_thread
from fastapi import Request

from berdiff.errors import InputError
from berdiff_viewer.server.common import Refused, public
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.service import Service
from berdiff_viewer.server.sessions import Session, check_token

T = TypeVar("T")
COOKIE = "berdiff-session"
AT_A_TIME = 2  # threads that read and pack images; the others wait their turn without one


@dataclass(eq=False)
class Context:
    service: Service
    limiter: anyio.CapacityLimiter | None = None

    async def heavy(self, work: Callable[[], T], item: Item | None = None) -> T:
        """Work that takes longer than an answer may hold up others; its InputError becomes the client's sentence."""
        if self.limiter is None:
            self.limiter = anyio.CapacityLimiter(AT_A_TIME)
        try:
            return await anyio.to_thread.run_sync(partial(work), limiter=self.limiter)
        except InputError as error:
            raise Refused(400, public(error, item.paths if item else ())) from error


def context(request: Request) -> Context:
    return request.app.state.context


def known_session(headers: dict[str, str], service: Service) -> Session | None:
    """By its cookie; a program that keeps none is known by the token that it sends."""
    jar: SimpleCookie = SimpleCookie()
    try:
        jar.load(headers.get("cookie", ""))
    except CookieError:
        return None
    for name, morsel in jar.items():
        if name.startswith(COOKIE) and (found := service.sessions.get(morsel.value)):
            return found
    token = headers.get("x-berdiff-token", "")
    return service.sessions.of_token(token) if token else None


def new_session(request: Request, on: Context) -> tuple[Session, str]:
    """The one that the request belongs to, or a new one; and the cookie that says so."""
    found = known_session(dict(request.headers), on.service) or on.service.sessions.new()
    port = (request.scope.get("server") or ("", 0))[1]  # cookies are of a host, whatever the port
    secure = "; Secure" if request.url.scheme == "https" else ""
    return found, f"{COOKIE}-{port}={found.id}; Path=/; HttpOnly; SameSite=Lax{secure}"


def session(request: Request) -> Session:
    found = known_session(dict(request.headers), context(request).service)
    if found is None:
        raise Refused(403, "session: expected one (GET /api/state begins it), found none or one that has expired")
    return found


def writing_session(request: Request) -> Session:
    """Of a request that changes something: it must carry the token too, which no other site's page can know."""
    found = session(request)
    check_token(found, request.headers.get("x-berdiff-token", ""))
    return found


def policy_of(html: str) -> str:
    """The policy in the page, which has the hashes of its scripts, as a header; only a header can forbid framing."""
    match = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    inside = match[1].replace("&#39;", "'") if match else "default-src 'none'"
    return f"{inside}; frame-ancestors 'none'"

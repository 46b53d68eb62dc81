"""Who is there: a browser, or an image that another program uploaded. What belongs to one is not seen by another."""

import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from berdiff_viewer.server.common import Limits, Refused, not_found
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.jobs import Job

COOKIE = "berdiff-session"


@dataclass(eq=False)
class Session:
    """Uploads and jobs of one client. Its id is a secret: whoever knows it is that client."""

    folder: Path  # of its uploads; made when it is needed
    id: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # of requests that change something
    items: dict[str, Item] = field(default_factory=dict)
    jobs: OrderedDict[str, Job] = field(default_factory=OrderedDict)
    created: float = field(default_factory=time.time)
    seen: float = field(default_factory=time.monotonic)
    stored: int = 0  # bytes of its uploads
    lasting: bool = False  # its image is one of the server's: it ends with the server
    lock: threading.RLock = field(default_factory=threading.RLock)

    def unfinished(self) -> list[Job]:
        with self.lock:
            return [job for job in self.jobs.values() if not job.over]

    def job(self, id: str) -> Job:
        with self.lock:
            if id not in self.jobs:
                raise not_found("job")
            self.jobs.move_to_end(id)
            return self.jobs[id]

    def keep(self, job: Job, limits: Limits) -> None:
        """The least recently used results beyond the limit are dropped; what still runs stays."""
        with self.lock:
            if len(self.unfinished()) >= (most := limits.jobs_per_session):
                raise Refused(429, f"{most} segmentations of yours are under way; wait for one of them", retry=1)
            self.jobs[job.id] = job
            over = [one for one in self.jobs.values() if one.over]
            for old in over[: max(0, len(over) - limits.results)]:
                del self.jobs[old.id]

    def check_token(self, token: str) -> None:
        if not compare_digest(self.token.encode(), token.encode()):
            raise Refused(403, "X-Berdiff-Token: not the token that the page was given")


class Sessions:
    """All of them. They end when nobody asked for a while, or when there are too many."""

    def __init__(self, folder: Path, limits: Limits, ended: Callable[[Session], None]) -> None:
        self._folder, self._limits, self._ended = folder, limits, ended
        self._all: OrderedDict[str, Session] = OrderedDict()
        self._lock = threading.RLock()

    def new(self) -> Session:
        with self._lock:
            if len(self._all) >= self._limits.sessions:
                idle = [one for one in self._all.values() if not one.items and not one.jobs]
                if not idle:
                    raise Refused(503, "the server has as many clients as it takes; try again later", retry=1)
                self.end(idle[0])
            session = Session(self._folder / secrets.token_hex(8))
            self._all[session.id] = session
            return session

    def get(self, id: str) -> Session | None:
        with self._lock:
            session = self._all.get(id)
            if session is not None:
                session.seen = time.monotonic()
                self._all.move_to_end(id)
            return session

    def of(self, headers: Mapping[str, str]) -> Session | None:
        """By its cookie; a program that keeps none is known by the token that it sends."""
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(headers.get("cookie", ""))
        except CookieError:
            return None
        for name, morsel in jar.items():
            if name.startswith(COOKIE) and (found := self.get(morsel.value)):
                return found
        token = headers.get("x-berdiff-token", "").encode()
        known = [one.id for one in self.everyone() if compare_digest(one.token.encode(), token)]
        return self.get(known[0]) if known else None

    def room(self) -> int:
        """Bytes that uploads may still take."""
        return max(0, self._limits.stored_bytes - sum(one.stored for one in self.everyone()))

    def end(self, session: Session) -> None:
        with self._lock:
            self._all.pop(session.id, None)
        self._ended(session)
        shutil.rmtree(session.folder, ignore_errors=True)

    def expire(self) -> None:
        """Those that nobody asked for; and of too many bytes of results, the oldest."""
        latest = time.monotonic() - self._limits.session_seconds
        for session in self.everyone():
            if session.seen < latest and not session.lasting:
                self.end(session)
        everyone = self.everyone()  # least recently used clients first
        kept = [(one, job, job.result.size) for one in everyone for job in list(one.jobs.values()) if job.result]
        size = sum(bytes for *_, bytes in kept)
        for session, job, bytes in kept:
            if size > self._limits.results_bytes:
                size -= bytes
                session.jobs.pop(job.id, None)

    def close(self) -> None:
        for session in self.everyone():
            self.end(session)

    def everyone(self) -> list[Session]:
        with self._lock:
            return list(self._all.values())

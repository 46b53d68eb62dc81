"""Who is there and what waits: sessions of browsers and programs, which do not see each other, and the queue of their
jobs."""

import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from berdiff.errors import InputError
from berdiff_viewer.server.common import Limits, Refused, log_failure, not_found
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.schemas import JobAnswer, State
from berdiff_viewer.server.work import Progress, Segmented

COOKIE = "berdiff-session"


class Cancelled(Exception):
    """Raised between two steps."""


@dataclass(eq=False)
class Job:
    work: Callable[[Progress], Segmented]
    item: str
    id: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: State = "queued"
    done: int = 0
    total: int = 0
    error: str = ""
    result: Segmented | None = None
    asked: float = field(default_factory=time.monotonic)  # when its client last showed a sign of life
    stop: bool = False

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def touch(self) -> None:
        self.asked = time.monotonic()

    def progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total
        if self.stop:
            raise Cancelled

    def finished(self) -> Segmented:
        if self.state != "done" or self.result is None:
            raise Refused(404 if self.over else 409, f"job: it has no result, it is {self.state}")
        return self.result


class JobQueue:
    """`say` makes the sentence that the client is told."""

    def __init__(self, limits: Limits, say: Callable[[InputError], str]) -> None:
        self._limits, self._say = limits, say
        self._jobs: list[Job] = []  # the running one and those that wait, in their order
        self._lock = threading.RLock()
        self._worker = ThreadPoolExecutor(1, "berdiff-worker")

    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs if job.state == "queued"]

    def add(self, job: Job) -> None:
        """Refused where the queue is full."""
        with self._lock:
            if (waiting := len(self._waiting())) >= self._limits.jobs:
                raise Refused(429, f"the server is busy: {waiting} segmentations are waiting; try again soon", retry=1)
            self._jobs.append(job)
            self._worker.submit(self._run, job)

    def shown(self, job: Job) -> JobAnswer:
        with self._lock:
            place = self._waiting().index(job) if job.state == "queued" else None
            return JobAnswer(id=job.id, state=job.state, place=place, done=job.done, total=job.total, error=job.error)

    def cancel(self, job: Job) -> None:
        """A waiting one leaves the queue at once, a running one stops after its step."""
        with self._lock:
            job.stop = True
            if job.state == "queued":
                job.state = "cancelled"
                self._jobs.remove(job)

    def cancel_abandoned(self, seconds: float) -> None:
        """Those whose clients did not ask for so long."""
        latest = time.monotonic() - seconds
        for job in list(self._jobs):
            if job.asked < latest:
                self.cancel(job)

    def close(self) -> None:
        self.cancel_abandoned(-1)
        self._worker.shutdown(cancel_futures=True)

    def _run(self, job: Job) -> None:
        with self._lock:
            if job.over:
                return
            job.state = "running"
        state: State = "failed"
        try:
            job.result = job.work(job.progress)
            state = "cancelled" if job.stop else "done"
        except Cancelled:
            state = "cancelled"
        except InputError as error:
            job.error = self._say(error)
        except Exception as error:  # the worker outlives whatever a job meets
            job.error = "the segmentation failed for a reason that the server's log has"
            log_failure(error)
        if state != "done":
            job.result = None
        with self._lock:
            job.state = state  # last: whoever sees it finds the rest complete
            self._jobs.remove(job)


@dataclass(eq=False)
class Session:
    """Uploads and jobs of one client. Its id is a secret: whoever knows it is that client."""

    folder: Path  # of its uploads; made when it is needed
    id: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))  # of requests that change something
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    jobs: OrderedDict[str, Job] = field(default_factory=OrderedDict[str, Job])
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
            if name.startswith(COOKIE) and (one := self.get(morsel.value)):
                return one
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

"""Jobs, one at a time on one thread, in the order they came. The queue is bounded, and who has left is not served."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from berdiff.errors import InputError
from berdiff_viewer.server.common import Limits, busy, log_failure
from berdiff_viewer.server.work import Progress, Segmented

State = Literal["queued", "running", "done", "failed", "cancelled"]
Work = Callable[[Progress], Segmented]
FAILED = "the segmentation failed for a reason that the server's log has"


class Cancelled(Exception):
    """Raised between two steps."""


@dataclass(eq=False)
class Job:
    work: Work
    say: Callable[[InputError], str]  # the sentence that the client is told
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


class JobQueue:
    """The queue and its worker."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="berdiff-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, job: Job) -> None:
        """Refused where the queue is full."""
        with self._changed:
            if len(self._waiting) >= self._limits.jobs or self._closed:
                sentence = f"the server is busy: {len(self._waiting)} segmentations are waiting; try again soon"
                raise busy(sentence, 429)
            self._waiting.append(job)
            self._changed.notify()

    def shown(self, job: Job) -> dict[str, Any]:
        with self._changed:
            place = self._waiting.index(job) if job.state == "queued" and job in self._waiting else None
            named = {"id": job.id, "state": job.state, "place": place}
            return {**named, "done": job.done, "total": job.total, "error": job.error}

    def cancel(self, job: Job) -> None:
        """A waiting one leaves the queue at once, a running one stops after its step."""
        with self._changed:
            job.stop = True
            if job in self._waiting:
                self._waiting.remove(job)
                job.state = "cancelled"

    def cancel_abandoned(self) -> None:
        """Those whose clients no longer ask."""
        latest = time.monotonic() - self._limits.abandoned_seconds
        with self._changed:
            alive = [*self._waiting, *([self._running] if self._running else [])]
            left = [job for job in alive if job.asked < latest]
        for job in left:
            self.cancel(job)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for job in (*self._waiting, *([self._running] if self._running else [])):
                job.stop = True
            self._waiting.clear()
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._running = None
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = self._running = self._waiting.popleft()
                job.state = "running"
            self._run(job)

    def _run(self, job: Job) -> None:
        state: State = "failed"
        try:
            job.result = job.work(job.progress)
            state = "cancelled" if job.stop else "done"
        except Cancelled:
            state = "cancelled"
        except InputError as error:
            job.error = job.say(error)
        except Exception as error:  # the worker outlives whatever a job meets
            job.error = FAILED
            log_failure(error)
        if state != "done":
            job.result = None
        job.state = state  # last: whoever sees it finds the rest complete

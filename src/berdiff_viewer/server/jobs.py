"""Jobs, one at a time in the order they came. The queue is bounded; jobs of clients that have left are cancelled."""

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from berdiff.errors import InputError
from berdiff_viewer.server.common import Limits, Refused, log_failure
from berdiff_viewer.server.schemas import JobAnswer, State
from berdiff_viewer.server.work import Progress, Segmented


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

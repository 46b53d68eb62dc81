"""Jobs, one at a time on one thread, in the order they came. The queue is bounded, and who has left is not served."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from berdiff.errors import InputError
from berdiff_viewer.server.common import Limits, Refused, log_failure
from berdiff_viewer.server.schemas import JobAnswer, State
from berdiff_viewer.server.work import Progress, Segmented

FAILED = "the segmentation failed for a reason that the server's log has"


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
            raise Refused(404 if self.over else 409, f"job: expected a finished one, found it {self.state}")
        return self.result


class JobQueue:
    """The queue and its worker. `say` makes the sentence that the client is told."""

    def __init__(self, limits: Limits, say: Callable[[InputError], str]) -> None:
        self._limits, self._say = limits, say
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="berdiff-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, job: Job) -> None:
        """Refused where the queue is full."""
        with self._changed:
            waiting = len(self._waiting)
            if waiting >= self._limits.jobs or self._closed:
                sentence = f"the server is busy: {waiting} segmentations are waiting; try again soon"
                raise Refused(429, sentence, retry=1)
            self._waiting.append(job)
            self._changed.notify()

    def shown(self, job: Job) -> JobAnswer:
        with self._changed:
            place = self._waiting.index(job) if job in self._waiting else None
            return JobAnswer(id=job.id, state=job.state, place=place, done=job.done, total=job.total, error=job.error)

    def cancel(self, job: Job) -> None:
        """A waiting one leaves the queue at once, a running one stops after its step."""
        with self._changed:
            job.stop = True
            if job in self._waiting:
                self._waiting.remove(job)
                job.state = "cancelled"

    def cancel_abandoned(self, seconds: float) -> None:
        """Those whose clients did not ask for so long."""
        latest = time.monotonic() - seconds
        with self._changed:
            for job in (*self._waiting, *([self._running] if self._running else [])):
                if job.asked < latest:
                    self.cancel(job)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self.cancel_abandoned(-1)
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
            job.error = self._say(error)
        except Exception as error:  # the worker outlives whatever a job meets
            job.error = FAILED
            log_failure(error)
        if state != "done":
            job.result = None
        job.state = state  # last: whoever sees it finds the rest complete

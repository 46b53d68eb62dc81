"""One segmentation by many workers: processes of this machine, or tasks of a Ray cluster.

Every worker runs the same job on the same store, and the store's claims keep them apart. So resuming, and what one bad
file does, are as in one process, and the results are the same bytes; what a worker that dies was at is tried once more
by another, and then reported. The command itself only looks at what is done.
"""

import logging
import os
import signal
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import connection, get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from berdiff.data.limits import Limits, set_limits
from berdiff.errors import InputError
from berdiff.inference.inputs import Input
from berdiff.inference.settings import SegmentSettings
from berdiff.jobs.findings import FindingSource
from berdiff.output.formats import OutputSettings
from berdiff.parent import end_with_parent

if TYPE_CHECKING:
    from berdiff.jobs.run import Outcome, SegmentationJob

SECONDS_BETWEEN_LOOKS = 0.5  # at what is done
Word = tuple[Literal["done", "refused", "broken"], Any]  # a worker's last one


@dataclass(frozen=True)
class Work:
    """What every worker does, in a form that can be sent to it."""

    load: dict[str, Any]  # the arguments of `inference.model.load`
    settings: SegmentSettings
    output: OutputSettings
    findings: FindingSource | None = None
    limits: Limits = field(default_factory=Limits)
    inputs: Sequence[Input] = ()
    claims: Path | None = None  # the folder of claims; None: there are none, and each of `workers` takes its part
    workers: int = 1

    def open(self, number: int) -> "SegmentationJob":
        """In the worker: one thread each, for threads of several processes would wait for each other."""
        import torch

        from berdiff.device import share_devices
        from berdiff.inference.model import load
        from berdiff.jobs.run import SegmentationJob
        from berdiff.memory import keep_freed_memory

        torch.set_num_threads(1)
        keep_freed_memory()
        set_limits(self.limits)  # of the command; this process does nothing else
        how: dict[str, Any] = {**self.load, "device": share_devices(self.load["device"], number)}
        model = load(**how)
        job = SegmentationJob(model, self.settings, self.output, findings=self.findings, worker=True)
        job.store.claims = self.claims
        return job


def work_on(work: Work, number: int) -> Word:
    """In the worker: what has failed, by input; or what ends the command."""
    try:
        job = work.open(number)
        first = number * len(work.inputs) // work.workers  # each begins at another place, so that they seldom meet
        part = work.inputs[number :: work.workers]
        job.segment([*work.inputs[first:], *work.inputs[:first]] if work.claims else part)
        return "done", job.failed
    except InputError as error:
        return "refused", str(error)
    except Exception:  # of any kind: the command raises it with the traceback, where a dead process would say nothing
        return "broken", traceback.format_exc()


def segment(job: "SegmentationJob", work: Work, inputs: Sequence[Input], engine: str, count: int) -> "Outcome":
    """What `job.segment(inputs)` does, by `count` workers; `job` is the command's own, which opens no image."""
    with job.at_work(inputs), TemporaryDirectory(prefix="berdiff-") as folder:
        job.before = set(job.store.results())
        left = [item for item in inputs if not job.settled(item)]
        if left:
            job.store.begin()
            local, job.store.claims = job.store.claims, job.store.claims or Path(folder)
            claims = job.store.claims if engine == "local" else local
            work = replace(work, inputs=tuple(left), claims=claims, workers=min(count, len(left)))
            left = _run(job, work, left, Processes(work) if engine == "local" else RayTasks(work))
        for item in left:
            job.lose(item)
    places = {item.name: place for place, item in enumerate(inputs)}
    job.outcome.done.sort(key=lambda name: places[name] if name in places else places[name.rpartition("/")[0]])
    return job.outcome


def _run(job: "SegmentationJob", work: Work, left: list[Input], pool: "Processes | RayTasks") -> list[Input]:
    """Those that no worker could finish. A worker that dies is replaced, where anything was begun since it began."""
    begun = dict[int, object]()

    def start(number: int) -> None:
        begun[number] = _traces(job, left)
        pool.start(number)

    try:
        for number in range(work.workers):
            start(number)
        first, by_name = begun[0], {item.name: item for item in left}
        while left and pool.running:
            for number, word in pool.ended(SECONDS_BETWEEN_LOOKS):
                if word is None:
                    if begun[number] != _traces(job, left):
                        start(number)
                    continue
                kind, content = word
                if kind != "done":
                    raise InputError(content) if kind == "refused" else RuntimeError(f"a worker failed:\n{content}")
                for name, failed in content.items():  # where claims are not shared
                    if by_name[name] in left and (claim := job.store.take(name)) is not None:
                        claim.release(failed)
            left = [item for item in left if not job.settled(item)]
        if left and first == _traces(job, left):
            raise InputError("--workers: every worker died before it had opened the model (out of memory?)", "limit")
        return left
    finally:
        pool.close()


def _traces(job: "SegmentationJob", left: Sequence[Input]) -> tuple[int, int]:
    """What workers leave behind them: results, and attempts."""
    attempts = 0
    for path in job.store.claims.glob(".claim-*") if job.store.claims is not None else ():
        with suppress(FileNotFoundError):  # released meanwhile
            attempts += path.stat().st_size
    return len(left), attempts


# --- what runs them --------------------------------------------------------------------------------------------------


class Processes:
    """Of this machine."""

    def __init__(self, work: Work) -> None:
        self.work, self.running = work, dict[Any, Any]()  # the end of a pipe -> (number, process)

    def start(self, number: int) -> None:
        context = get_context("spawn")  # a fork would inherit torch's threads, and sessions with servers
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(there, self.work, number, os.getpid()), daemon=True)
        process.start()
        there.close()  # so that the end of the process is the end of the pipe
        self.running[here] = number, process

    def ended(self, seconds: float) -> list[tuple[int, Word | None]]:
        """(number, its word) of those that ended meanwhile; None: it died."""
        ended: list[tuple[int, Word | None]] = []
        for pipe in connection.wait(list(self.running), seconds):
            number, process = self.running.pop(pipe)
            try:
                ended.append((number, pipe.recv()))  # type: ignore[union-attr]
            except (EOFError, OSError):
                ended.append((number, None))
            process.join()
        return ended

    def close(self) -> None:
        for _, process in self.running.values():
            process.terminate()
            process.join()


def _serve(pipe: Any, work: Work, number: int, command: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    end_with_parent(command)
    pipe.send(work_on(work, number))


class RayTasks:
    """Of the cluster that RAY_ADDRESS names, or of one for the occasion."""

    def __init__(self, work: Work) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise InputError("--engine ray: this needs `pip install 'berdiff[ray]'`", "missing") from error
        self.ray, self.own, self.running = ray, not ray.is_initialized(), dict[Any, int]()
        if self.own:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            local: dict[str, Any] = {"num_cpus": work.workers, "include_dashboard": False}
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **({} if "RAY_ADDRESS" in os.environ else local))
        gpus = work.load["device"] in ("auto", "cuda") and ray.cluster_resources().get("GPU", 0) > 0
        self.task = ray.remote(num_cpus=1, num_gpus=int(gpus), max_retries=0)(work_on)
        self.work = ray.put(work)

    def start(self, number: int) -> None:
        self.running[self.task.remote(self.work, number)] = number

    def ended(self, seconds: float) -> list[tuple[int, Word | None]]:
        """As of processes."""
        ended: list[tuple[int, Word | None]] = []
        for task in self.ray.wait(list(self.running), timeout=seconds)[0]:
            number = self.running.pop(task)
            try:
                ended.append((number, self.ray.get(task)))
            except self.ray.exceptions.RayError:
                ended.append((number, None))
        return ended

    def close(self) -> None:
        for task in self.running:
            self.ray.cancel(task, force=True)
        if self.own:
            self.ray.shutdown()

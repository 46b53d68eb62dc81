"""One segmentation by many workers: processes of this machine, or actors of a Ray cluster.

Every worker opens the model once and runs the same `SegmentationJob` on the inputs it is handed, a few at a time: so
resuming, and what one bad file does, are as in one process, and the results are the same bytes. What a worker that
dies was at is tried once more by another; then it is reported, and the rest goes on.
"""

import os
import signal
import traceback
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from berdiff.data.limits import Limits, set_limits
from berdiff.errors import InputError
from berdiff.inference.finding import FindingSource
from berdiff.inference.inputs import Input, count_slices
from berdiff.inference.settings import SegmentSettings
from berdiff.output.formats import OutputSettings
from berdiff.output.outcome import Outcome
from berdiff.parent import end_with_parent

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from berdiff.output.segmentation import SegmentationJob

Engine = Literal["local", "ray"]
Chunk = tuple[Input, ...]
Outcomes = Generator[tuple[Chunk, Outcome], None, None]
TRIES = 2  # of an input whose worker died


@dataclass(frozen=True)
class WorkerTask:
    """What every worker does, in a form that can be sent to it."""

    load: dict[str, Any]  # the arguments of `inference.model.load`
    settings: SegmentSettings
    output: OutputSettings
    findings: FindingSource | None = None
    limits: Limits = field(default_factory=Limits)

    def open(self, number: int) -> "SegmentationJob":
        """In the worker: one thread each, for threads of several processes would wait for each other."""
        import torch

        from berdiff.device import share_devices
        from berdiff.inference.model import load
        from berdiff.memory import keep_freed_memory
        from berdiff.output.segmentation import SegmentationJob

        torch.set_num_threads(1)
        keep_freed_memory()
        set_limits(self.limits)  # of the driver's command; this process does nothing else
        model = load(**{**self.load, "device": share_devices(self.load["device"], number)})
        return SegmentationJob(model, self.settings, self.output, findings=self.findings, cohort=False)


def segment(
    job: "SegmentationJob",
    task: WorkerTask,
    inputs: Sequence[Input],
    engine: Engine,
    workers: int,
) -> Outcome:
    """What `job.segment(inputs)` does, by `workers`; `job` is the driver's own, which only gathers."""
    from berdiff.output.ray_engine import by_ray

    outcome, order = Outcome(), {item.name: place for place, item in enumerate(inputs)}
    one = task.findings is not None  # how many an input has is known when it is read
    slices = {item.name: 1 if one else count_slices(item, task.settings.region) for item in inputs}
    done, total = 0, sum(slices.values())
    each = (by_processes if engine == "local" else by_ray)(task, chunks(job, inputs), workers)
    try:
        with job.work:
            for chunk, found in each:
                if found.done:
                    job.work.begin()  # holds the folder until the last worker is through
                for sentence in found.failed.values():
                    job.report(sentence)
                outcome.add(found)
                done += sum(slices[item.name] for item in chunk)
                job.progress(done, total)
            job.finish(outcome)
    finally:
        each.close()
    return outcome.ordered(order)


def chunks(job: "SegmentationJob", inputs: Sequence[Input]) -> list[Chunk]:
    """One by one, or as many as go through the network at once: fewer would only be filled up."""
    size = max(1, job.model.segmenter.masks_per_pass // job.settings.drawn)
    return [tuple(inputs[first : first + size]) for first in range(0, len(inputs), size)]


def work_on(job: "SegmentationJob", chunk: Chunk) -> Outcome:
    """In the worker: the outcome of these inputs alone."""
    job.outcome = type(job.outcome)()
    return job.segment(chunk)


def lost(chunk: Chunk) -> Outcome:
    sentence = f"{{}}: expected a worker to finish it, found {TRIES} that died at it (out of memory?)"
    return Outcome(failed={item.name: sentence.format(item.what) for item in chunk})


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Worker:
    process: "BaseProcess"
    pipe: "Connection"
    chunk: Chunk | None = None
    ready: bool = False  # it has opened the model


def by_processes(task: WorkerTask, chunks: list[Chunk], count: int) -> Outcomes:
    """(chunk, outcome) as they come. Never waits for a process that is gone."""
    from multiprocessing import connection, get_context

    context = get_context("spawn")  # a fork would inherit torch's threads, and sessions with servers
    waiting, died = deque(chunks), dict[str, int]()
    workers: list[_Worker] = []

    def start(number: int) -> None:
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, task, number, os.getpid()), daemon=True)
        process.start()
        there.close()  # so that the end of the process is the end of the pipe
        workers.append(_Worker(process, here))

    try:
        for number in range(min(count, len(chunks))):
            start(number)
        while workers:
            pipes = {worker.pipe: worker for worker in workers}
            for pipe in connection.wait(list(pipes)):
                worker = pipes[pipe]  # type: ignore[index]
                chunk, worker.chunk = worker.chunk, None
                try:
                    kind, content = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.process.join()
                    for item in chunk or ():  # one by one: the others are not to die with the culprit
                        died[item.name] = died.get(item.name, 0) + 1
                        if died[item.name] < TRIES:
                            waiting.append((item,))
                        else:
                            yield (item,), lost((item,))
                    if worker.ready and waiting:
                        start(len(chunks) + len(died))
                    continue
                if kind == "refused":
                    raise InputError(content)
                if kind == "broken":
                    raise RuntimeError(f"a worker failed:\n{content}")
                worker.ready = True
                if chunk is not None:
                    yield chunk, content
                if waiting:
                    worker.chunk = waiting.popleft()
                    worker.pipe.send(worker.chunk)
                else:
                    worker.pipe.close()
                    workers.remove(worker)
                    worker.process.join()
        if waiting:
            found = "that every one died before (out of memory?)"
            raise InputError(f"--workers: expected workers that open the model, found {found}")
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()


def _serve(pipe: "Connection", task: WorkerTask, number: int, driver: int) -> None:
    """The life of a process: opens the model, then works on what comes until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which ends this one
    end_with_parent(driver)
    try:
        job = task.open(number)
        pipe.send(("ready", None))
        while True:
            pipe.send(("done", work_on(job, pipe.recv())))
    except (EOFError, BrokenPipeError):
        return
    except InputError as error:
        pipe.send(("refused", str(error)))
    except Exception:  # of any kind: the driver raises it with the traceback, where a dead process would say nothing
        pipe.send(("broken", traceback.format_exc()))

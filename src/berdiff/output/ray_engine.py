"""Workers on a Ray cluster: a pool of Ray Data's actors, each of which opens the model once."""

import json
import logging
import os
import traceback
from dataclasses import asdict
from typing import Any

from berdiff.errors import InputError
from berdiff.output.engines import TRIES, Chunk, Outcomes, WorkerTask, lost, work_on
from berdiff.output.outcome import Outcome


def by_ray(task: WorkerTask, chunks: list[Chunk], count: int) -> Outcomes:
    """(chunk, outcome) as they come, from a pool of actors of the cluster that RAY_ADDRESS names, or of a local one."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise InputError("--engine ray: expected the package ray, found none (pip install 'berdiff[ray]')") from error
    own = not ray.is_initialized()
    if own:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local: dict[str, Any] = {"num_cpus": count + 1, "include_dashboard": False}  # one more: Ray's own tasks
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **({} if "RAY_ADDRESS" in os.environ else local))
    try:
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_errored_blocks = -1  # what is lost is missing at the end, and the rest goes on
        gpus = task.load["device"] in ("auto", "cuda") and ray.cluster_resources().get("GPU", 0) > 0
        numbers = [{"id": number} for number in range(len(chunks))]
        rows = ray.data.from_items(numbers, override_num_blocks=len(chunks)).map(
            _Actor,  # type: ignore[arg-type]
            fn_constructor_args=(task, chunks),
            # at most one at a time: a second one in the queue would die with the first
            compute=ray.data.ActorPoolStrategy(
                min_size=1, max_size=count, initial_size=count, max_tasks_in_flight_per_actor=1
            ),
            num_cpus=1,
            num_gpus=1 if gpus else 0,
            max_restarts=-1,
            max_task_retries=TRIES - 1,
        )
        missing = dict(enumerate(chunks))
        for row in rows.iter_rows():
            if row["kind"] != "done":
                raise InputError(row["content"]) if row["kind"] == "refused" else RuntimeError(row["content"])
            yield missing.pop(int(row["chunk"])), Outcome(**json.loads(row["content"]))
        for chunk in missing.values():
            yield chunk, lost(chunk)
    finally:
        if own:
            ray.shutdown()


class _Actor:
    """One worker; Ray makes it, and makes it again where it died."""

    def __init__(self, task: WorkerTask, chunks: list[Chunk]) -> None:
        self.chunks, self.refused = chunks, ""
        try:
            self.job = task.open(0)
        except InputError as error:  # an actor that cannot be made would be made again and again
            self.refused = str(error)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        number = int(row["id"])
        try:
            if self.refused:
                raise InputError(self.refused)
            kind, content = "done", json.dumps(asdict(work_on(self.job, self.chunks[number])))
        except InputError as error:
            kind, content = "refused", str(error)
        except Exception:  # of any kind: the driver raises it; Ray would make the actor again and again
            kind, content = "broken", f"a worker failed:\n{traceback.format_exc()}"
        return {"chunk": number, "kind": kind, "content": content}

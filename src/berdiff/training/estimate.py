"""What a run will cost, measured by a few real steps: `berdiff train ... --dry-run`."""

import time
from typing import Any

from berdiff.training.progress import duration
from berdiff.training.record import memory_mb
from berdiff.training.session import Session
from berdiff.training.validate import draw

WARM_UP, MEASURED = 2, 3


def estimate(session: Session, run: Any) -> dict[str, Any]:
    """Parameters, memory, seconds a step and for the whole run. Nothing is written."""
    config, trainer = session.config, session.trainer(run)
    batches = session.batches.after(0)
    for step in range(1, WARM_UP + MEASURED + 1):
        if step == WARM_UP + 1:
            begun = time.monotonic()
        trainer.step(step, next(batches))
    seconds = (time.monotonic() - begun) / MEASURED
    batches.close()
    memory = memory_mb(session.fabric.device)
    steps = config.loop.max_steps
    training = steps * seconds
    validations, each = 0, 0.0
    if session.cases is not None:
        v = config.validation
        begun = time.monotonic()
        draw(trainer.module, session.cases, [0], v.samples, config.seed, session.fabric)
        each = (time.monotonic() - begun) * len(session.cases)
        validations = steps // v.every
    total = training + validations * each
    limit = config.loop.max_minutes
    return {
        "parameters": sum(p.numel() for p in session.segmenter.parameters()),
        "processes": session.fabric.world_size,
        "device": str(session.fabric.device),
        "memory_mb": round(memory),
        "seconds_per_step": round(seconds, 4),
        "images_per_s": round(config.loop.batch_size / seconds, 1),
        "seconds_per_validation": round(each, 1),
        "time_for_max_steps": duration(total),
        "stops_at": f"{limit:g} minutes" if limit is not None and limit * 60 < total else f"{steps} steps",
        "steps_within_limits": steps if limit is None else min(steps, int(steps * limit * 60 / total)),
    }

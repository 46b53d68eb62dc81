"""Which sampler suits a trained model: tried on a validation split, one setting after the other, by unbiased GED.

Biased GED would favour whatever makes few samples look alike. What is drawn matters most (few steps want one latent a
mask), so that comes first; then where the last step begins, for near alpha_bar = 1 there is nothing left to decide.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from berdiff.data.store import Store
from berdiff.diffusion.sampling import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import Settings, evaluate
from berdiff.evaluation.tables import number, pipes
from berdiff.files import write_text

LAST = (0.1, 0.2, 0.3, 0.4, 0.5)  # where the last step begins, as a share of T
ENDS: tuple[tuple[Any, Any], ...] = (
    ("threshold", "pixel"),
    ("sample", "pixel"),
    ("threshold", "shared"),
    ("sample", "shared"),
)
SIGMAS = (1.0, 0.5, 0.0)


@dataclass(frozen=True)
class Tried:
    """One sampler and its figures on the split."""

    sampler: Sampler
    ged: float
    ged_unbiased: float
    hm_iou: float
    seconds: float  # an image


def grid(T: int, steps: int, last: float) -> tuple[int, ...]:
    """`steps` steps, evenly from T down to `last` of it, from where the last one goes to 0."""
    low = max(1, round(T * last))
    if steps == 1:
        return (T,)
    found = tuple(round(T - i * (T - low) / (steps - 1)) for i in range(steps))
    if len(set(found)) < steps:
        raise InputError(f"--counts: expected at most {T - low + 1} steps between {low} and T = {T}, found {steps}")
    return found


def search(
    segmenter: Any,
    store: Store,
    out: Path,
    settings: Settings,
    counts: Sequence[int],
    say: Callable[[str], None] = lambda line: None,
) -> dict[int, list[Tried]]:
    """For each number of steps all that was tried, the best first; written to OUT/search.md. Goes on where it was."""
    if not counts or min(counts) < 1:
        raise InputError(f"--counts: expected numbers of steps of at least 1, found {list(counts)}")
    if not hasattr(segmenter, "schedule"):
        raise InputError("the model: expected a diffusion method with a sampler to search, found one without")
    found: dict[int, list[Tried]] = {}
    for count in counts:
        tried: dict[Sampler, Tried] = {}

        def judge(samplers: list[Sampler], tried: dict[Sampler, Tried] = tried) -> Sampler:
            """The best of all so far, these among them."""
            for sampler in samplers:
                if sampler not in tried:
                    tried[sampler] = _judge(segmenter, store, out, replace(settings, sampler=sampler))
                    say(f"{_name(sampler)}: unbiased GED {tried[sampler].ged_unbiased:.4f}")
            return min(tried, key=lambda sampler: tried[sampler].ged_unbiased)

        T = segmenter.schedule.T
        uniform = grid(T, count, 1 / count)
        best = judge([Sampler(uniform, last_step=last_step, latent=latent) for last_step, latent in ENDS])
        best = judge([replace(best, steps=grid(T, count, last)) for last in LAST])
        judge([replace(best, sigma=sigma) for sigma in SIGMAS])
        found[count] = sorted(tried.values(), key=lambda t: t.ged_unbiased)
    write_text(out / "search.md", markdown(found, settings.samples))
    return found


def _judge(segmenter: Any, store: Store, out: Path, settings: Settings) -> Tried:
    name, n = _name(settings.sampler), settings.samples
    figures = evaluate(segmenter, store, out / name, settings, name)["metrics"]
    keys = (f"ged_{n}", f"ged_{n}_unbiased", f"hm_iou_{n}", "seconds")
    return Tried(settings.sampler, *(figures[key]["value"] for key in keys))


def _name(sampler: Sampler) -> str:
    steps = sampler.steps
    assert isinstance(steps, tuple)
    return f"{len(steps)}-steps-to-{steps[-1]}-{sampler.last_step}-{sampler.latent}-sigma-{sampler.sigma:g}"


def markdown(found: dict[int, list[Tried]], n: int) -> str:
    header = ["steps", "the last from", "last step", "latent", "sigma", f"GED {n}, unbiased", f"GED {n}", f"HM-IoU {n}"]
    body = []
    for count, tried in found.items():
        for t in tried:
            s = asdict(t.sampler)
            row = [str(count), str(s["steps"][-1]), s["last_step"], s["latent"], f"{s['sigma']:g}"]
            body.append([*row, *(number(value) for value in (t.ged_unbiased, t.ged, t.hm_iou, t.seconds))])
    return "\n".join([*pipes([*header, "seconds an image"], body), ""])

"""Which sampler suits a trained model: tried on a validation split, one setting after the other, by unbiased GED.

Biased GED would favour whatever makes few samples look alike. What is random matters most (few steps need shared
noise), so that comes first; then where the last step begins, since near alpha_bar = 1 nothing is left to decide; then
the update rule; then mirrored views, whose passes cost more. What a kernel cannot do is skipped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from berdiff.data.describe import expect
from berdiff.data.store import Store
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.evaluation.evaluate import evaluate
from berdiff.evaluation.layout import number, pipes
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.files import write_text
from berdiff.inference.model import Model

LAST = (0.1, 0.2, 0.3, 0.4, 0.5)  # where the last step begins, as a share of T
ENDS: list[dict[str, Any]] = [
    {"last_step": last_step, "noise": noise}
    for last_step, noise in product(("threshold", "sample"), ("independent", "shared"))
]
RULES: list[dict[str, Any]] = [
    *({"rule": "ddim", "posterior": "soft", "sigma": sigma} for sigma in (1.0, 0.5, 0.0)),
    *({"rule": "ddpm", "posterior": posterior, "sigma": 1.0} for posterior in ("soft", "marginal")),
]
VIEWS: list[dict[str, Any]] = [{"views": views} for views in (1, 2, 4)]


@dataclass(frozen=True)
class TriedSampler:
    """One sampler and its figures on the split."""

    sampler: Sampler
    ged: float
    ged_unbiased: float
    hm_iou: float
    seconds: float  # per image


def grid(T: int, steps: int, last: float) -> tuple[int, ...]:
    """`steps` steps, evenly from T down to `last` of it, from where the last one goes to 0."""
    low = max(1, round(T * last))
    if steps == 1:
        return (T,)
    found = tuple(round(T - i * (T - low) / (steps - 1)) for i in range(steps))
    expect(len(set(found)) == steps, "--counts", f"at most {T - low + 1} steps between {low} and T = {T}", steps)
    return found


def search(
    model: Model,
    store: Store,
    out: Path,
    settings: EvaluationSettings,
    counts: Sequence[int],
    report: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[int, list[TriedSampler]]:
    """For each number of steps all that was tried, the best first; written to OUT/search.md. A killed one resumes."""
    segmenter = model.segmenter
    expect(counts and min(counts) >= 1, "--counts", "numbers of steps of at least 1", list(counts))
    if segmenter.T is None or segmenter.sampler is None:
        raise InputError(f"{model.name}: the method {segmenter.config.method} has no steps to search", "unsupported")
    T = segmenter.T
    for count in counts:
        grid(T, count, max(LAST))  # before anything is sampled: a count that leaves no room for all starts of the last
    own = segmenter.sampler  # its rule, sigma and smallest mask to begin with: flow matching has no other sigma
    without = {"posterior": "soft"} if own.rule == "ddim" else {"sigma": 1.0}  # what its rule does not look at
    start = replace(own, spacing="uniform", views=1, **without)
    found: dict[int, list[TriedSampler]] = {}
    # some are tried already when their turn comes
    done, most = 0, len(counts) * (len(ENDS) + len(LAST) + len(RULES) + len(VIEWS))
    for count in counts:
        tried: dict[Sampler, TriedSampler] = {}

        def best_with(
            base: Sampler, changes: list[dict[str, Any]], tried: dict[Sampler, TriedSampler] = tried
        ) -> Sampler:
            """The best of all so far, `base` with each of these changes among them."""
            nonlocal done
            for change in changes:
                done += 1
                try:
                    sampler = replace(base, **change)
                    if sampler in tried:
                        continue
                    segmenter.check_sampler(sampler)
                except ValueError:  # a kernel refuses what it does not have: shared noise, DDPM's rule, a sigma
                    continue
                tried[sampler] = _try(sampler, model, store, out, settings)
                progress(done, most)
                report(f"{_name(sampler)}: unbiased GED {tried[sampler].ged_unbiased:.4f}")
            return min(tried, key=lambda sampler: tried[sampler].ged_unbiased)

        best = best_with(replace(start, steps=grid(T, count, 1 / count)), ENDS)
        best = best_with(best, [{"steps": grid(T, count, last)} for last in LAST])
        best = best_with(best, RULES)
        best_with(best, VIEWS)
        found[count] = sorted(tried.values(), key=lambda t: t.ged_unbiased)
    write_text(out / "search.md", markdown(found, settings.samples, settings.drawn))
    return found


def _try(sampler: Sampler, model: Model, store: Store, out: Path, settings: EvaluationSettings) -> TriedSampler:
    name, n, drawn = _name(sampler), settings.samples, settings.drawn
    figures = evaluate(replace(model, name=name), store, out / name, replace(settings, sampler=sampler))["metrics"]
    unbiased = f"ged_{drawn}_unbiased" if drawn > 1 else "ged_1"
    keys = (f"ged_{n}", unbiased, f"hm_iou_{n}", "seconds")
    return TriedSampler(sampler, *(cast(float, figures[key]["value"]) for key in keys))


def _rule(sampler: Sampler) -> str:
    return f"sigma {sampler.sigma:g}" if sampler.rule == "ddim" else f"ddpm {sampler.posterior}"


def _cells(sampler: Sampler) -> list[str]:
    """What differs between the samplers of a search."""
    assert isinstance(sampler.steps, tuple)  # of `grid`
    last = sampler.last_step, sampler.noise, _rule(sampler), str(sampler.views)
    return [str(sampler.count), str(sampler.steps[-1]), *last]


def _name(sampler: Sampler) -> str:
    """Of its folder."""
    *first, rule, views = _cells(sampler)
    name = "{}-steps-to-{}-{}-{}-".format(*first) + rule.replace(" ", "-")
    return name if sampler.views == 1 else f"{name}-{views}-views"


def markdown(found: dict[int, list[TriedSampler]], n: int, drawn: int) -> str:
    """Sets of n masks, out of as many samples as were drawn."""
    header = ["steps", "the last from", "last step", "noise", "rule", "views"]
    header += [f"GED {drawn}, unbiased", f"GED {n}", f"HM-IoU {n}", "seconds per image"]
    body = [
        [*_cells(t.sampler), *map(number, (t.ged_unbiased, t.ged, t.hm_iou, t.seconds))]
        for tried in found.values()
        for t in tried
    ]
    return "\n".join(pipes(header, body))

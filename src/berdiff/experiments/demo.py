"""The demo: held-out cases with several readers, segmented, scored beside the floor, and shown on one page."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.evaluation.scores import PERFECT, reference_scores, score_samples
from berdiff.inference.draw import Settings
from berdiff.inference.inputs import Input
from berdiff.inference.model import Model
from berdiff.inference.region import Region
from berdiff.inference.report import Entry, Table, write_report
from berdiff.inference.result import Result
from berdiff.inference.words import digest

SPLIT = "test"
LEAST_READERS = 2  # who marked something: with one there is nothing to disagree about
CHUNK = 64  # cases looked at together
WHAT_IT_IS = {
    "lidc-readers": "The contours are those of the four radiologists of LIDC-IDRI (The Cancer Imaging Archive, CC BY "
    "3.0), as they drew them. The CT under them is simulated from the contours: it shows how the method behaves when "
    "readers disagree, not how well it reads a real CT.",
}
HOW_TO_READ = (
    "Each case shows the image, what each reader marked, and what the model's samples mark. GED is the distance "
    "between the samples and the readers (lower is better); HM-IoU is how well they match one to one (higher is "
    "better). The floor of GED, and the HM-IoU beside it, are those of samples drawn from the readers themselves: no "
    "model can do better on average."
)


@dataclass(frozen=True)
class Score:
    """A case, or their mean, beside what a perfect sampler would have."""

    case: str
    ged: float
    ged_floor: float
    hm_iou: float
    hm_iou_perfect: float


@dataclass(frozen=True)
class Demo:
    report: Path
    samples: int
    cases: tuple[Score, ...]
    mean: Score


def choose(store: Store, count: int, seed: int) -> np.ndarray:
    """The first `count` cases, each of another patient, that two readers or more marked, in one seeded order."""
    if count < 1:
        raise InputError(f"--cases: expected at least 1, found {count}")
    order = np.random.default_rng(seed).permutation(store.indices(SPLIT))
    chosen: dict[str, int] = {}
    for first in range(0, len(order), CHUNK):
        some = order[first : first + CHUNK]
        masks = store.read_stored(some)[1]
        marked = masks.any(axis=(2, 3, 4)).sum(1)  # (B,) readers
        for index in some[marked >= LEAST_READERS]:
            chosen.setdefault(str(store.cases.patient[index]), int(index))
            if len(chosen) == count:
                return np.array(list(chosen.values()))
    raise InputError(
        f"{store.address}: expected {count} patients with a case marked by {LEAST_READERS} readers or more in the "
        f"split {SPLIT}, found {len(chosen)}"
    )


def run_demo(
    model: Model,
    store: Store,
    out: Path,
    count: int = 6,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Demo:
    """Segment the centre of `count` cases, as large as the model was trained at, and write report.html into `out`."""
    chosen = choose(store, count, settings.seed)
    centre = Region(center=(store.size[0] // 2, store.size[1] // 2))
    settings = Settings(settings.samples, settings.sampler, settings.seed, centre, batch_size=1)
    results = []
    for index in chosen:  # one by one, so that the bar moves
        item = Input(str(store.cases.case[index]), "store", (Path(store.address),), store, int(index))
        results += model.results([model.open(item)], settings)
        progress(len(results), count)
    scores = score(results, settings.seed)
    mean = Score("mean", *(float(np.mean(column)) for column in zip(*map(_figures, scores), strict=True)))
    n = settings.samples
    rows = [[of.case, *(f"{value:.3f}" for value in _figures(of))] for of in (*scores, mean)]
    table = Table(
        ("case", f"GED ({n})", "floor", f"HM-IoU ({n})", "of a perfect sampler"),
        rows,
        f"{count} cases, {n} samples each",
    )
    entries = [Entry(result, digest(result), _line(of)) for result, of in zip(results, scores, strict=True)]
    said = [_data(store, count), HOW_TO_READ]
    return Demo(
        write_report(out / "report.html", "berdiff: what several readers may see", entries, said, table),
        n,
        scores,
        mean,
    )


def score(results: list[Result], seed: int) -> tuple[Score, ...]:
    """Each result against its own readers, in the region that was segmented."""
    scores = []
    for result in results:
        rows, columns = (slice(*ends) for ends in result.roi or ((None, None), (None, None)))
        assert result.readers is not None  # a store's case has them
        samples, masks = (
            torch.from_numpy(np.ascontiguousarray(of[..., rows, columns]))[None]
            for of in (result.samples, result.readers)
        )
        raters, n = torch.tensor([masks.shape[1]]), samples.shape[1]
        found = score_samples(samples, masks, raters)
        perfect = reference_scores(masks, raters, [result.name], n, seed)[PERFECT]
        names = (f"ged_{n}", f"hm_iou_{n}")
        ged, hm_iou = (float(found[name].mean()) for name in names)
        ged_floor, hm_iou_perfect = (float(perfect[name].mean()) for name in names)
        scores.append(Score(result.name, ged, ged_floor, hm_iou, hm_iou_perfect))
    return tuple(scores)


def _figures(of: Score) -> tuple[float, ...]:
    return of.ged, of.ged_floor, of.hm_iou, of.hm_iou_perfect


def _line(of: Score) -> str:
    return f"GED {of.ged:.3f} (floor {of.ged_floor:.3f}), HM-IoU {of.hm_iou:.3f} (perfect {of.hm_iou_perfect:.3f})"


def _data(store: Store, count: int) -> str:
    about = WHAT_IT_IS.get(store.manifest.source, "; ".join(store.notes))
    rule = f"{count} cases of different patients, held out from training, drawn by a fixed seed from those that "
    return f"{rule}{LEAST_READERS} readers or more marked. {about}".strip()


def plain(demo: Demo) -> dict[str, Any]:
    """In plain JSON types."""
    return {
        "report": str(demo.report),
        "samples": demo.samples,
        "cases": [vars(of) for of in demo.cases],
        "mean": {name: value for name, value in vars(demo.mean).items() if name != "case"},
    }

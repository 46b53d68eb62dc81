"""The demo: held-out cases with several readers, segmented, scored beside the limit, and shown on one page."""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import torch

from berdiff.data.store import Store
from berdiff.data.subset import choose_cases
from berdiff.files import write_text
from berdiff.inference.model import Model
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings
from berdiff.metrics import Pairs, ged_limit
from berdiff.output.html_report import ReportEntry, ScoreTable, page

MIN_RATERS = 2  # who marked something: with one there is nothing to disagree about
WHAT_IT_IS = {
    "lidc-readers": "The contours are those of the four radiologists of LIDC-IDRI (The Cancer Imaging Archive, CC BY "
    "3.0), as they drew them. The CT under them is simulated from the contours: it shows how the method behaves when "
    "readers disagree, not how well it reads a real CT.",
}
HOW_TO_READ = (
    "Each case shows the image, what each reader marked, and what the model's samples mark. GED is the distance "
    "between the samples and the readers (lower is better). Its limit is what a model that knows readers in general, "
    "but not these, would have on average; of a single case it may be above GED. HM-IoU is how well samples and "
    "readers match one to one (higher is better). Agreement is the mean IoU of a sample and a reader, beside that of "
    "two readers: where they are equal, a sample is as near to a reader as another reader is."
)


@dataclass(frozen=True)
class DemoScore:
    """A case, or their mean, beside the limit of a model and the raters' own agreement."""

    case: str
    ged: float
    ged_limit: float
    hm_iou: float
    agreement: float  # 1 - d_SY
    rater_agreement: float  # 1 - D

    def __str__(self) -> str:
        ged, agreement = f"GED {self.ged:.3f} (limit {self.ged_limit:.3f})", f"agreement {self.agreement:.3f}"
        return f"{ged}, HM-IoU {self.hm_iou:.3f}, {agreement} (two readers {self.rater_agreement:.3f})"


@dataclass(frozen=True)
class Demo:
    report: Path
    samples: int
    cases: tuple[DemoScore, ...]
    mean: DemoScore

    @property
    def table(self) -> ScoreTable:
        header = ("case", f"GED ({self.samples})", "limit", f"HM-IoU ({self.samples})", "agreement", "of two readers")
        scores = map(astuple, (*self.cases, self.mean))
        rows = [[case, *(f"{value:.3f}" for value in values)] for case, *values in scores]
        return ScoreTable(header, rows, f"{len(self.cases)} cases, {self.samples} samples each")


def run_demo(
    model: Model,
    store: Store,
    out: Path,
    count: int = 6,
    settings: SegmentSettings = SegmentSettings(),  # noqa: B008 (frozen)
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Demo:
    """Segment the centre of `count` cases, as large as the model was trained at, and write report.html into `out`."""
    rules = {"one_per_patient": True, "marked_by": MIN_RATERS, "option": "--cases"}
    chosen = choose_cases(store, "test", count, settings.seed, **rules)
    results = model.case_results(store, chosen, settings, progress)
    scores = tuple(map(score, results))
    mean = np.mean([astuple(of)[1:] for of in scores], axis=0)
    demo = Demo(out / "report.html", settings.samples, scores, DemoScore("mean", *map(float, mean)))
    each = zip(results, scores, strict=True)
    entries = [ReportEntry(result, result.representatives(), str(of)) for result, of in each]
    about = WHAT_IT_IS.get(store.manifest.source, "; ".join(store.notes))
    rule = f"{count} cases of different patients, held out from training, chosen by a fixed seed from those that "
    intro = [f"{rule}{MIN_RATERS} readers or more marked. {about}".strip(), HOW_TO_READ]
    write_text(demo.report, page("berdiff: what several readers may see", entries, intro, demo.table))
    return demo


def score(result: Result) -> DemoScore:
    """A result against its own raters, on the whole image: what they marked outside the region counts."""
    assert result.raters is not None  # a store's case has them
    samples, masks = (
        torch.from_numpy(np.ascontiguousarray(of))[None] for of in (result.whole(result.samples), result.raters)
    )
    pairs = Pairs.of(samples, masks)
    limit = ged_limit(pairs.d_raters, pairs.raters[:, None], pairs.n)
    values = pairs.ged(), limit, pairs.hm_iou(), 1 - pairs.d_sy(), 1 - pairs.d_raters
    return DemoScore(result.name, *(float(of.mean()) for of in values))

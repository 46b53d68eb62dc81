"""berdiff search MODEL: which sampler suits a trained model."""

from dataclasses import dataclass, field

from tyro.conf import OmitArgPrefixes

from berdiff.cli.arguments import parse, print_json
from berdiff.cli.evaluate import ModelOnStore
from berdiff.display import note, progress
from berdiff.errors import InputError
from berdiff.evaluation.settings import EvaluationSettings
from berdiff.schema import Count


@dataclass(frozen=True, kw_only=True)
class Search(ModelOnStore):
    """Find the sampler that suits a trained model: steps, end of the last step, noise, update rule, mirrored views.

    One after the other on a validation split, by unbiased GED, into search.md. Interrupted, the same command resumes.
    """

    settings: OmitArgPrefixes[EvaluationSettings] = field(
        default_factory=lambda: EvaluationSettings(split="val", limit=128)
    )
    counts: tuple[Count, ...] = (3, 5, 10)  # numbers of steps, searched one by one
    keep: Count | None = None  # make the best sampler with this number of steps the model's own


def command(argv: list[str]) -> None:
    options = parse(Search, argv, "search")

    from berdiff.evaluation.search import search
    from berdiff.methods import folder
    from berdiff.text_tables import show_markdown

    keep, counts, path = options.keep, options.counts, folder.resolve(options.model)
    if keep is not None and keep not in counts:
        raise InputError(f"--keep: expected one of --counts, {', '.join(map(str, counts))}, found {keep}", "conflict")
    if keep is not None and path.is_relative_to(folder.BUNDLED):
        raise InputError(f"--keep: expected a model of your own to write to, found the bundled {path.name}", "access")
    model, store = options.open()
    with progress(f"searching for a sampler of {model.name}") as update:
        found = search(model, store, options.out, options.settings, counts, note, update)
    if options.json:
        print_json(found)
    else:
        show_markdown((options.out / "search.md").read_text(encoding="utf-8"))
    if keep is not None:
        folder.save(model.segmenter.with_changes(sampler=found[keep][0].sampler), path)
        note(f"{path}: this is its default sampler now")

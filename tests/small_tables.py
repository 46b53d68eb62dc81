"""Tables of the smallest network, for a few steps."""

from dataclasses import replace
from pathlib import Path

from berdiff.data.store import open_store
from reproduce.tables import TABLES, scale
from reproduce.tables.run import TableJob
from reproduce.tables.scale import Scale
from reproduce.tables.spec import PaperTable


def tiny(address: str, steps: int = 4) -> Scale:
    """The scale of the two cores with the smallest network, on 16x16."""
    made = scale.cpu(open_store(address), address, steps=steps)
    trainings = {
        name: replace(
            config,
            model=replace(config.model, preset="fast-tiny", T=20),
            data=replace(config.data, crop=None, augment=False),
            loop=replace(config.loop, batch_size=2, checkpoint_every=1, log_every=1),
        )
        for name, config in made.trainings.items()
    }
    points = replace(made.curves, every=2, cases=2, samples=2, sheet_cases=0)
    return replace(made, trainings=trainings, curves=points)


def job(table: str | PaperTable, address: str, out: Path, seeds: int = 1, steps: int = 4, **options) -> TableJob:
    table = TABLES[table] if isinstance(table, str) else table
    return TableJob(table, tiny(address, steps), open_store(address), out, seeds, **options)

"""The paper's tables as commands: one file per table, with its rows as data."""

from reproduce.tables import kernel, losses, methods, sampling
from reproduce.tables.spec import PaperTable

TABLES: dict[str, PaperTable] = {  # by their names on the command line
    table.name: table for table in (losses.TABLE, kernel.TABLE, sampling.TABLE, methods.LIDC_TABLE, methods.BRATS_TABLE)
}

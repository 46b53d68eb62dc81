"""Every table by its name on the command line."""

from reproduce.tables import kernel, losses, methods, sampling
from reproduce.tables.spec import PaperTable

TABLES: dict[str, PaperTable] = {
    table.name: table for table in (losses.TABLE, kernel.TABLE, sampling.TABLE, methods.LIDC_TABLE, methods.BRATS_TABLE)
}

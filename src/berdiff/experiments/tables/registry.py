"""Every table by its name on the command line."""

from berdiff.experiments.tables import kernel, losses, methods, sampling
from berdiff.experiments.tables.row import Table

TABLES: dict[str, Table] = {
    table.name: table for table in (losses.TABLE, kernel.TABLE, sampling.TABLE, methods.LIDC_TABLE, methods.BRATS_TABLE)
}

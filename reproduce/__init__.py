"""The paper's tables and figures, exact calculations and studies: run from the repository, not in the wheel."""

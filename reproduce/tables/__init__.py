"""The paper's tables as commands: one file per table, with its rows as data."""

"""The paper's tables as commands: one file a table, one function a row."""

"""The one exception that means "the user's input is wrong", and nothing else."""


class InputError(ValueError):
    """Bad input: one sentence that names the file or option, what was expected and what was found.

    The command line prints it without a traceback and leaves with exit code 2.
    """

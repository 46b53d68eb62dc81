"""A contract: small named checks of one thing, and one error that lists all that fail."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
Check = Callable[[T], None]


class ContractError(AssertionError):
    """What was checked, and each promise that it breaks."""


class Contract(Generic[T]):
    """`@contract` adds a function as a check; its name, in words, is the promise."""

    def __init__(self) -> None:
        self.checks: dict[str, Check[T]] = {}

    def __call__(self, function: Check[T]) -> Check[T]:
        self.checks[function.__name__.replace("_", " ")] = function
        return function

    def run(self, what: str, subject: T) -> None:
        """All checks; ContractError where some fail."""
        failed: dict[str, Exception] = {}
        for promise, function in self.checks.items():
            try:
                function(subject)
            except Exception as error:  # a crash inside a check breaks the promise too
                failed[promise] = error
        if failed:
            lines = [f"- {promise}: {_reason(error)}" for promise, error in failed.items()]
            heading = f"{what} breaks {len(failed)} of {len(self.checks)} promises:"
            raise ContractError("\n".join([heading, *lines])) from ExceptionGroup(what, list(failed.values()))


def expect(holds: object, found: str) -> None:
    """A promise is broken unless it `holds`."""
    if not holds:
        raise AssertionError(found)


def refuses(call: Callable[[], object], kind: type[Exception], what: str) -> str:
    """The message of the `kind` of error that `call` must raise; `what` says what it should refuse."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{what} is accepted")


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"

"""What an error promises: one printable line that names the file or the option. Its wording is free to change."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from berdiff.errors import Code, InputError


@contextmanager
def refused(*where: object, code: Code | None = None, error: type[ValueError] = InputError) -> Iterator[None]:
    """The block is refused in one printable line that holds each of `where`: files, options, cases, values; with the
    code of what is wrong."""
    with pytest.raises(error) as caught:
        yield
    assert code in (None, getattr(caught.value, "code", None))
    sentence = str(caught.value)
    assert sentence.isprintable(), "more than one line"
    assert len(sentence) > len("".join(map(str, where))), "no more than the name"
    for name in where:
        assert str(name) in sentence, f"{name} is not named in: {sentence}"

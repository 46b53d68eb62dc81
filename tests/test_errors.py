"""Errors: each has a code that programs read; the sentence is for people."""

import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

from berdiff.data.describe import check, expect, present
from berdiff.errors import CODES, Code, InputError


def test_every_code_has_a_meaning() -> None:
    assert set(CODES) == set(get_args(Code))
    page = (Path(__file__).parents[1] / "docs/extending.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `[a-z]+` \| .* \|$", page, re.MULTILINE)
    assert rows == [f"| `{code}` | {meaning} |" for code, meaning in CODES.items()]


def test_the_code_goes_with_the_error_through_processes() -> None:
    error = pickle.loads(pickle.dumps(InputError("a.png: cut short", "damaged")))
    assert (error.code, str(error)) == ("damaged", "a.png: cut short")


def test_codes_of_the_helpers() -> None:
    with pytest.raises(InputError) as caught:
        present(None, "a.json", "a name")
    assert caught.value.code == "missing"
    with pytest.raises(InputError) as caught:
        expect(False, "--steps", "at least 1", 0)
    assert caught.value.code == "value"
    with pytest.raises(InputError) as caught:
        check(False, "a.nii: as large as the disk", "limit")
    assert caught.value.code == "limit"
    check(True, "nothing")

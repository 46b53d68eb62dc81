"""Which device a command takes."""

import pytest
import torch

from berdiff.device import choose_device
from berdiff.errors import InputError


def test_auto_takes_the_fastest_there_is(monkeypatch):
    for cuda, mps, expected in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=cuda: found)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda found=mps: found)
        assert choose_device() == choose_device("auto") == expected


def test_a_name_must_be_a_device_of_this_machine():
    assert choose_device("cpu") == "cpu"
    wrong = ["gpu", "", "cpu:x"] + ([] if torch.cuda.is_available() else ["cuda", "cuda:7"])
    for name in wrong:
        with pytest.raises(InputError, match=r"^--device: expected auto or a device of this machine, found ") as caught:
            choose_device(name)
        assert len(str(caught.value).splitlines()) == 1

"""Which device a command takes."""

import signal
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from berdiff import device
from berdiff.device import choose_device, choose_precision
from berdiff.errors import InputError
from berdiff.training.config import EngineConfig
from berdiff.training.engine import make_fabric


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


@pytest.fixture
def untried() -> Iterator[None]:
    """Whether bf16 can be used is asked once per process; here it is asked anew, before and after."""
    device.bf16_ends_by.cache_clear()
    yield
    device.bf16_ends_by.cache_clear()


def tried(code: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of a child that ends with this code."""
    calls: list[list[str]] = []
    ended = SimpleNamespace(run=lambda argv, **_: calls.append(argv) or SimpleNamespace(returncode=code), DEVNULL=-3)
    monkeypatch.setattr(device, "subprocess", ended)
    return calls


@pytest.mark.usefixtures("untried")
def test_bf16_that_ends_the_process_is_one_sentence(monkeypatch):
    calls = tried(-signal.SIGILL, monkeypatch)
    remedy = "ends the process by SIGILL; set ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment"
    for _ in range(2):
        with pytest.raises(InputError, match=f"^--precision: expected a processor .* bf16 {remedy}"):
            choose_precision("cpu", "bf16")
    engine = EngineConfig(accelerator="cpu", precision="bf16-mixed")
    with pytest.raises(InputError, match=f"^--engine.precision: expected a processor .* bf16 {remedy}"):
        make_fabric(engine)
    assert [argv[0] for argv in calls] == [sys.executable]  # once for all
    monkeypatch.setenv("LOCAL_RANK", "1")  # another process of the training: the first one has asked
    device.bf16_ends_by.cache_clear()
    make_fabric(engine)
    assert len(calls) == 1


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize("code", [0, 1])  # 1: that child failed otherwise, which says nothing of bf16
def test_bf16_is_tried_only_where_asked_for(monkeypatch, code: int):
    calls = tried(code, monkeypatch)
    assert choose_precision("cpu", "fp32") == "fp32"
    make_fabric(EngineConfig(accelerator="cpu"))
    assert not calls
    assert choose_precision("cpu", "bf16") == "bf16"
    assert len(calls) == 1

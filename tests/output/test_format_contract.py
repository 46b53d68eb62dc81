"""Every output format keeps the contract of `berdiff.testing`, and the contract sees what a broken format does."""

from itertools import count

import numpy as np
import pytest
from made_results import file_result, result_2d, several_2d, volume_result, write_series
from PIL import Image

from berdiff.data.image import Grid, Source
from berdiff.output.formats import FORMATS, Format
from berdiff.testing import ContractError, check_format
from berdiff.testing.formats import contract

IMAGE = np.random.default_rng(0).integers(0, 100, (3, 20, 24)).astype(float)
NAME = "jane-doe"  # of the input


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("series"), IMAGE.astype(int))


@pytest.fixture
def picture(tmp_path) -> dict:
    """The file of a result, and a name that tells whose it is."""
    path = tmp_path / f"{NAME}.png"
    Image.fromarray(IMAGE[0].astype(np.uint8)).save(path)
    return {"name": NAME, "grid": Grid(IMAGE[0].shape, (0.5, 0.8), source=Source("png", (path,), IMAGE[0].shape))}


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_keeps_the_contract(format: str, series, picture):
    if format.startswith("dicom"):
        for kind in ("exclusive", "independent"):
            check_format(format, file_result(*series, kind=kind), identity=("CompressedSamples", "1CT1"))
        return
    check_format(format, result_2d(raters=2, **picture), identity=(NAME,))
    for kind in ("nested", "exclusive"):
        check_format(format, several_2d(kind, **picture), identity=(NAME,))
    check_format(format, volume_result(IMAGE, (2.5, 0.7, 0.6)))


# --- the contract can fail -------------------------------------------------------------------------------------------


def mean(result) -> bytes:
    return np.asarray(result.samples).mean(0).tobytes()


def spoiling(output):
    output.result.pool[:] = 1 - output.result.pool
    yield "mean.bin", b"0"


number = count(1)
BROKEN = [
    ("it is listed in words", lambda output: iter([("mean.bin", mean(output.result))])),
    ("its files are whole and the only ones", lambda output: iter([])),
    ("its files are whole and the only ones", lambda output: iter([("mean.bin", b"")])),
    ("the same result is the same files", lambda output: iter([("mean.bin", b"%d" % next(number))])),
    ("writing leaves the result as it was", spoiling),
    ("anonymous files hold nothing of the patient", lambda output: iter([("mean.bin", NAME.encode())])),
]


@pytest.mark.parametrize(("promise", "maker"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_format_that_breaks_it_is_named(promise: str, maker, picture, monkeypatch):
    monkeypatch.setitem(FORMATS, "broken", Format("" if promise == "it is listed in words" else "the mean", maker))
    with pytest.raises(ContractError) as caught:
        check_format("broken", result_2d(**picture), identity=(NAME,))
    assert f"\n- {promise}: " in str(caught.value)


def test_every_promise_has_a_format_that_breaks_it():
    assert {promise for promise, _ in BROKEN} == set(contract.checks)

"""Figures of examples: the slices of the evaluation's order, one row per slice and model."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from berdiff.data.subset import choose_cases
from berdiff.errors import InputError
from fakes import MemoryStore, bright_model, make_spec
from reproduce import examples
from reproduce.examples import make_examples, plot_examples


def test_rows_are_slices_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store, models = MemoryStore(), [bright_model(make_spec(size=(8, 8), targets=("disc",))) for _ in range(2)]
    shares = []
    counted = lambda done, total: shares.append((done, total))  # noqa: E731
    made = make_examples(models, store, cases=2, samples=5, seed=3, progress=counted)  # type: ignore[arg-type]
    assert shares == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert list(made) == ["bright", "bright (2)"]
    chosen = choose_cases(store, "all", 2, 3, one_per_patient=True, marked_by=1)  # type: ignore[arg-type]
    assert all(store.read([place])[1].any() for place in chosen)
    for results in made.values():
        assert [result.name for result in results] == store.cases.case[chosen].tolist()
    drawn = []
    monkeypatch.setattr(examples, "render", lambda *given, **_: drawn.extend(given) or Image.new("RGB", (1, 1)))
    plot_examples(made, tmp_path / "a.png", store, 5, variance=True)  # type: ignore[arg-type]
    rows, _, about, labels = drawn
    assert labels == ["bright", "bright (2)"] * 2
    titles = [tile.title for tile in rows[0] if tile is not None]
    assert (titles[0], titles[-2:]) == ("image", ["saliency", "variance"])
    np.testing.assert_array_equal(rows[0][0].plane, made["bright"][0].image[0])
    assert "saliency is the mean of 5 samples" in about
    assert "made for tests" in about


def test_models_must_stand_side_by_side():
    store = MemoryStore()
    with pytest.raises(InputError, match="MODEL: expected at least one run or model, found none"):
        make_examples([], store)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="MODEL: expected models of one size to stand side by side"):
        make_examples([bright_model(), bright_model(make_spec((8, 8)))], store)  # type: ignore[arg-type]

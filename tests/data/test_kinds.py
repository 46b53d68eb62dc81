"""Kinds of targets: what is declared is checked pixel by pixel, what is not so is refused and leaves nothing behind."""

import json
import shutil
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from folder_writer import H, W, cases, picture, save
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import as_source, make_cases, refused

from berdiff.cli.main import main
from berdiff.data import prepare as preparing
from berdiff.data.fitting import fit_labels
from berdiff.data.sources.folder import Options, read
from berdiff.data.store import Store
from berdiff.data.verify import verify
from berdiff.targets.kinds import implied_kind, label_values
from berdiff.targets.targets import Targets

NAMES = ("a", "b", "c", "d")
value_sets = st.lists(st.sets(st.integers(1, 6), min_size=1), min_size=1, max_size=4)


def holds(masks: np.ndarray, kind: str) -> bool:
    """The definition, one pixel of one rater at a time."""
    pixels = masks.transpose(0, 2, 3, 1).reshape(-1, masks.shape[1]).tolist()
    if kind == "exclusive":
        return all(sum(marked) <= 1 for marked in pixels)
    if kind == "nested":
        return all(marked == sorted(marked, reverse=True) for marked in pixels)
    return True


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from(("independent", "nested", "exclusive")))
def test_a_breach_is_found_where_there_is_one(seed, targets, kind):
    rng = np.random.default_rng(seed)
    masks = (rng.random((2, targets, 3, 4)) < rng.choice([0.02, 0.1, 0.5])).astype(np.uint8)
    if rng.random() < 0.5:
        masks = np.minimum.accumulate(masks, 1)
    assert (Targets(NAMES[:targets], kind).violation(masks) == "") == holds(masks, kind)


def test_a_breach_names_the_worst_pair_and_counts_its_pixels():
    """Against a count of pixels by hand, over the raters together."""
    rng = np.random.default_rng(0)
    masks = rng.integers(0, 2, (2, 3, 9, 9), np.uint8)
    masks[0, 2] = masks[0, 1]
    count, pair = max(
        (sum(int(a and b) for a, b in zip(masks[:, i].flat, masks[:, j].flat, strict=True)), (i, j))
        for i, j in combinations(range(3), 2)
    )
    a, b = (NAMES[k] for k in pair)
    assert Targets(NAMES[:3], "exclusive").violation(masks) == f"{count} pixels of both {a} and {b}"
    masks[:, 0] |= masks[:, 1]
    outside = sum(int(c > b) for b, c in zip(masks[:, 1].flat, masks[:, 2].flat, strict=True))
    assert Targets(NAMES[:3], "nested").violation(masks) == f"{outside} pixels of c outside b"


@settings(deadline=None, max_examples=60)
@given(value_sets, st.integers(0, 2**32 - 1))
def test_the_kind_of_sets_of_values_holds_for_every_label_map(sets, seed):
    """And no stronger one holds for a map with all values; through any resize and crop it stays."""
    values = {name: tuple(sorted(one)) for name, one in zip(NAMES, sets, strict=False)}
    kind, rng = implied_kind(values), np.random.default_rng(seed)
    every = np.resize(np.arange(7), (5, 8))

    def masks_of(labels: np.ndarray) -> np.ndarray:
        return np.stack([np.isin(labels, one) for one in values.values()]).astype(np.uint8)[None]

    assert holds(masks_of(every), kind)
    if kind == "independent" and len(sets) > 1:
        assert not holds(masks_of(every), "exclusive")
        identical = any(a == b for a, b in pairwise(sets))  # not declared nested, though they lie so
        assert identical or not holds(masks_of(every), "nested")
    size, how = tuple(rng.integers(1, 12, 2).tolist()), ("resize", "crop")[seed % 2]
    labels = rng.integers(0, 7, (6, 7), np.uint8)
    fitted = fit_labels(masks_of(labels), size, how)
    np.testing.assert_array_equal(fitted, masks_of(fit_labels(labels, size, how)))
    assert holds(fitted, kind)


def test_labels_are_names_and_values():
    assert label_values(("liver=1", "tumour=2")) == {"liver": (1,), "tumour": (2,)}
    assert label_values(("wt=4,1,2", "tc=1,4", "et=4")) == {"wt": (1, 2, 4), "tc": (1, 4), "et": (4,)}
    for wrong in ("a", "a=", "a=x", "=1", "a=0", "a=1,", "a=1,0", "a=-1", "a=1.5"):
        refused(
            lambda wrong=wrong: label_values((wrong,)), "--labels: expected different names and values", repr(wrong)
        )
    refused(lambda: label_values(("a=1,2", "b=2,1")), "found 'b=2,1'")


# --- sources ---


def label_map(root, n=3):
    """Pictures with values 0, 1, 2 and 4 in one mask each."""
    for i in range(n):
        save(root / "images" / f"c{i}.png", picture(i))
        save(root / "masks" / f"c{i}.png", np.random.default_rng(i).choice([0, 1, 2, 4], (H, W)).astype(np.uint8))
    return root


def test_a_folder_declares_its_kind(tmp_path):
    label_map(tmp_path)
    one_each = ("ncr=1", "ed=2", "et=4")
    regions = ("wt=1,2,4", "tc=1,4", "et=4")
    for labels, given_kind, expected in (
        (one_each, None, "exclusive"),
        (regions, None, "nested"),
        (("a=1,2", "b=2,4"), None, "independent"),
        (one_each, "independent", "independent"),
        (regions, "nested", "nested"),
        (("wt=1,2,4",), None, "independent"),
    ):
        assert read(tmp_path, Options(labels=labels, kind=given_kind)).kind == expected
    first = cases(tmp_path, labels=regions)[0].masks[0]
    labels = np.random.default_rng(0).choice([0, 1, 2, 4], (H, W))
    np.testing.assert_array_equal(first, [labels > 0, (labels == 1) | (labels == 4), labels == 4])


def test_targets_in_files_are_ordered_as_asked(tmp_path):
    """By name `core` comes before `whole`; nested ones are wanted outermost first."""
    save(tmp_path / "images" / "p.png", picture())
    whole = np.zeros((H, W), np.uint8)
    whole[2:9, 3:12] = 1
    save(tmp_path / "masks" / "ann" / "whole" / "p.png", whole)
    save(tmp_path / "masks" / "ann" / "core" / "p.png", np.roll(whole, 1, 0) & whole)
    assert read(tmp_path, Options()).targets == ("core", "whole")
    ordered = Options(targets=("whole", "core"), kind="nested")
    reading = read(tmp_path, ordered)
    assert (reading.targets, reading.kind) == (("whole", "core"), "nested")
    np.testing.assert_array_equal(next(reading.cases).masks[0, 0], whole)
    preparing.prepare("folder", tmp_path, tmp_path / "s", ordered)
    assert Store.open(tmp_path / "s").input_spec.kind == "nested"
    assert "expected each of core, whole once, found whole" in refused(
        lambda: read(tmp_path, Options(targets=("whole",)))
    )
    wrong = Options(kind="nested")
    sentence = refused(lambda: preparing.prepare("folder", tmp_path, tmp_path / "t", wrong))
    assert f"found {9} pixels of whole outside core" in sentence


def test_one_target_has_no_kind(tmp_path):
    preparing.prepare(
        "folder", label_map(tmp_path / "data"), tmp_path / "s", Options(foreground=(1, 2, 4), kind="nested")
    )
    assert Store.open(tmp_path / "s").input_spec.kind == "independent"


def disjoint(root):
    """In c2, five pixels of one rater belong to both targets."""
    for i, rater, (k, target) in product(range(3), ("ann", "bob"), enumerate(("left", "right"))):
        mask = np.zeros((H, W), np.uint8)
        mask[:, 8 * k : 8 * k + 8] = 1
        if (i, rater, target) == (2, "bob", "right"):
            mask[:5, 7] = 1
        save(root / "images" / f"c{i}.png", picture(i))
        save(root / "masks" / rater / target / f"c{i}.png", mask)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (Options(kind="exclusive"), ("c2", "5 pixels of both left and right")),
        (Options(kind="nested", targets=("left", "right")), ("c0", "192 pixels of right outside left")),
    ],
)
def test_what_breaks_its_kind_is_refused_and_nothing_is_written(tmp_path, options, named):
    disjoint(tmp_path / "data")
    refused(lambda: preparing.prepare("folder", tmp_path / "data", tmp_path / "s", options), *named)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_the_kind_is_shown(tmp_path, capsys):
    label_map(tmp_path / "data")
    command = ["data", "prepare", "folder", str(tmp_path / "data"), str(tmp_path / "s"), "--labels", "a=1", "b=2,4"]
    assert main(command) == 0
    line = "masks    up to 1 raters, targets a, b (exclusive: at most one per pixel)"
    assert line in capsys.readouterr().out
    assert main(["data", "info", str(tmp_path / "s")]) == 0
    assert line in capsys.readouterr().out
    assert main(["data", "info", str(tmp_path / "s"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "exclusive"


def test_verify_finds_masks_that_break_the_kind(tmp_path, monkeypatch):
    """Written as independent and declared exclusive afterwards, with checksums that fit."""
    two = [replace(case, masks=np.repeat(case.masks, 2, 1)) for case in make_cases(6)]
    monkeypatch.setattr(preparing, "find_source", lambda name: as_source(two, targets=("a", "b")))
    preparing.prepare("made", None, tmp_path / "s")
    assert verify(tmp_path / "s") == []
    for kind, count in (("nested", 0), ("exclusive", 1)):
        store = shutil.copytree(tmp_path / "s", tmp_path / kind)
        manifest = Store.open(store).manifest
        altered = replace(manifest, input_spec=replace(manifest.input_spec, kind=kind))
        (store / "manifest.json").write_text(altered.text(), newline="")
        found = verify(store)
        assert len(found) == count
        assert all("expected exclusive targets (at most one per pixel), found" in fault for fault in found)

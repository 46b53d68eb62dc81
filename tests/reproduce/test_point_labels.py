"""Names beside points: inside the axes, and not on each other where there is room."""

from itertools import combinations

import pytest
from matplotlib.figure import Figure

from reproduce.point_labels import name_points


@pytest.mark.parametrize(
    "points",
    [
        [(1, 1), (1, 1)],
        [(0, 0), (10, 0), (0, 10), (10, 10)],
        [(9.5, 5), (9.4, 5.1), (9.5, 5.3)],
        [(5, 5), (6, 5), (5.5, 5.2), (4, 5.1)],
    ],
    ids=["one place", "corners", "border", "row"],
)
def test_names_stay_inside_and_apart(points: list[tuple[float, float]]):
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    name_points(axes, [(x, y, f"a longer name {i}", "black") for i, (x, y) in enumerate(points)])
    figure.draw_without_rendering()
    inside, boxes = axes.get_window_extent(), [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == [f"a longer name {i}" for i in range(len(points))]
    for box in boxes:
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1
    for a, b in combinations(boxes, 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert min(width, height) <= 0.5, (a, b)

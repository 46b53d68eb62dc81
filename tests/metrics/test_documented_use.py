"""The Python in docs/metrics.md runs as it stands there."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")


def test_the_examples_run():
    blocks = [
        block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "berdiff.evaluation" not in block
    ]
    assert len(blocks) == 1  # what is left needs the folder of an evaluation
    names: dict = {}
    for block in blocks:
        exec(block, names)
    samples, masks = names["samples"], names["masks"]
    pairs, votes = names["metrics"].Pairs.of(samples, masks), names["metrics"].Votes.of(samples, masks)
    for method in re.findall(r"`(\w+)\(\)`", TEXT):
        assert hasattr(pairs, method) or hasattr(votes, method), method

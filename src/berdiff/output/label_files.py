"""What a label map's values mean, and how it looks as a picture."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from PIL import Image

from berdiff.data.input_spec import Kind
from berdiff.output.colours import legend, rgb_of, target_colours
from berdiff.targets.kinds import LABELS


def label_meaning(targets: Sequence[str], kind: Kind) -> dict[str, Any]:
    """What labels.json holds, of targets that fit into one map."""
    named = {str(value): name for value, name in enumerate(("background", *targets))}
    colours = dict(legend(targets))
    return {"kind": kind, "values": LABELS[kind], "labels": named, "colours": colours}


def palette_picture(labels: np.ndarray, targets: int) -> Image.Image:
    """The labels (H, W) as they are, shown in the targets' colours."""
    picture = Image.fromarray(labels)
    picture.putpalette([0, 0, 0, *chain.from_iterable(map(rgb_of, target_colours(targets)))])
    return picture

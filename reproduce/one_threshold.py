"""What needs no learning: one threshold of one channel, blurred, and its largest component. A network must beat it.

    python -m reproduce.one_threshold --data whole.zarr --split test --out evals/threshold

writes an evaluation like any other: `berdiff compare evals/MODEL evals/threshold` pairs them. The defaults are for the
whole tumour in FLAIR, whose best level on the training split of 57 BraTS patients is this one too.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from annotated_types import Ge, Gt, Lt
from scipy import ndimage
from torch import Tensor
from tyro.conf import OmitArgPrefixes

from berdiff import boundary
from berdiff.data.describe import expect
from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators
from berdiff.methods.base import SampleRequest, Segmenter, Terms
from berdiff.methods.config import MethodConfig


@dataclass(frozen=True)
class Threshold(MethodConfig):
    """One threshold of one channel."""

    method = "threshold"
    channel: str = "flair"  # name of the channel that is looked at
    level: Annotated[float, Gt(0), Lt(1)] = 150 / 255  # pixels above it are marked; values are in [0, 1]
    blur: Annotated[float, Ge(0)] = 1.0  # standard deviation in pixels of the Gaussian before it

    def build(self, spec: InputSpec) -> "OneThreshold":
        return OneThreshold(self, spec)


class OneThreshold(Segmenter):
    """All samples are the same mask. It has no weights, so it cannot be trained."""

    config: Threshold

    def __init__(self, config: Threshold, input_spec: InputSpec) -> None:
        super().__init__(config, input_spec, stride=1)
        channels, targets = input_spec.channels, input_spec.targets
        expect(config.channel in channels, "--channel", f"one of {', '.join(channels)}", config.channel)
        expect(len(targets) == 1, "--data", "a store of one target", f"{len(targets)} ({', '.join(targets)})")
        self.place = channels.index(config.channel)

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        raise RuntimeError("a threshold is not trained")

    def _sample(self, image: Tensor, n: int, request: SampleRequest) -> Tensor:
        masks = np.stack([self._mask(one) for one in image[:, self.place].cpu().numpy()])
        return torch.from_numpy(masks).to(image.device)[:, None, None].expand(-1, n, -1, -1, -1)

    def _mask(self, image: np.ndarray) -> np.ndarray:
        """(H, W) -> the largest 4-connected component above the level; nothing where nothing is."""
        above = ndimage.gaussian_filter(image, self.config.blur) > self.config.level
        pieces = np.zeros(above.shape, np.int32)
        ndimage.label(above, output=pieces)
        sizes = np.bincount(pieces.ravel())[1:]
        return pieces == 1 + sizes.argmax() if len(sizes) else above

    def images_per_pass(self, n: int) -> int:
        return self.masks_per_pass


def main(data: str, out: Path, split: str = "test", threshold: OmitArgPrefixes[Threshold] = Threshold()) -> None:
    """Evaluate one threshold on a split of a prepared store."""
    from berdiff.data.store import open_store
    from berdiff.evaluation.evaluate import evaluate
    from berdiff.evaluation.report import captions, tables_of
    from berdiff.evaluation.settings import EvaluationSettings
    from berdiff.inference.model import Model
    from berdiff.text_tables import show

    store = open_store(data)
    segmenter = threshold.build(store.input_spec)
    model = Model(segmenter, f"threshold {threshold.channel} {threshold.level:.3f}", store.input_spec, store.size)
    result = evaluate(model, store, out, EvaluationSettings(split=split, samples=1, device="cpu"))
    show(tables_of(result), captions(result))


if __name__ == "__main__":
    sys.exit(boundary.run("one_threshold", lambda: tyro.cli(main)))

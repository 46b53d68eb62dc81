"""What the configuration of an exported MONAI bundle (`bundle_files.py`) names: network, inputs, inferer, run.

`run` writes what `berdiff segment` writes, by the same code: the masks are the same to the bit.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from monai.inferers.inferer import Inferer
from torch import Tensor, nn
from torch.utils.data import Dataset

from berdiff.diffusion.random import sample_generators
from berdiff.errors import InputError
from berdiff.inference.inputs import find_inputs
from berdiff.inference.model import Model
from berdiff.inference.region import Region
from berdiff.inference.settings import SegmentSettings
from berdiff.output.formats import OutputSettings

if TYPE_CHECKING:
    from berdiff.jobs.run import Outcome


class Network(nn.Module):
    """Images `(B, C, H, W)` in [0, 1] -> `(B, K, H, W)`: the share of the samples that mark each pixel."""

    def __init__(self, model: Model, samples: int = 16, seed: int = 0) -> None:
        super().__init__()
        self.segmenter, self.samples, self.seed = model.segmenter, samples, seed

    @torch.no_grad()
    def forward(self, image: Tensor) -> Tensor:
        names = [f"image-{i}" for i in range(len(image))]
        generators = sample_generators(self.seed, names, self.samples, image.device)
        return self.segmenter.sample(image, self.samples, generators).float().mean(1)


class Samples(Inferer):
    """The masks of one image as `Model.segment` gives them: (n, K, [Z,] H, W), 0 and 1."""

    def __init__(self, model: Model, settings: SegmentSettings) -> None:
        super().__init__()
        self.model, self.settings = model, settings

    def __call__(self, inputs: Any, network: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """`network` is the model's own."""
        (result,) = self.model.results([self.model.open(inputs, self.settings)], self.settings)
        return torch.from_numpy(result.whole(result.samples))


class Inputs(Dataset[dict[str, Any]]):
    """The images and volumes of a folder or file, as the model wants to see them."""

    def __init__(self, model: Model, path: str, settings: SegmentSettings) -> None:
        self.model, self.settings = model, settings
        self.items = find_inputs([path], model.input_spec.channels, seed=settings.seed)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        opened = self.model.open(self.items[index], self.settings)
        return {"image": torch.from_numpy(opened.image), "name": opened.name}


class Segmentation:
    """Segment all inputs into a folder."""

    def __init__(self, dataset: Inputs, inferer: Samples, output_dir: str, write: Sequence[str] | None = None) -> None:
        self.dataset, self.inferer = dataset, inferer
        self.output = OutputSettings(Path(output_dir), None if write is None else tuple(write))

    def run(self) -> "Outcome":
        """What became of each input; InputError with the first sentence where one failed, after the others are done."""
        from berdiff.jobs.run import SegmentationJob

        job = SegmentationJob(self.inferer.model, self.inferer.settings, self.output)
        outcome = job.segment(self.dataset.items)
        if outcome.failed:
            raise InputError(f"{len(outcome.failed)} inputs failed: {next(iter(outcome.failed.values()))}")
        return outcome


def settings(
    samples: int = 16,
    seed: int = 0,
    center: Sequence[int] | None = None,
    box: Sequence[int] | None = None,
    slices: str | None = None,
    pad: bool = False,
) -> SegmentSettings:
    """As the options of `berdiff segment`."""
    around, inside = (None if of is None else tuple(map(int, of)) for of in (center, box))
    return SegmentSettings(samples, seed, region=Region(around, inside, slices, pad))

"""The Python side in three lines: `model = berdiff.load(...)`, `result = model.segment(image)`, `result.saliency`."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from berdiff.errors import InputError
from berdiff.inference.draw import Advance, Settings, draw
from berdiff.inference.inputs import Input, find
from berdiff.inference.intensity import Intensity
from berdiff.inference.reading import Opened, from_array, read
from berdiff.inference.region import Region
from berdiff.inference.result import Result
from berdiff.methods import folder
from berdiff.methods.sampler import choose_sampler


@dataclass(frozen=True, eq=False)
class Model:
    """A trained segmenter, and what an image must be like for it."""

    segmenter: Any
    name: str
    size: tuple[int, int]  # (H, W) that the network was trained at
    channels: tuple[str, ...]  # a name for each channel of the image
    targets: tuple[str, ...]
    device: str = "cpu"

    def segment(
        self,
        image: Any,
        n: int = 16,
        *,
        steps: int | Sequence[int] | None = None,
        sampler: Literal["ddim", "ddpm"] | None = None,
        posterior: Literal["soft", "marginal"] | None = None,
        last_step: Literal["threshold", "sample"] | None = None,
        latent: Literal["pixel", "shared"] | None = None,
        seed: int = 0,
        center: Sequence[int] | None = None,
        box: Sequence[int] | None = None,
        slices: tuple[int | None, int | None] | None = None,
        pad: bool = False,
        overlap: float = 0.25,
        window: tuple[float, float] | None = None,
        spacing: Sequence[float] | None = None,
        name: str = "image",
        batch_size: int = 16,
    ) -> Result:
        """n masks of one image or volume: a path, or an array or tensor (H, W), (Z, H, W), or with channels first.

        8-bit values are divided by 255; floats in [0, 1] are taken as they are; others by the model's own window or
        scale, or by `window`. `spacing` (mm along the last axes) and `name` (which seeds the noise) are for arrays;
        a file has its own. `center`, `box`, `slices` choose a region; `pad` lets a smaller image in. `steps` (how many,
        or the steps themselves), `sampler`, `posterior`, `last_step`, `latent`: None is the model's own.
        """
        region = Region(_whole(center), _whole(box), slices, pad)
        asked = {"rule": sampler, "posterior": posterior, "last_step": last_step, "latent": latent}
        chosen = choose_sampler(self.segmenter, steps, **asked)
        settings = Settings(n, chosen, seed, region, overlap, batch_size)
        opened = self.open(image, window, spacing, name, region)
        return self.results([opened], settings)[0]

    def open(
        self,
        image: Any,
        window: tuple[float, float] | None = None,
        spacing: Sequence[float] | None = None,
        name: str = "image",
        region: Region | None = None,
    ) -> Opened:
        """Read a path, an `Input` or an array as this model wants to see it."""
        intensity = Intensity.of(self.segmenter.about, window, region)
        if isinstance(image, str | Path):
            found = find([image], self.channels)
            if len(found) != 1:
                names = ", ".join(item.name for item in found[:3])
                raise InputError(f"{image}: expected one image or volume, found {len(found)} ({names}, ...)")
            image = found[0]
        if isinstance(image, Input):
            return read(image, len(self.channels), intensity, self.channels)
        if isinstance(image, torch.Tensor):
            image = image.detach().cpu().numpy()
        return from_array(image, len(self.channels), intensity, name, spacing)

    def results(
        self, images: Sequence[Opened], settings: Settings, advance: Advance = lambda slices: None
    ) -> list[Result]:
        """The results of opened images, drawn together."""
        samples = draw(self.segmenter, images, self.size, settings, self.device, advance)
        return [self._result(image, of, settings) for image, of in zip(images, samples, strict=True)]

    def _result(self, image: Opened, samples: np.ndarray, settings: Settings) -> Result:
        shape = image.image.shape[1:]
        ranges = settings.region.ranges(shape, self.size, image.what)
        whole = all(of == (0, length) for of, length in zip(ranges, shape, strict=True))
        notes = dict.fromkeys([*(self.segmenter.about.get("notes") or ()), *image.notes])  # each once, in order
        return Result(
            name=image.name,
            samples=samples,
            image=image.image,
            spacing=image.spacing,
            source=image.source,
            targets=self.targets,
            roi=None if whole else ranges,
            readers=image.readers,
            settings={"model": self.name, "weights_sha256": self.segmenter.weights_sha256, **plain(settings)},
            notes=tuple(notes),
        )


def load(path_or_name: str | Path, device: str = "cpu", size: tuple[int, int] | None = None) -> Model:
    """A model by its folder, the folder of its run, or the name of bundled weights.

    `size` (H, W) is what the network sees at once; without it, what the weights were trained at.
    """
    path = folder.resolve(path_or_name)
    segmenter = folder.load(path, device)
    about, network = segmenter.about, segmenter.config()["network"]
    size = size or about.get("size")
    if size is None:
        raise InputError(
            f"{path}: expected a model that says its size (about.size in config.json) or --size, found none"
        )
    stride = getattr(segmenter.network, "stride", 1)
    if min(size) < 1 or size[0] % stride or size[1] % stride:
        raise InputError(f"--size: expected height and width in multiples of {stride}, found {size[0]} {size[1]}")
    channels = _names(about.get("channels"), network["image_channels"], "channel", path)
    targets = _names(about.get("targets"), network["targets"], "target", path)
    resolved = path.resolve()
    name = resolved.parent.name if resolved.name == "model" else resolved.name
    return Model(segmenter, name, (size[0], size[1]), channels, targets, device)


def plain(settings: Settings) -> dict[str, Any]:
    """Settings that change the masks, in plain JSON types."""
    values = asdict(settings)
    del values["batch_size"]
    return values


def _whole(numbers: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(int(number) for number in numbers)


def _names(given: list[str] | None, count: int, what: str, path: Path) -> tuple[str, ...]:
    if given is None:
        return (what,) if count == 1 else tuple(f"{what}{i}" for i in range(count))
    if len(given) != count:
        raise InputError(f"{path}: expected {count} {what} names in about, found {len(given)}")
    return tuple(given)

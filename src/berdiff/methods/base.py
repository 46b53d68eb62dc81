"""The interface of every method: what trainer, evaluator, tables and viewer call; nothing else is reached for."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from berdiff.data.input_spec import InputSpec, Size
from berdiff.diffusion.bernoulli import check_mask
from berdiff.diffusion.random import Generators, Source, spawn_generators, uniform
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Callback
from berdiff.errors import InputError
from berdiff.methods.config import MethodConfig
from berdiff.networks.check_image import check_image
from berdiff.targets.kinds import Kind

Terms = Mapping[str, Tensor]
"""The terms of a training loss, each a scalar; "loss" is the one to minimise."""
PerSample = list[Source]
"""One generator per sample, image-major."""


@dataclass(frozen=True, eq=False)
class SampleRequest:
    """How the masks of one pass are to be drawn."""

    generators: PerSample
    sampler: Sampler | None = None  # None: a method without steps
    callback: Callback | None = None  # runs after each step


@dataclass(frozen=True)
class ParameterGroup:
    """Parameters that are optimised in their own way; what is None is as for all others."""

    prefixes: tuple[str, ...] = ("",)  # of the parameters' names
    rate: float | Callable[[int], float] = 1.0  # factor on the learning rate, or a function of the step (from 1)
    betas: tuple[float, float] | None = None
    weight_decay: float | None = None
    clip_norm: float | None = None  # each group is clipped by itself

    def rate_at(self, step: int) -> float:
        """The factor of the learning rate at a step."""
        return self.rate(step) if callable(self.rate) else self.rate


class Segmenter(nn.Module, ABC):
    """A method that is trained and sampled.

    Shapes: image `(B, C, *S)`, float in [0, 1]; masks `(B, R, K, *S)` of 0 and 1 with R raters and K targets; samples
    `(B, n, K, *S)` uint8. S are the spatial axes: (H, W), or (Z, H, W) where the input spec has three sizes.
    """

    raters: Literal["one", "all"] = "one"  # which masks of an image `loss` gets: a random rater's, or everyone's
    average_buffers: ClassVar[bool] = False  # whether the EMA averages buffers too, such as BatchNorm's statistics
    training_state: ClassVar[tuple[str, ...]] = ()  # beginnings of names of buffers that `--init` leaves fresh: a
    # training's own (steps counted, schedules), where others belong to the model
    masks_per_pass: int = 16  # no more go through the network at once, which bounds the memory of `sample`
    # a twin (`with_changes`) may run otherwise:
    precision: Literal["fp32", "bf16"] = "fp32"  # in which `sample` runs the network; draws are in float32 always
    compiled: bool = False  # whether the network is run by torch.compile, which rounds otherwise

    def __init__(self, config: MethodConfig, input_spec: InputSpec, stride: int) -> None:
        """`stride`: sides of images must be multiples of it."""
        super().__init__()
        self.config, self.input_spec, self.stride = config, input_spec, stride
        self.kind: Kind = config.kind_of(input_spec)  # every segmenter comes by here, so no other place has to ask
        self.sampler: Sampler | None = None  # None: a method without steps
        self.T: int | None = None
        self.weights_sha256: str | None = None  # of the file the weights were read from

    @property
    def targets(self) -> int:
        """K, the number of structures that are segmented at once."""
        return len(self.input_spec.targets)

    @abstractmethod
    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """With B generators, one per image, an image's random draws do not depend on the batch it is in."""

    @abstractmethod
    def _sample(self, image: Tensor, n: int, request: SampleRequest) -> Tensor:
        """n masks per image for one pass: `(B, n, K, *S)` of 0 and 1."""

    @torch.no_grad()
    def sample(
        self,
        image: Tensor,
        n: int,
        generators: Generators,
        sampler: Sampler | None = None,
        callback: Callback | None = None,
        tile: tuple[Size, float] | None = None,
    ) -> Tensor:
        """n masks per image; `sampler` None is the method's own, `callback` runs after each step of each pass.

        `tile`: the size and the overlap of the tiles by which larger images are sampled (`tiled`).
        With B * n generators, one per sample, a sample does not depend on the batch it is drawn in. Convolutions round
        differently for different batch sizes, so every pass then has the same shape: the last one is filled up.
        """
        if tile is not None:
            return self.tiled(*tile).sample(image, n, generators, sampler, callback)
        own = self._own_generators(image, n, generators)
        at_once = self.images_per_pass(n)
        rows: list[Tensor] = []
        # a training's own precision stays as it is
        rounding = nullcontext() if self.precision == "fp32" else torch.autocast(image.device.type, torch.bfloat16)
        for first in range(0, len(image), at_once):
            part = image[first : first + at_once]
            count = len(part)
            missing = 0 if isinstance(generators, torch.Generator) else at_once - count
            part = torch.cat([part, part[:1].expand(missing, *part.shape[1:])])
            of_part = own[first * n : (first + count) * n] + fillers(missing * n, image)
            with rounding:
                masks = self._sample(part, n, SampleRequest(of_part, sampler or self.sampler, callback))
            rows.append(masks[:count].to(torch.uint8))
        return torch.cat(rows)

    def with_changes(self, **changes: Any) -> Self:
        """A twin that shares the weights and differs in these attributes, as tiles or a precision; this stays as it
        is."""
        twin = copy(self)
        twin._modules = dict(self._modules)
        for name, value in changes.items():
            setattr(twin, name, value)
        return twin

    def images_per_pass(self, n: int) -> int:
        """How many images go through the network at once, n masks of each; fewer of them take as long."""
        return max(1, self.masks_per_pass // n)

    def tiled(self, size: Size, overlap: float) -> "Segmenter":
        """The same model, weights shared, for images larger than `size`."""
        raise InputError(
            f"expected an image (or --center) of {'x'.join(map(str, size))} pixels for the method "
            f"{self.config.method}, which cannot join tiles, found a larger one",
            "unsupported",
        )

    def check_sampler(self, sampler: Sampler) -> None:
        """Raise ValueError for a sampler that this method cannot follow."""
        raise ValueError(f"sampler: expected none for the method {self.config.method}, which has no steps")

    def parameter_groups(self) -> list[ParameterGroup]:
        """Every parameter belongs to the first group with a prefix of its name."""
        return [ParameterGroup()]

    def after_step(self, terms: Terms) -> None:
        """Called once per optimiser step that was not skipped, with terms averaged over parts and processes.

        The only place where state outside gradients moves; it lives in buffers, so checkpoints carry it.
        """

    def check_batch(self, image: Tensor, masks: Tensor) -> None:
        """ValueError where shapes do not fit or masks hold other values than 0 and 1."""
        self._check_image(image)
        R, K = masks.shape[1:3] if masks.ndim > 2 else (0, 0)
        if masks.shape != (len(image), R, K, *image.shape[2:]) or not R or self.targets != K:
            expected = f"(B, R, K, {self._axes}) with at least one rater and {self.targets} target(s)"
            about = f"for images of shape {tuple(image.shape)}, found {tuple(masks.shape)}"
            raise ValueError(f"masks: expected {expected} {about}")
        if masks.device.type == "cpu":  # on an accelerator, looking would stall the queue
            check_mask(masks)

    def _check_image(self, image: Tensor) -> None:
        if image.ndim != 2 + len(self.input_spec.size):
            raise ValueError(f"image: expected (B, C, {self._axes}), found {tuple(image.shape)}")
        check_image(image, len(self.input_spec.channels), self.stride)

    @property
    def _axes(self) -> str:
        return {2: "H, W", 3: "Z, H, W"}[len(self.input_spec.size)]

    def _own_generators(self, image: Tensor, n: int, generators: Generators) -> PerSample:
        """One generator for each of n samples of each image, after a look at what `sample` was given."""
        self._check_image(image)
        if n < 1:
            raise ValueError(f"n: expected at least 1 sample, found {n}")
        count = len(image) * n
        spawned = isinstance(generators, torch.Generator)
        own: PerSample = [*(spawn_generators(generators, count) if spawned else generators)]
        if len(own) != count:
            expected = f"one, or one for each of {len(image)} x {n} samples"
            raise ValueError(f"generators: expected {expected}, found {len(own)}")
        return own


def pick_raters(masks: Tensor, count: int, generators: Generators) -> Tensor:
    """masks `(B, R, K, *S)` -> `(B, count, K, *S)`: the raters in turn, from a random one on."""
    B, R = masks.shape[:2]
    first = (uniform((B, 1), generators, torch.empty(0, device=masks.device)) * R).long()
    rater = (first + torch.arange(count, device=masks.device)) % R
    return masks[torch.arange(B, device=masks.device).unsqueeze(1), rater]


def fillers(count: int, image: Tensor) -> PerSample:
    """Generators for masks that only fill up a pass and are thrown away."""
    return [torch.Generator(image.device) for _ in range(count)]

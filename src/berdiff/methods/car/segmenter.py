"""Adversarial training in one loss and one backward pass: each net has its own parameters and its own group.

Nets whose losses reach no other net's weights can learn in one step of one optimiser: the gradients are those of
separate passes. That is simultaneous descent, every net against the others as they were before the step.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.func import functional_call  # pyright: ignore[reportUnknownVariableType]

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators, normal
from berdiff.errors import InputError
from berdiff.methods.base import ParameterGroup, SampleRequest, Terms, pick_raters
from berdiff.methods.car.network import PRESETS, Calibrator, Discriminator, Features, Refiner
from berdiff.methods.families.encoded import EncodedSegmenter, Shape

if TYPE_CHECKING:
    from berdiff.methods.car import CAR

CLAMP = 1e-3
"""Probabilities inside the calibration loss stay this far from 0 and 1, as CAR's authors have it."""


class CarSegmenter(EncodedSegmenter):
    """F learns each pixel's probability; G must draw masks that D takes for a rater's and whose mean is F's map."""

    config: "CAR"

    def __init__(self, config: "CAR", input_spec: InputSpec) -> None:
        sizes = PRESETS[config.preset]
        super().__init__(config, input_spec, sizes.stride)
        C, K = len(input_spec.channels), len(input_spec.targets)
        self.raters = "one" if config.masks_per_image == 1 else "all"
        self.f = Calibrator(C, K, sizes.calibrator)
        self.g = Refiner(C, K, sizes.refiner, config.dims)
        self.d = Discriminator(C, K, sizes.discriminator, input_spec.size, sizes.halvings)

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """Of an image: the first rater, then z of each of G's masks."""
        self.check_batch(image, masks)
        config, M = self.config, self.config.samples
        y = pick_raters(masks, config.masks_per_image, generators).float()
        z = self._noise(len(image), M, generators)

        logits = self.f(image).float()
        ce = F.binary_cross_entropy_with_logits(logits.unsqueeze(1).expand_as(y), y)

        probability = logits.detach().sigmoid()
        drawn = self.g.decode(self.g.encode(image, probability), z).float().sigmoid()
        cal = calibration(drawn.mean(1), probability)
        adv = generator_loss(frozen(self.d)(image.repeat_interleave(M, 0), drawn.flatten(0, 1)))

        real, r1 = score_and_slope(self.d, image, y[:, 0])
        fake = self.d(image, drawn[:, 0].detach())
        d = discriminator_loss(real, fake)
        loss = ce + config.lambda_adv * adv + config.lambda_cal * cal + d + config.lambda_r1 * r1
        terms = {"loss": loss, "ce": ce, "adv": adv, "cal": cal, "d": d, "r1": r1}
        return {**terms, "d_accuracy": accuracy(real, fake)}

    def parameter_groups(self) -> list[ParameterGroup]:
        """F and G at the learning rate itself; D at its own, and not at all while it rests."""
        if any(isinstance(p, DTensor) for p in self.parameters()):
            raise InputError("--engine.strategy: expected auto or ddp for the method car, found fsdp", "unsupported")
        config = self.config

        def rate_d(step: int) -> float:
            return config.rate_d if learns(step, config.d_steps, config.d_period) else 0.0

        rates = {"f.": 1.0, "g.": 1.0, "d.": rate_d}
        return [ParameterGroup((name,), rate, betas=config.betas) for name, rate in rates.items()]

    def encode(self, image: Tensor) -> Features:
        return self.g.encode(image, self.f(image).float().sigmoid())

    def draw(self, features: Features, shape: Shape, request: SampleRequest) -> Tensor:
        """A pixel is marked where it is more probable than not, given z."""
        return self.g.decode(features, self._noise(shape[0], shape[1], request.generators)) > 0

    def _noise(self, B: int, N: int, generators: Generators) -> Tensor:
        return normal((B, N, self.config.dims), generators, next(self.parameters()))


def calibration(mean: Tensor, probability: Tensor) -> Tensor:
    """KL(mean of G's masks || F) of each pixel's Bernoulli, mean over pixels."""
    p, q = (value.clamp(CLAMP, 1 - CLAMP) for value in (mean, probability))
    return (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()


# --- parts that any adversarial method needs -------------------------------------------------------------------------


def frozen(module: nn.Module) -> Callable[..., Tensor]:
    """The module with its weights of now as constants: gradients pass to its inputs and reach none of its weights."""
    weights = {name: value.detach() for name, value in module.named_parameters()}

    def call(*inputs: Tensor) -> Tensor:
        return functional_call(module, weights, inputs)

    return call


def generator_loss(fake: Tensor) -> Tensor:
    """-log D(fake), the non-saturating loss; `fake` are D's logits."""
    return F.softplus(-fake).mean()


def discriminator_loss(real: Tensor, fake: Tensor) -> Tensor:
    """-log D(real) - log(1 - D(fake)) of logits."""
    return F.softplus(-real).mean() + F.softplus(fake).mean()


def accuracy(real: Tensor, fake: Tensor) -> Tensor:
    """The share of both that the logits tell right."""
    return ((real > 0).float().mean() + (fake < 0).float().mean()) / 2


def score_and_slope(discriminator: Callable[..., Tensor], *real: Tensor) -> tuple[Tensor, Tensor]:
    """D's logits of real inputs, and R1: their squared slope in the inputs, summed over pixels, mean over images.

    In float32 outside autocast: the slope is differentiated once more, and few bits do not survive that.
    """
    with torch.autocast(real[0].device.type, enabled=False):
        inputs = [value.detach().float().requires_grad_() for value in real]
        score = discriminator(*inputs)
        slopes = torch.autograd.grad(score.sum(), inputs, create_graph=True)
        return score, torch.stack([slope.square().sum() for slope in slopes]).sum() / len(score)


def learns(step: int, steps: int, period: int) -> bool:
    """Whether a net that learns in the first `steps` of every `period` steps does so at this one (from 1)."""
    return (step - 1) % period < steps

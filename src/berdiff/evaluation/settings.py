"""What an evaluation can be asked: the options of `berdiff evaluate` and of Python alike. No torch here."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from annotated_types import Ge

from berdiff.diffusion.sampler import Sampler
from berdiff.schema import Settings

Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """what is evaluated; the same settings, model and data give the same figures, in one go or resumed"""

    split: str = "test"  # train, val, test or all
    samples: Count = 16  # masks per image
    sampler: Annotated[Sampler | None, tyro.conf.Suppress] = None  # None: the model's own
    seed: int = 0  # seed of the samples, of the subset and of the bootstrap
    batch_size: Count = 16  # images sampled together
    crop: Count | None = None  # side of the centre crop in pixels; default: what the model was trained with
    limit: Count | None = None
    """number of cases: the first of one seeded order, so smaller subsets lie in larger ones; default: all"""
    save_samples: bool = False  # keep the masks in OUT/samples, eight pixels per byte
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

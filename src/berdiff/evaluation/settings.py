"""What an evaluation can be asked: the options of `berdiff evaluate` and of Python alike. No torch here."""

from dataclasses import dataclass
from typing import Annotated

import tyro
from annotated_types import Ge

from berdiff.diffusion.sampler import Sampler
from berdiff.inference.settings import FromPool, SetRule
from berdiff.schema import Settings

Count = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class EvaluationSettings(FromPool, Settings):
    """what is evaluated; the same settings, model and data give the same figures, in one go or resumed"""

    split: str = "test"  # train, val, test or all
    samples: Count = 16  # masks per image
    set: SetRule = "independent"
    """the masks are independent samples; or chosen out of a pool of samples, spread evenly by area (systematic), or
    jointly, so that they stand best for all (representative)"""
    pool: Count = 64
    """samples to choose a set from; GED, HM-IoU and D_max are of the set, all else of the whole pool"""
    sampler: Annotated[Sampler | None, tyro.conf.Suppress] = None  # None: the model's own
    seed: int = 0  # seed of the samples, of the subset and of the bootstrap
    batch_size: Count = 16  # images sampled together
    crop: Count | None = None
    """side in pixels of the centre that the model sees; figures are on the whole image. Default: as in its training"""
    limit: Count | None = None
    """number of cases: the first of one seeded order, so smaller subsets lie in larger ones; default: all"""
    save_samples: bool = False  # keep the masks in OUT/samples, eight pixels per byte
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def check(self) -> None:
        self.check_pool()

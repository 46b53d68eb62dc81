"""What an evaluation can be asked: the options of `berdiff evaluate` and of Python alike. No torch here."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro
from annotated_types import Ge

from berdiff.data.input_spec import Sides
from berdiff.diffusion.sampler import Sampler
from berdiff.errors import InputError
from berdiff.inference.settings import FromPool, SetRule
from berdiff.schema import Count, Settings

OF_VOLUMES = ("coherence", "least_slices")


@dataclass(frozen=True)
class EvaluationSettings(FromPool, Settings):
    """what is evaluated; the same settings, model and data give the same figures, in one go or resumed"""

    split: str = "test"  # train, val, test or all
    samples: Count = 16  # masks per image
    set: SetRule = "independent"
    """how the masks are chosen:
    - independent: random samples
    - systematic: spread evenly by area over a pool of samples
    - representative: chosen jointly to represent the pool"""
    pool: Count = 64
    """samples to choose a set from; GED, HM-IoU and D_max are of the set, all else of the whole pool"""
    sampler: Annotated[Sampler | None, tyro.conf.Suppress] = None  # None: the model's own
    seed: Annotated[int, Ge(0)] = 0  # seed of the samples, of the subset and of the bootstrap
    batch_size: Count = 16  # images sampled together
    crop: Sides | None = None
    """side in pixels of the centre that the model sees, or a side for each axis; figures are on the whole image.
    Default: as in its training"""
    by: Literal["slice", "volume"] = "slice"
    """what a case is: a slice, or a volume (such as a nodule) as a whole, all its slices in the store together"""
    coherence: Annotated[float | None, Ge(0), tyro.conf.arg(metavar="MM")] = None
    """with --by volume: correlation length along z in mm, as in a segmentation; a store does not
    know how far apart its slices are, so neighbours count as 1.25 mm"""
    least_slices: Count | None = None  # with --by volume: leave out volumes of fewer slices; default: none
    limit: Count | None = None
    """number of cases: the first of one seeded order, so smaller subsets lie in larger ones; default: all"""
    save_samples: bool = False  # keep the masks in OUT/samples, eight pixels per byte
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...

    def check(self) -> None:
        self.check_pool()
        for name in OF_VOLUMES:
            if self.by == "slice" and (found := getattr(self, name)) is not None:
                raise InputError(f"{name}: {found:g} needs --by volume", "conflict")

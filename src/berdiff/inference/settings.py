"""How to segment: what the command line and Python ask for. No torch here."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Lt
from tyro.conf import OmitArgPrefixes, arg

from berdiff import schema
from berdiff.errors import InputError
from berdiff.inference.region import Region
from berdiff.methods.sampling import SamplerOptions

SetRule = Literal["independent", "systematic", "representative"]
Precision = Literal["fp32", "bf16"]


class FromPool:
    """Settings by which a set of masks is chosen out of a pool of samples."""

    samples: int
    set: SetRule
    pool: int

    @property
    def drawn(self) -> int:
        """How many samples are drawn of an image; independent ones are their own pool."""
        return self.samples if self.set == "independent" else self.pool

    def check_pool(self) -> None:
        if self.drawn < self.samples:
            expected = f"at least {self.samples}, the masks to choose from it"
            raise InputError(f"pool: expected {expected}, found {self.pool}")


@dataclass(frozen=True)
class SegmentSettings(FromPool, schema.Settings):
    """`batch_size` and the order of images change nothing in the masks."""

    samples: Annotated[int, Ge(1)] = 16  # masks per image
    seed: int = 0  # seed of the samples: a mask depends on it, the input's name, the slice and the sample's number only
    set: SetRule = "independent"
    """independent samples; or spread evenly by area over a pool of samples; or chosen jointly to represent the pool"""
    pool: Annotated[int, Ge(1)] = 64
    """samples in the pool of such a set; probabilities, maps and measurements are of all of them.
    Memory: a byte per sample, target and pixel, in a volume those of all its slices; time grows alike"""
    sampler: OmitArgPrefixes[SamplerOptions] = field(default_factory=SamplerOptions)
    region: OmitArgPrefixes[Region] = field(default_factory=Region)
    window: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """the values that become 0 and 1, such as Hounsfield units -1000 400; default: the model's own rule"""
    overlap: Annotated[float, Ge(0), Lt(1)] = 0.25
    """share by which neighbouring tiles overlap, where an image is larger than the network"""
    batch_size: Annotated[int, Ge(1)] = 16  # images or slices sampled together

    def check(self) -> None:
        self.check_pool()
        if self.window is not None and not self.window[0] < self.window[1]:
            low, high = self.window
            raise InputError(f"window: expected a lower and a higher value, found {low:g} {high:g}")


def option(place: str) -> str:
    """A setting as it is called on the command line."""
    return f"--{place.rpartition('.')[2].replace('_', '-')}"

"""How to segment: what the command line and Python ask for. No torch here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Lt
from tyro.conf import OmitArgPrefixes, arg

from berdiff import schema
from berdiff.data.input_spec import Intensity
from berdiff.errors import InputError
from berdiff.inference.region import Region
from berdiff.methods.sampling import SamplerOptions

SetRule = Literal["independent", "systematic", "representative"]
Precision = Literal["fp32", "bf16"]


COHERENCE = 160.0  # mm, chosen on readers of LIDC-IDRI (docs/results/volumes.md)
NEIGHBOURS = 1.25  # mm between slices where it is not known: the median of LIDC-IDRI


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
        """Refuse a pool that is smaller than the set chosen from it."""
        if self.drawn < self.samples:
            expected = f"at least {self.samples}, the masks to choose from it"
            raise InputError(f"pool: expected {expected}, found {self.pool}", "conflict")


@dataclass(frozen=True)
class SegmentSettings(FromPool, schema.Settings):
    """`batch_size` and the order of images change nothing in the masks."""

    samples: Annotated[int, Ge(1)] = 16  # masks per image
    seed: Annotated[int, Ge(0)] = 0
    """seed of the samples: a mask depends on it, the input's name, the slice and the sample's number alone"""
    set: SetRule = "independent"
    """how the masks are chosen:
    - independent: random samples
    - systematic: spread evenly by area over a pool of samples
    - representative: chosen jointly to represent the pool"""
    pool: Annotated[int, Ge(1)] = 64
    """samples in the pool of such a set; probabilities, maps and measurements are of all of them.
    Memory: a byte per sample, target and pixel, in a volume those of all its slices; time grows alike"""
    sampler: OmitArgPrefixes[SamplerOptions] = field(default_factory=SamplerOptions)
    region: OmitArgPrefixes[Region] = field(default_factory=Region)
    window: Annotated[tuple[float, float] | None, arg(metavar="LOW HIGH")] = None
    """the values that become 0 and 1, such as Hounsfield units -1000 400; default: the model's own rule"""
    coherence: Annotated[float, Ge(0), arg(metavar="MM")] = COHERENCE
    """correlation length along z in mm: larger keeps a sample consistent from slice to slice, 0 samples every slice
    independently"""
    overlap: Annotated[float, Ge(0), Lt(1)] = 0.25
    """share by which neighbouring tiles overlap, where an image is larger than the network"""
    force: bool = False
    """segment what the model was not trained on, such as another modality or a whole scan, with a warning"""
    allow_gaps: bool = False
    """of a DICOM series with missing slices, interpolate them; of two slices at one place, take one"""
    batch_size: Annotated[int, Ge(1)] = 16  # images or slices sampled together

    def check(self) -> None:
        self.check_pool()
        if self.window is not None:
            Intensity("window", self.window).check()


@dataclass(frozen=True)
class FindingOptions(schema.Settings):
    """Places to segment, several per input, each by itself."""

    centers: Annotated[Path | None, arg(metavar="FILE.csv")] = None
    """segment a region around each place of this table: columns case (an input's name), z, y, x, and perhaps finding (a
    name); z is empty for a 2D image"""
    centers_unit: Literal["voxel", "mm"] = "voxel"
    """of the table: places as of --center; or mm in space, of NIfTI as its affine has them (right, front, up), of DICOM
    in patient coordinates (left, back, up)"""
    candidates: Annotated[Path | None, arg(metavar="PATH")] = None
    """segment a region around each connected piece of a mask on the input's grid: a NIfTI file, or of several inputs a
    folder of masks called as they are"""

    def check(self) -> None:
        if self.centers is not None and self.candidates is not None:
            raise InputError("centers: expected no --candidates beside it, found both", "conflict")
        if self.centers is None and self.centers_unit != "voxel":
            raise InputError("centers_unit: expected --centers beside it, found none", "conflict")


def option(place: str) -> str:
    """A setting as it is called on the command line."""
    return f"--{place.rpartition('.')[2].replace('_', '-')}"

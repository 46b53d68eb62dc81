"""CAR, calibrated adversarial refinement (Kassapis et al. 2021): a calibrated map, and a GAN whose mean must be it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Lt

from berdiff.data.input_spec import InputSpec
from berdiff.errors import InputError
from berdiff.methods.config import MethodConfig

Share = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True)
class CAR(MethodConfig):
    """The defaults are the authors', as far as docs/methods/car.md says."""

    method: ClassVar[str] = "car"

    preset: Literal["tiny", "small", "paper"] = "small"  # sizes of the three nets
    dims: Annotated[int, Ge(1)] = 8  # of z
    samples: Annotated[int, Ge(1)] = 5  # masks of G per image and step, over which calibration takes the mean
    masks_per_image: Annotated[int, Ge(1)] = 1
    """raters' masks that F learns from, per image; above 1 all raters take part. D sees one of them"""
    lambda_adv: Annotated[float, Ge(0)] = 10.0  # weight of the adversarial loss of G
    lambda_cal: Annotated[float, Ge(0)] = 5.0  # weight of the calibration loss of G
    lambda_r1: Annotated[float, Ge(0)] = 0.625  # weight of R1, the squared slope of D's logit at raters' masks
    rate_d: Annotated[float, Gt(0)] = 0.05  # factor on the learning rate for D
    d_steps: Annotated[int, Ge(1)] = 50  # D learns in so many steps ...
    d_period: Annotated[int, Ge(1)] = 250  # ... of every so many, and rests in the others
    betas: tuple[Share, Share] = (0.5, 0.99)  # of AdamW, for all three nets

    def check(self) -> None:
        if self.d_steps > self.d_period:
            raise InputError(f"d_steps: expected at most d_period = {self.d_period}, found {self.d_steps}", "conflict")

    def build(self, spec: InputSpec):
        from berdiff.methods.car.segmenter import CarSegmenter

        return CarSegmenter(self, spec)

"""How to walk back from noise: the one description of a sampler, for every command, file and table. No torch here."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, get_args, get_origin, get_type_hints

from typing_extensions import Doc

Posterior = Literal["soft", "marginal"]
Spacing = Literal["uniform", "quadratic"]
LastStep = Literal["threshold", "sample"]
Noise = Literal["independent", "shared"]
Views = Literal[1, 2, 4]
_ONLY = Doc("this process has one choice")


@dataclass(frozen=True)
class Sampler:
    """Steps, update rule and noise. Without a recipe: the paper's ten uniform steps of DDIM, the last thresholded.

    All that any process can follow, by the names that flags and files have; a process with fewer choices narrows them.
    """

    process: ClassVar[str] = ""  # whose choices these are, for errors

    steps: Annotated[int | tuple[int, ...], Doc("number of steps, or the steps t themselves, falling")] = 10
    rule: Annotated[Literal["ddim", "ddpm"], Doc("update rule of a step")] = "ddim"
    posterior: Annotated[Posterior, Doc("with ddpm: the paper's soft form, or the exact marginal")] = "soft"
    sigma: Annotated[float, Doc("with ddim: sigma as a share of its maximum; eta of a Gaussian kernel")] = 1.0
    spacing: Annotated[Spacing, Doc("of the steps, where only their number is given")] = "uniform"
    last_step: Annotated[LastStep, Doc("threshold the last estimate (paper), or sample it")] = "threshold"
    noise: Annotated[Noise, Doc("one random number per pixel (paper), or one per mask")] = "independent"
    # not of the process: what is drawn from, and what is drawn
    views: Annotated[Views, Doc("mirrored views of the image; each mask is drawn from a random one")] = 1
    smallest: Annotated[int, Doc("with a hurdle: smallest mask in pixels (1: no minimum)")] = 1

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            allowed, found = get_args(hint), getattr(self, name)
            if get_origin(hint) is Literal and found not in allowed:
                if len(allowed) == 1:
                    raise ValueError(f"{name}: expected {allowed[0]}{self.process}, found {found}")
                raise ValueError(f"{name}: expected one of {', '.join(map(str, allowed))}, found {found!r}")
        if self.smallest < 1:
            raise ValueError(f"smallest: expected 1 or more pixels, found {self.smallest}")
        if not 0 <= self.sigma <= 1:
            raise ValueError(f"sigma: expected a share of the maximum in [0, 1], found {self.sigma}")

    @property
    def count(self) -> int:
        """How many steps there are."""
        return self.steps if isinstance(self.steps, int) else len(self.steps)


# pyright: reportIncompatibleVariableOverride=false
@dataclass(frozen=True)
class GaussianSampler(Sampler):
    """DDIM (sigma is its eta) or DDPM, with a fresh number per pixel."""

    process: ClassVar[str] = " with a Gaussian kernel"

    posterior: Annotated[Literal["soft"], _ONLY] = "soft"
    last_step: Annotated[Literal["threshold"], _ONLY] = "threshold"
    noise: Annotated[Literal["independent"], _ONLY] = "independent"
    smallest: Annotated[Literal[1], _ONLY] = 1


@dataclass(frozen=True)
class FlowSampler(GaussianSampler):
    """All chance lies in y_T. DDIM without noise IS Euler's rule here:
    a_s y0_hat + (1 - a_s) eps_hat = y_t + (a_s - a_t) v."""

    process: ClassVar[str] = " with flow matching"

    rule: Annotated[Literal["ddim"], _ONLY] = "ddim"
    sigma: Annotated[float, _ONLY] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma:
            raise ValueError(f"sigma: expected 0{self.process}, found {self.sigma}")


def time_grid(T: int, steps: int | tuple[int, ...], spacing: str = "uniform") -> tuple[int, ...]:
    """Falling t, ending in 0: `steps` of them from T down (quadratic: denser near 0), or the given ones."""
    if isinstance(steps, int):
        if not 1 <= steps <= T:
            raise ValueError(f"steps: expected 1 <= steps <= T = {T}, found {steps}")
        u = [1 - i / steps for i in range(steps + 1)]
        grid = [round(T * (v if spacing == "uniform" else v * v)) for v in u]
        for i in range(steps, 0, -1):  # rounding must not merge two steps
            grid[i - 1] = max(grid[i - 1], grid[i] + 1)
        return tuple(grid)
    if not steps or steps[0] > T or steps[-1] < 1 or any(s >= t for t, s in pairwise(steps)):
        raise ValueError(f"steps: expected falling values in 1..T = {T}, found {list(steps)}")
    return (*steps, 0)

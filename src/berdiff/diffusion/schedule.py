"""Noise schedules: beta_t, alpha_t and alpha_bar_t for t = 1..T, with alpha_bar[0] = 1.

Time is 1-based and a step is always the explicit pair (t, s), s < t: no stride is hidden in any state, and index 0
means "no noise" instead of wrapping round to the last entry.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

# The clip of Nichol and Dhariwal 2021: no single step forgets everything, and alpha_bar stays above 0.
MAX_BETA = 0.999

Time = int | Tensor
"""A step index in 0..T: one for all masks, or one per mask as an integer tensor of the leading dimensions."""
Coefficient = float | Tensor
"""A number that goes by the step: a plain float where the step is an int, as in sampling, so that no step looks up a
tensor; else float64, one per mask."""


@dataclass(frozen=True, eq=False)
class NoiseSchedule:
    """alpha_bar `(T + 1,)` in float64, decreasing from exactly 1."""

    alpha_bar: Tensor
    name: str = "custom"

    def __post_init__(self) -> None:
        if self.alpha_bar.dtype != torch.float64:  # 1 - alpha_bar_1 has four digits left in float32
            raise ValueError(f"alpha_bar: expected float64, found {self.alpha_bar.dtype}")
        if self.alpha_bar.ndim != 1 or len(self.alpha_bar) < 2:
            raise ValueError(f"alpha_bar: expected a vector of T + 1 >= 2 values, found {tuple(self.alpha_bar.shape)}")
        steps = self.alpha_bar.diff()
        if self.alpha_bar[0] != 1 or self.alpha_bar[-1] < 0 or not bool((steps < 0).all()):
            raise ValueError("alpha_bar: expected values that start at exactly 1 and strictly decrease to at least 0")

    @property
    def T(self) -> int:
        """How many steps there are."""
        return len(self.alpha_bar) - 1

    @cached_property
    def _floats(self) -> list[float]:
        return self.alpha_bar.tolist()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    @cached_property
    def alpha(self) -> Tensor:
        """alpha_t = alpha_bar_t / alpha_bar_{t-1} `(T + 1,)`; entry 0 is 1 and belongs to no step."""
        return torch.cat([self.alpha_bar[:1], self.alpha_bar[1:] / self.alpha_bar[:-1]])

    @cached_property
    def beta(self) -> Tensor:
        """beta_t = 1 - alpha_t `(T + 1,)`; entry 0 is 0."""
        return 1 - self.alpha

    def check(self, t: Time, s: Time = 0) -> None:
        """Raise unless 0 <= s < t <= T. Tensors on an accelerator are trusted: looking would stall the queue."""
        if isinstance(t, int) and isinstance(s, int):
            fits = 0 <= s < t <= self.T
        elif any(isinstance(v, Tensor) and v.device.type != "cpu" for v in (t, s)):
            return
        else:
            t_, s_ = torch.as_tensor(t), torch.as_tensor(s)
            if t_.is_floating_point() or s_.is_floating_point():
                raise ValueError(f"t, s: expected integers, found {t_.dtype} and {s_.dtype}")
            fits = bool(((s_ >= 0) & (s_ < t_) & (t_ <= self.T)).all())
        if not fits:
            raise ValueError(f"t, s: expected 0 <= s < t <= T = {self.T}, found t = {_brief(t)}, s = {_brief(s)}")

    def at(self, t: Time, like: Tensor) -> Any:
        """alpha_bar_t, a `Coefficient`: of a tensor on the device of `like`, broadcasting against it from the left."""
        if isinstance(t, int):
            return self._floats[t]
        return _broadcast(self.alpha_bar.to(like.device)[t.to(like.device)], like)

    def pair(self, t: Time, s: Time, like: Tensor) -> tuple[Any, Any, Any]:
        """(a, b, alpha_bar_t) with a = alpha_bar_t / alpha_bar_s and b = alpha_bar_s: all that a step t -> s needs.

        In float64: near t = 0 they are almost 1, and 1 - a would be noise in float32. Do the arithmetic of coefficients
        first and `cast` the results: they are one number per mask, not one per pixel.
        """
        self.check(t, s)
        alpha_bar_t, b = self.at(t, like), self.at(s, like)
        return alpha_bar_t / b, b, alpha_bar_t


def cast(like: Tensor, *coefficients: Any) -> tuple[Any, ...]:
    """Coefficients in the precision of the masks they multiply, but never less than float32."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    if dtype == like.dtype:
        return tuple(value.to(dtype) if isinstance(value, Tensor) else value for value in coefficients)
    # a float, or a tensor without dimensions, would take on the precision of masks in half
    wide = (torch.as_tensor(value, dtype=dtype, device=like.device) for value in coefficients)
    return tuple(value if value.ndim else value.expand([1] * like.ndim) for value in wide)


def sqrt(value: Any) -> Any:
    """Of a coefficient."""
    return value.sqrt() if isinstance(value, Tensor) else math.sqrt(value)


def log1p(value: Any) -> Any:
    """Of a coefficient."""
    return value.log1p() if isinstance(value, Tensor) else math.log1p(value)


def _broadcast(value: Tensor, like: Tensor) -> Tensor:
    if value.shape != like.shape[: value.ndim]:
        raise ValueError(
            f"t: expected one step, or one for each of the leading dimensions of masks of shape {tuple(like.shape)}, "
            f"found shape {tuple(value.shape)}"
        )
    return value.reshape(value.shape + (1,) * (like.ndim - value.ndim))


def _brief(t: Time) -> str:
    return str(t) if not isinstance(t, Tensor) or t.numel() <= 4 else f"a tensor in {int(t.min())}..{int(t.max())}"


def _from_beta(beta: Tensor, name: str) -> NoiseSchedule:
    alpha_bar = torch.cumprod(1 - beta.clamp(max=MAX_BETA), 0)
    return NoiseSchedule(torch.cat([torch.ones(1, dtype=torch.float64), alpha_bar]), name)


def linear(T: int = 1000) -> NoiseSchedule:
    """The paper's: beta from 1e-4 to 0.02 at T = 1000; scaled by 1000 / T otherwise, to end as noisy."""
    _check_length(T)
    scale = 1000 / T
    return _from_beta(torch.linspace(scale * 1e-4, scale * 0.02, T, dtype=torch.float64), "linear")


def cosine(T: int = 1000) -> NoiseSchedule:
    """Nichol and Dhariwal 2021: alpha_bar_t ~ cos^2, gentler at both ends."""
    _check_length(T)
    u = (torch.arange(T + 1, dtype=torch.float64) / T + 0.008) / 1.008
    f = torch.cos(u * math.pi / 2) ** 2
    return _from_beta(1 - f[1:] / f[:-1], "cosine")


def power(T: int = 1000, exponent: float = 2.5) -> NoiseSchedule:
    """alpha_bar_t = (1 - t / T)^exponent: noisy soon, pure noise at T alone, and most steps in between.

    The pixels of a mask are redundant: a nodule of n pixels still shows where alpha_bar ~ 1 / sqrt(n), so the steps
    that decide what it looks like are those at which a single pixel tells almost nothing. At exponent 2.5, 60 % of the
    steps have alpha_bar in 0.01..0.5; of the linear schedule's and of the cosine's 41 % and 44 %.
    """
    _check_length(T)
    alpha_bar = (1 - torch.arange(T + 1, dtype=torch.float64) / T) ** exponent
    return NoiseSchedule(alpha_bar, f"power{exponent:g}")


def _check_length(T: int) -> None:
    if type(T) is not int or T < 1:
        raise ValueError(f"T: expected a whole number of steps of at least 1, found {T!r}")


SCHEDULES: dict[str, Callable[[int], NoiseSchedule]] = {
    "linear": linear,
    "cosine": cosine,
    "power1.5": partial(power, exponent=1.5),
    "power2.5": power,
    "power4": partial(power, exponent=4.0),
}


def make_schedule(name: str, T: int) -> NoiseSchedule:
    """A schedule by name, as a configuration file gives it."""
    if name not in SCHEDULES:
        raise ValueError(f"schedule: expected one of {', '.join(SCHEDULES)}, found {name!r}")
    return SCHEDULES[name](T)

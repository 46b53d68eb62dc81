"""Random numbers that follow each other from slice to slice, so that one sample of a volume is one opinion.

Every number that a slice draws is a Gaussian process along z (Ornstein and Uhlenbeck's):

    g_1 = e_1,  g_z = rho g_{z-1} + sqrt(1 - rho^2) e_z,  rho = exp(-distance / length),  e_z ~ N(0, 1)

so g_z is N(0, 1) itself: a slice keeps its own law exactly, and two slices correlate by exp(-their distance / length).
A uniform number is Phi(g_z), a Gaussian copula. The first slice draws what it would draw alone, to the bit.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import exp, sqrt

import torch
from torch import Tensor

ALMOST_ONE = 1 - 2**-24  # the largest number below 1 in float32, as torch.rand has it


class Along:
    """The random numbers of one sample in one slice. Every slice asks for the same numbers in the same order."""

    def __init__(self, own: torch.Generator, before: "Along | None", rho: float, followed: bool) -> None:
        """`before`: the same sample in the slice before, which draws first; `followed`: a slice comes after this."""
        self.own, self.device, self.rho, self.followed = own, own.device, rho, followed
        self.earlier = None if before is None else before.kept
        self.kept = deque[Tensor]()  # g of each call, until the slice after this has taken it

    def numbers(self, kind: Callable[..., Tensor], count: int, dtype: torch.dtype) -> Tensor:
        """`count` numbers of U[0, 1) (`kind` is torch.rand) or N(0, 1) (torch.randn)."""
        e = kind(count, generator=self.own, dtype=dtype, device=self.device)
        if self.earlier is None and not self.followed:
            return e
        uniform = kind is torch.rand
        g = to_normal(e.double()) if uniform else e.double()
        if self.earlier is not None:
            g = self.rho * self.earlier.popleft() + sqrt(1 - self.rho**2) * g
        if self.followed:
            self.kept.append(g)
        if self.earlier is None:
            return e
        return (to_uniform(g) if uniform else g).to(dtype)


def to_normal(u: Tensor) -> Tensor:
    """Phi^-1 of uniform numbers; of 0 as of the middle of what torch.rand rounds down to it."""
    return sqrt(2) * torch.erfinv(2 * u.clamp(2**-25, ALMOST_ONE) - 1)


def to_uniform(g: Tensor) -> Tensor:
    """Phi of normal numbers, below 1 in float32 too."""
    return (torch.erfc(-g / sqrt(2)) / 2).clamp(max=ALMOST_ONE)


def correlation(distance: float, length: float) -> float:
    """rho of two slices this far apart: 0 where the length is 0, 1 where it is infinite."""
    return exp(-distance / length) if length > 0 else 0.0


def follow(own: Sequence[torch.Generator], before: Sequence[Along] | None, rho: float, followed: bool) -> list[Along]:
    """All samples of a slice, each after itself in the slice before; None: this slice is the first."""
    earlier = before if before is not None else [None] * len(own)
    return [Along(generator, of, rho, followed) for generator, of in zip(own, earlier, strict=True)]

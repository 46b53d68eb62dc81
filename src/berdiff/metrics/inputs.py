"""What every metric checks first, in one place, so that each complains in the same words."""

import torch
from torch import Tensor

from berdiff.errors import InputError


def check(samples: Tensor, masks: Tensor, raters: Tensor | None) -> Tensor:
    """Raise unless samples `(B, n, K, *S)` and masks `(B, R, K, *S)` fit; return the raters of each case `(B,)`.

    A case with fewer raters than R is padded with empty masks; `raters` says how many of its masks count, from the
    first on. None: all R of every case.
    """
    for name, x in (("samples", samples), ("masks", masks)):
        shapes = "(B, n or R, K, H, W) or (B, n or R, K, Z, H, W)"
        _expect(x.ndim in (5, 6), name, f"the shape {shapes}", tuple(x.shape))
    alike = samples.shape[0] == masks.shape[0] and samples.shape[2:] == masks.shape[2:]
    both = f"{tuple(samples.shape)} and {tuple(masks.shape)}"
    _expect(alike, "samples and masks", "the same cases, targets and pixels", both)
    shape, R = tuple(samples.shape), masks.shape[1]
    _expect(0 not in shape[1:], "samples", "at least one sample, target and pixel", shape)
    _expect(R > 0, "masks", "at least one rater", tuple(masks.shape))
    if raters is None:
        return torch.full((len(masks),), R, dtype=torch.int64)
    raters = torch.as_tensor(raters).cpu()
    fits = raters.shape == (len(masks),) and not raters.is_floating_point()
    own = f"{raters.dtype} {tuple(raters.shape)}"
    _expect(fits, "raters", f"{len(masks)} whole numbers, one per case", own)
    fits = bool(((raters >= 1) & (raters <= R)).all())
    _expect(fits, "raters", f"1 to {R} raters per case", f"{raters.min()} to {raters.max()}" if len(raters) else "")
    return raters.to(torch.int64)


def _expect(right: bool, name: str, expected: str, found: object) -> None:
    if not right:
        raise InputError(f"{name}: expected {expected}, found {found}", "shape")


def as_bytes(x: Tensor, name: str) -> Tensor:
    """uint8 on the CPU, without a copy where it is that already. A uint8 tensor's values are NOT looked at here."""
    x = x.detach().cpu()
    if x.dtype == torch.uint8:
        return x
    if x.dtype == torch.bool:
        return x.view(torch.uint8)
    if not bool(((x == 0) | (x == 1)).all()):
        raise not_binary(x, name)
    return x.to(torch.uint8)


def binary(x: Tensor, name: str) -> Tensor:
    """`as_bytes`, and the values are 0 and 1."""
    x = as_bytes(x, name)
    if x.numel() and int(x.max()) > 1:
        raise not_binary(x, name)
    return x


def not_binary(x: Tensor, name: str) -> InputError:
    low, high = float(x.min()), float(x.max())
    return InputError(f"{name}: expected binary masks of only 0 and 1, found values from {low:g} to {high:g}")

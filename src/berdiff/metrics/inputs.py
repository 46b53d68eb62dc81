"""What every metric checks first, in one place, so that each complains in the same words."""

import torch
from torch import Tensor

from berdiff.errors import InputError


def check(samples: Tensor, masks: Tensor, raters: Tensor | None) -> Tensor:
    """Raise unless samples `(B, n, K, *S)` and masks `(B, R, K, *S)` fit; return the raters of each case `(B,)`.

    A case with fewer raters than R is padded with empty masks; `raters` says how many of its masks count, from the
    first on. None: all R of every case.
    """
    for name, x, count in (("samples", samples, "n"), ("masks", masks, "R")):
        if x.ndim not in (5, 6):
            shapes = f"(B, {count}, K, H, W) or (B, {count}, K, Z, H, W)"
            raise InputError(f"{name}: expected the shape {shapes}, found {tuple(x.shape)}")
    if samples.shape[0] != masks.shape[0] or samples.shape[2:] != masks.shape[2:]:
        raise InputError(
            "samples and masks: expected the same cases, targets and pixels, "
            f"found {tuple(samples.shape)} and {tuple(masks.shape)}"
        )
    if 0 in samples.shape[1:]:
        raise InputError(f"samples: expected at least one sample, target and pixel, found {tuple(samples.shape)}")
    R = masks.shape[1]
    if R == 0:
        raise InputError(f"masks: expected at least one rater, found none: {tuple(masks.shape)}")
    if raters is None:
        return torch.full((len(masks),), R, dtype=torch.int64)
    raters = torch.as_tensor(raters).cpu()
    if raters.shape != (len(masks),) or raters.is_floating_point():
        raise InputError(
            f"raters: expected {len(masks)} whole numbers, one per case, found {raters.dtype} {tuple(raters.shape)}"
        )
    if len(raters) and (int(raters.min()) < 1 or int(raters.max()) > R):
        low, high = int(raters.min()), int(raters.max())
        raise InputError(f"raters: expected 1 to {R} raters per case, found {low} to {high}")
    return raters.to(torch.int64)


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

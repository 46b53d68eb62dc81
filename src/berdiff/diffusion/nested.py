"""Nested targets: the links that make probabilities of masks, each inside the one before it, of K outputs.

c_k = sigma(l_k) is the probability of target k at a pixel inside target k - 1 (every pixel is inside target 0), so
p_1 = c_1 and p_k = p_{k-1} c_k. Targets are the third dimension, `(B, N, K, *S)`, the outermost first.
At K = 1 everything here is the Bernoulli kernel's, to the bit.
"""

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

TARGET = 2
"""The dimension of the targets; behind it come the spatial ones."""


def probs(inside: Tensor) -> Tensor:
    """p_k = p_{k-1} c_k from c. One product after the other: rounded too, no p_k is above the one before it."""
    return torch.stack(list(accumulate(inside.unbind(TARGET), torch.mul)), TARGET)


def inside(p: Tensor) -> Tensor:
    """c_k = p_k / p_{k-1}, the inverse of `probs`; 0 where nothing is left to be inside of."""
    return (p / _outer(p)).nan_to_num(0).clamp(0, 1)


def logits(output: Tensor) -> Tensor:
    """L_k = log p_k - log(1 - p_k) from the logits l_k of c_k, finite wherever they are.

    1 / p_k = (1 + e^-L_{k-1}) (1 + e^-l_k), so e^-L_k = e^-l_k + e^-L_{k-1} (1 + e^-l_k).
    """

    def link(L: Tensor, l_k: Tensor) -> Tensor:
        return -torch.logaddexp(-l_k, F.softplus(-l_k) - L)

    return torch.stack(list(accumulate(output.unbind(TARGET), link)), TARGET)


def bce_loss(y: Tensor, output: Tensor) -> Tensor:
    """y^{k-1} BCE(c_k, y^k), elementwise, y^0 = 1: summed over the targets it is -log P(y) of a nested mask y."""
    return _outer(y) * F.binary_cross_entropy_with_logits(output, y, reduction="none")


def target_weights(inner_weight: float, like: Tensor) -> Tensor | None:
    """(K, 1, ...): inner_weight^{k-1} for the loss of target k of `like`; None where all count the same.

    The loss of c_k counts pixels inside target k - 1 alone. Each c_k has a loss of its own, so no weight moves the
    minimum; but without one a target inside a small target hardly moves the network.
    """
    if inner_weight == 1:
        return None
    place = torch.arange(like.shape[TARGET], device=like.device, dtype=like.dtype)
    return inner_weight ** place.reshape(-1, *[1] * (like.ndim - 3))


def _outer(y: Tensor) -> Tensor:
    """Of each target the one around it; of the first, everything."""
    around = y.narrow(TARGET, 0, y.shape[TARGET] - 1)
    return torch.cat([torch.ones_like(y.narrow(TARGET, 0, 1)), around], TARGET)

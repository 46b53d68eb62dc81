"""Optimal transport from the masks of a model to those of the raters, with a cap on what one mask may take."""

import torch
from torch import Tensor


def soft_iou_cost(p: Tensor, y: Tensor) -> Tensor:
    """1 - (sum p y + 1) / (sum p + sum y - sum p y + 1), mean over targets; two empty masks cost 0.

    Probabilities p `(B, N, K, H, W)`, masks y `(B, R, K, H, W)` -> `(B, N, R)`.
    """
    p, y = p.float().flatten(3), y.float().flatten(3)
    with torch.autocast(p.device.type, enabled=False):  # counts of pixels need more than the 8 bits of bfloat16
        both = torch.einsum("bnkd,brkd->bnrk", p, y)
    either = p.sum(3).unsqueeze(2) + y.sum(3).unsqueeze(1) - both
    return (1 - (both + 1) / (either + 1)).mean(3)


@torch.no_grad()
def greedy_coupling(cost: Tensor, cap: float) -> Tensor:
    """A coupling P >= 0 `(B, N, R)` of low cost: each rater sends 1 / R, each mask takes no more than `cap`.

    Greedy: the rater who is nearest to some mask comes first; each fills the masks nearest to it that have room. With
    cap 1 each goes to its nearest mask, and no coupling is cheaper. N cap must be at least 1.
    """
    B, N, R = cost.shape
    if N * cap < 1:
        raise ValueError(f"cap: expected at least 1 / {N}, found {cap:g}")
    P = torch.zeros_like(cost)
    room = cost.new_full((B, N), cap)
    for rater in cost.amin(1).argsort(dim=1, stable=True).unbind(1):  # (B,): the next one of each image
        column = rater[:, None, None].expand(B, N, 1)
        nearest = cost.gather(2, column).squeeze(2).argsort(dim=1, stable=True)
        sorted_room = room.gather(1, nearest)
        left = 1 / R - (sorted_room.cumsum(1) - sorted_room)  # when it is a mask's turn
        taken = torch.zeros_like(room).scatter(1, nearest, left.clamp(min=0).minimum(sorted_room))
        P.scatter_(2, column, taken.unsqueeze(2))
        room = room - taken
    return P


def gate_kl(mass: Tensor, log_gate: Tensor) -> Tensor:
    """KL(mass || gate) over the experts: mass `(B, E)` that the raters sent to each, log of the gate's probabilities.

    Over the masks of each expert, all of the same weight, it would be larger by something the gate cannot change.
    """
    return (torch.xlogy(mass, mass) - mass * log_gate).sum(1)

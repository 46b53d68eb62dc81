"""Mirrored views of an image: each mask is drawn from one of them at random, and mirrored back.

A network is trained on mirrored images and yet answers each view a little differently. The mixture over the views is
never farther from the raters in GED than its parts are on average: an energy distance is convex.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from berdiff.diffusion.sampling import Callback, Step

AXES = ((), (-1,), (-2,), (-2, -1))
"""What is mirrored in view 0 to 3; each is its own inverse."""


def mirrored(image: Tensor, views: int) -> Tensor:
    """(B, C, *S) -> (views * B, C, *S), view by view."""
    return image if views == 1 else torch.cat([image.flip(axes) for axes in AXES[:views]])


def mirrored_back(masks: Tensor, view: Tensor) -> Tensor:
    """masks `(B, n, K, *S)`, each as seen in its view `(B, n)` -> as seen in the image."""
    out = masks.clone()
    for number, axes in enumerate(AXES):
        out[view == number] = masks[view == number].flip(axes)
    return out


def take(features: Any, index: Tensor) -> Any:
    """Entries of the batch of a tensor, or of nested tuples of tensors."""
    if features is None or isinstance(features, Tensor):
        return None if features is None else features[index]
    nested = cast(tuple[Any, ...], features)
    make = cast(Callable[..., Any], getattr(nested, "_make", tuple))  # a named tuple keeps its names
    return make(take(part, index) for part in nested)


def callback_of(callback: Callback | None, view: Tensor) -> Callback | None:
    """For steps of `(B * n, 1, ...)`, what a callback of `(B, n, ...)` expects."""
    if callback is None:
        return None

    def back(y: Tensor) -> Tensor:
        return mirrored_back(y.reshape(*view.shape, *y.shape[2:]), view)

    def wrapped(step: Step) -> None:
        callback(replace(step, y_t=back(step.y_t), y_s=back(step.y_s), y0_hat=back(step.y0_hat)))

    return wrapped

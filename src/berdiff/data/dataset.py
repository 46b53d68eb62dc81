"""The slices of a store's split as tensors to train on."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from berdiff.data.augment import augmented, crop
from berdiff.data.describe import expect
from berdiff.data.store import Store

Draw = tuple[int, int]  # (epoch, item)


class SliceDataset:
    """The slices of one split. What a draw gives is a pure function of (seed, epoch, item):

    - image (C, H, W) float32 in [0, 1],
    - masks (R, K, H, W) uint8: with `raters="one"` a random one of the case's raters, as the paper trains (R = 1);
      with `"all"` the case's raters over and over up to the store's count, so that none is padding.

    `crop` cuts the centre (64 of 128 keeps 99 % of LIDC's slices whole).
    """

    def __init__(
        self,
        store: Store,
        split: str,
        raters: Literal["one", "all"] = "one",
        crop: int | None = None,
        augment: bool = False,
        seed: int = 0,
        shift: int = 4,
    ):
        expect(raters in ("one", "all"), "raters", "one or all", f"{raters!r}")
        expect(crop is None or 0 < crop <= min(store.size), "crop", f"1 to {min(store.size)}", crop)
        expect(shift >= 0, "shift", "at least 0", shift)
        self.indices = store.indices(split)
        expect(len(self.indices), store.address, f"cases in the split {split}")
        self.store, self.raters, self.augment, self.seed, self.shift = store, raters, augment, seed, shift
        self.size = store.size if crop is None else (crop, crop)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, Tensor]:
        image, masks = self.batch([draw])
        return image[0], masks[0]

    def batch(self, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) and masks (B, R, K, H, W): one read of the store for all of them."""
        indices = self.indices[[item for _, item in draws]]
        items = [
            self._item(draw, int(self.store.cases.raters[index]), image, masks)
            for draw, index, image, masks in zip(draws, indices, *self.store.read(indices), strict=True)
        ]
        images, masks = (np.stack(arrays) for arrays in zip(*items, strict=True))
        return torch.from_numpy(images), torch.from_numpy(masks)

    def _item(self, draw: Draw, own: int, image: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`own`: how many raters the case has; the other masks are padding."""
        epoch, item = draw
        rng = np.random.default_rng([self.seed, epoch, item])
        if self.raters == "one":
            rater = int(rng.integers(own))
            masks = masks[rater : rater + 1]
        elif own < len(masks):
            masks = masks[(int(rng.integers(own)) + np.arange(len(masks))) % own]
        if self.augment:
            return augmented(image, masks, self.size, rng, self.shift)
        return crop(image, self.size), crop(masks, self.size)

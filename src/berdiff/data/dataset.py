"""The slices or volumes of a store's split as tensors to train on."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from berdiff.data.augment import augmented, crop, negative, random_patch, zoomed
from berdiff.data.describe import by, check, expect
from berdiff.data.input_spec import Sides, size_of
from berdiff.data.store import Store, as_unit

Draw = tuple[int, int]  # (epoch, item)
NEGATIVE_ZOOM = 1.45  # of parts that nobody marked: the larger ones of them hold the border of what is marked


class CaseDataset:
    """The cases of one split. What a draw gives is a pure function of (seed, epoch, item):

    - image (C, *S) float32 in [0, 1],
    - masks (R, K, *S) uint8: with `raters="one"` a random one of the case's raters, as the paper trains (R = 1);
      with `"all"` the case's raters over and over up to the store's count, so that none is padding.

    `crop` cuts the centre (64 of 128 keeps 99 % of LIDC's slices whole), and of `negatives` of the draws a place that
    nobody marked; `patch` a random part, `foreground` of them around something that the raters of the draw marked.
    With `augment`, half of the crops are magnified by 1 / `zoom` to `zoom`.
    """

    def __init__(
        self,
        store: Store,
        split: str,
        raters: Literal["one", "all"] = "one",
        crop: Sides | None = None,
        augment: bool = False,
        seed: int = 0,
        shift: int = 4,
        patch: Sides | None = None,
        foreground: float = 0.33,
        negatives: float = 0.0,
        zoom: float = 1.0,
    ):
        expect(raters in ("one", "all"), "raters", "one or all", f"{raters!r}")
        self.size = store.size
        for name, sides in (("crop", crop), ("patch", patch)):
            if sides is not None:
                self.size = size_of(sides, len(store.size), name)
                fits = all(0 < side <= most for side, most in zip(self.size, store.size, strict=True))
                expect(fits, name, f"1 to {by(store.size)}", by(self.size), "shape")
        expect(crop is None or patch is None, "patch", "no crop beside it", "both", "conflict")
        expect(0 <= foreground <= 1, "foreground", "0 to 1", foreground)
        expect(shift >= 0, "shift", "at least 0", shift)
        self.indices = store.indices(split)
        check(len(self.indices), f"{store.address}: no cases in the split {split}", "missing")
        self.store, self.raters, self.augment, self.seed, self.shift = store, raters, augment, seed, shift
        self.patch, self.foreground, self.negatives, self.zoom = patch, foreground, negatives, zoom

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, Tensor]:
        image, masks = self.batch([draw])
        return image[0], masks[0]

    def batch(self, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
        """Images (B, C, *S) and masks (B, R, K, *S)."""
        indices = self.indices[[item for _, item in draws]]
        items = [
            self._item(draw, int(self.store.cases.raters[index]), image, masks)
            for draw, index, (image, masks) in zip(draws, indices, self._stored(indices), strict=True)
        ]
        images, masks = (np.stack(arrays) for arrays in zip(*items, strict=True))
        return torch.from_numpy(images), torch.from_numpy(masks)

    def _stored(self, indices: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Images and masks as stored, in one read; those to cut patches from are large, and come one at a time."""
        for some in [indices] if self.patch is None else indices[:, None]:
            yield from zip(*self.store.read_stored(some), strict=True)

    def _item(self, draw: Draw, own: int, image: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`own`: how many raters the case has; the other masks are padding."""
        epoch, item = draw
        rng = np.random.default_rng([self.seed, epoch, item])
        shift, every = self.shift, masks
        if self.raters == "one":
            rater = int(rng.integers(own))
            masks = masks[rater : rater + 1]
        elif own < len(masks):
            masks = masks[(int(rng.integers(own)) + np.arange(len(masks))) % own]
        if self.patch is not None:
            window = random_patch(masks, self.size, rng, self.foreground)
            # copies, so that the large arrays behind them can go
            image, masks, shift = image[..., *window].copy(), masks[..., *window].copy(), 0
        image = as_unit(image)
        if self.negatives and rng.random() < self.negatives:
            empty = negative(image, every, self.size, NEGATIVE_ZOOM if self.augment else 1.0, rng)
            if empty is not None:
                nothing = np.zeros((*masks.shape[:2], *self.size), masks.dtype)
                return augmented(empty, nothing, self.size, rng, 0) if self.augment else (empty, nothing)
        if self.augment:
            if self.zoom > 1 and rng.random() < 0.5:
                image, masks = zoomed(image, masks, self.zoom, rng)
            return augmented(image, masks, self.size, rng, shift)
        return crop(image, self.size), crop(masks, self.size)

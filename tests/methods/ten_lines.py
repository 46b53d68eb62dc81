"""The smallest network that keeps the Denoiser protocol."""

import torch
from torch import nn


class TenLines(nn.Module):
    """Any module with `encode`, `denoise` and `targets` serves."""

    targets = 1

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 1, 3, padding=1)

    def encode(self, image):
        return image

    def denoise(self, y_t, t, features):
        planes = torch.cat(
            [y_t, features.unsqueeze(1).expand_as(y_t), (t / 1000)[..., None, None, None].expand_as(y_t)], 2
        )
        return self.conv(planes.flatten(0, 1)).reshape(y_t.shape)

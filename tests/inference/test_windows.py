"""Windows: one diffusion over the whole image, its estimate the weighted mean of the windows' estimates."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from berdiff.diffusion.sampling import Sampler, sample_generators
from berdiff.diffusion.schedule import linear
from berdiff.errors import InputError
from berdiff.inference.windows import Windowed, over_windows, starts
from berdiff.methods.berdiff import BerDiff


class ByPixel(nn.Module):
    """An estimate that needs nothing but the pixel itself: windows must then change nothing."""

    targets, stride = 1, 1

    def encode(self, image):
        return image

    def denoise(self, y_t, t, features):
        return (y_t - 0.5) * 3 + 4 * (features[:, None, :1] - 0.5) + 0 * t[..., None, None, None]


class ByWindow(ByPixel):
    """An estimate that depends on the window: the mean of the image in it."""

    def denoise(self, y_t, t, features):
        return torch.zeros_like(y_t) + features.mean((1, 2, 3))[:, None, None, None, None] * 4 - 2


@given(st.integers(1, 40), st.integers(0, 200), st.floats(0, 0.95))
def test_windows_cover_everything_and_overlap_enough(size, more, overlap):
    length = size + more
    found = starts(length, size, overlap)
    assert found[0] == 0
    assert found[-1] == length - size
    for a, b in pairwise(found):
        assert 0 < b - a <= max(1, int(size * (1 - overlap))) + 1  # rounding moves a window by at most one pixel
        assert b <= a + size  # no gap
    assert starts(size, size, overlap) == [0]


def test_where_the_pixel_decides_windows_change_nothing():
    torch.manual_seed(0)
    image, y_t = torch.rand(2, 1, 37, 50), torch.randint(2, (2, 3, 1, 37, 50)).float()
    t = torch.full((2, 3), 5)
    net = ByPixel()
    windowed = Windowed(net, (16, 24), 0.4)
    whole = net.denoise(y_t, t, net.encode(image))
    torch.testing.assert_close(windowed.denoise(y_t, t, windowed.encode(image)), whole, rtol=1e-5, atol=1e-5)


def test_the_estimate_is_the_weighted_mean_of_the_windows():
    torch.manual_seed(0)
    image, y_t = torch.rand(1, 1, 20, 11), torch.randint(2, (1, 1, 1, 20, 11)).float()
    t, (h, w) = torch.ones(1, 1), (8, 8)
    windowed = Windowed(ByWindow(), (h, w), 0.5)
    found = windowed.denoise(y_t, t, windowed.encode(image)).sigmoid()[0, 0, 0]
    for y in range(20):
        for x in range(11):
            total = weights = 0.0
            for y0 in starts(20, h, 0.5):
                for x0 in starts(11, w, 0.5):
                    if y0 <= y < y0 + h and x0 <= x < x0 + w:
                        mean = image[0, 0, y0 : y0 + h, x0 : x0 + w].mean()
                        ramp = torch.sin(torch.pi * torch.tensor([(y - y0 + 0.5) / h, (x - x0 + 0.5) / w])) ** 2
                        total += float(ramp.prod() * torch.sigmoid(4 * mean - 2))
                        weights += float(ramp.prod())
            assert found[y, x] == pytest.approx(total / weights, rel=1e-4)


def test_certain_estimates_stay_finite():
    class Certain(ByPixel):
        def denoise(self, y_t, t, features):
            return torch.full_like(y_t, 1e4)

    windowed = Windowed(Certain(), (8, 8), 0.5)
    y_t = torch.zeros(1, 1, 1, 21, 21)
    found = windowed.denoise(y_t, torch.ones(1, 1), windowed.encode(torch.zeros(1, 1, 21, 21))).sigmoid()
    assert (found == 1).all()


@pytest.mark.parametrize("target", ["noise", "mask"])
def test_a_segmenter_over_windows_draws_what_the_whole_would(target):
    """With an estimate by pixel, the masks over windows are the masks of the whole, drawn with the same seeds."""
    torch.manual_seed(0)
    image = torch.rand(2, 1, 40, 33)
    segmenter = BerDiff(ByPixel(), linear(50), target=target, sampler=Sampler(steps=5))  # type: ignore[arg-type]
    keys = sample_generators(3, ["a", "b"], 4), sample_generators(3, ["a", "b"], 4)
    whole = segmenter.sample(image, 4, keys[0])
    windowed = over_windows(segmenter, (16, 16), 0.25).sample(image, 4, keys[1])
    assert whole.float().mean() not in (0, 1)
    assert (whole == windowed).float().mean() > 0.9995  # rounding may tip a draw that stands on the edge
    assert isinstance(segmenter.network, ByPixel)  # the segmenter itself is as it was


def test_what_cannot_be_done_is_said():
    with pytest.raises(InputError, match="--overlap: expected a share from 0 to below 1, found 1"):
        over_windows(BerDiff(ByPixel(), linear(10)), (8, 8), 1.0)
    with pytest.raises(InputError, match=r"expected an image .* of 8x8 pixels for the method Linear"):
        over_windows(nn.Linear(1, 1), (8, 8), 0.5)

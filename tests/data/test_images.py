"""Pictures as arrays: every kind of PNG, JPG and TIFF that is met, and what is not a picture."""

from itertools import product

import numpy as np
import tifffile
from PIL import Image

from berdiff.data.images import binary, read_labels, read_mask, read_picture
from refusals import refused

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (5, 7), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)


def channels_first(pixels: np.ndarray) -> np.ndarray:
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def test_lossless(tmp_path):
    for suffix, pixels in product(("png", "tif"), (GREY, COLOUR, GREY.astype(np.uint16) * 257)):
        Image.fromarray(pixels).save(tmp_path / f"a.{suffix}")
        image = read_picture(tmp_path / f"a.{suffix}")
        assert image.dtype == pixels.dtype
        np.testing.assert_array_equal(image, channels_first(pixels))


def test_tiff_keeps_all_bits(tmp_path):
    for dtype, shape in product((np.uint16, np.float32, np.float64), ((5, 7), (5, 7, 3))):
        pixels = (RNG.random(shape) * 60000).astype(dtype)
        tifffile.imwrite(tmp_path / "a.tif", pixels)
        image = read_picture(tmp_path / "a.tif")
        np.testing.assert_array_equal(image, channels_first(pixels).astype(image.dtype))
        assert image.dtype == (np.float32 if dtype == np.float64 else dtype)


def test_tiff_compressions_and_white_zero(tmp_path):
    for compression in ("tiff_lzw", "tiff_deflate", "packbits"):
        Image.fromarray(GREY).save(tmp_path / "a.tif", compression=compression)
        np.testing.assert_array_equal(read_picture(tmp_path / "a.tif")[0], GREY)
    tifffile.imwrite(tmp_path / "w.tif", 255 - GREY, photometric="miniswhite")
    np.testing.assert_array_equal(read_picture(tmp_path / "w.tif")[0], GREY)


def test_alpha_palette_and_one_bit(tmp_path):
    Image.fromarray(np.dstack([COLOUR, GREY])).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png"), np.moveaxis(COLOUR, -1, 0))
    indexed = Image.fromarray(GREY % 3)
    indexed.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    indexed.save(tmp_path / "p.png")
    np.testing.assert_array_equal(read_labels(tmp_path / "p.png"), GREY % 3)
    np.testing.assert_array_equal(read_picture(tmp_path / "p.png")[0], GREY % 3 * 30 + 10)
    for suffix in ("png", "tif"):
        Image.fromarray(GREY > 99).save(tmp_path / f"b.{suffix}")
        np.testing.assert_array_equal(read_mask(tmp_path / f"b.{suffix}"), GREY > 99)


def test_grey_saved_as_colour(tmp_path):
    Image.fromarray(np.dstack([GREY] * 3)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png").shape == (3, 5, 7)
    np.testing.assert_array_equal(read_picture(tmp_path / "a.png", channels=1)[0], GREY)
    np.testing.assert_array_equal(read_labels(tmp_path / "a.png"), GREY)


def test_refused(tmp_path):
    Image.fromarray(COLOUR).save(tmp_path / "c.png")
    tifffile.imwrite(tmp_path / "v.tif", np.zeros((9, 4, 4), np.uint8), photometric="minisblack")
    (tmp_path / "t.tif").write_bytes((tmp_path / "v.tif").read_bytes()[:40])
    Image.fromarray(GREY).save(tmp_path / "g.gif", save_all=True, append_images=[Image.fromarray(255 - GREY)])
    for read, name, code in [
        (lambda path: read_picture(path, channels=1), "c.png", "shape"),
        (read_labels, "c.png", "shape"),
        (read_picture, "v.tif", "kind"),
        (read_picture, "t.tif", "damaged"),
        (read_picture, "g.gif", "kind"),
        (read_picture, "none.png", "missing"),
        (lambda path: read_mask(path, size=(7, 5)), "c.png", "shape"),
    ]:
        with refused(tmp_path / name, code=code):
            read(tmp_path / name)


def test_binary():
    for values in ([0], [0, 1], [1], [0, 255], [255], [False, True]):
        labels = np.array(values)
        np.testing.assert_array_equal(binary(labels, "x"), (labels > 0).astype(np.uint8))
    for values in ([2], [0, 1, 255], [-1, 0, 1], [0, 0.5, 1], [0, np.nan], [0, 7]):
        with refused("x", code="value"):
            binary(np.array(values), "x")

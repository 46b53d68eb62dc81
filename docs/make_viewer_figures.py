"""docs/figures/viewer-*.png: the viewer's page of embedded data (real readers, simulated CT) in headless Chromium.

python docs/make_viewer_figures.py [FOLDER]    FOLDER also gets the two pages
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import berdiff
from berdiff.data.contours import Nodule, nodules, read_scans
from berdiff.data.simulate import simulate
from berdiff.inference.result import Result
from berdiff_viewer.document import result_document
from berdiff_viewer.page import page

FIGURES = Path(__file__).parent / "figures"
SIZE, REACH = 128, 14.0  # pixels per side; mm above and below the middle of the nodule
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def large_nodule() -> Nodule:
    """One that all four readers marked, of about 2 cm."""
    of_four = (n for scan in read_scans() for n in nodules(scan) if len(n.annotations) == 4 and n.scan.thickness <= 2)
    return next(n for n in of_four if 14 <= n.zs[-1] - n.zs[0] <= 20)


def volume(nodule: Nodule) -> Result:
    middle = (nodule.zs[0] + nodule.zs[-1]) / 2
    zs = [float(z) for z in nodule.scan.zs if abs(z - middle) <= REACH]
    crop = nodule.crop(SIZE)
    drawn = np.stack([nodule.masks(z, crop) for z in zs], axis=1)  # (R, Z, S, S)
    hu = simulate(nodule, zs, drawn.mean(0, dtype=np.float32), crop, np.random.default_rng(0))
    spacing = (float(np.diff(zs).mean()), nodule.scan.spacing, nodule.scan.spacing)
    model = berdiff.load("lidc-readers")
    name = f"{nodule.scan.patient}, nodule {nodule.number}"
    result = model.segment(hu, 16, center=(SIZE // 2, SIZE // 2), spacing_mm=spacing, name=name)
    return replace(result, raters=drawn[:, None].astype(np.uint8))


def one_slice(result: Result) -> Result:
    z = int(result.raters.sum(axis=(0, 1, 3, 4)).argmax())  # type: ignore[union-attr]
    image = result.image[0, z]
    plane = berdiff.load("lidc-readers").segment(
        image, 16, center=(SIZE // 2, SIZE // 2), spacing_mm=result.grid.spacing[1:], name=f"{result.name}, slice {z}"
    )
    return replace(plane, raters=result.raters[:, :, z])  # type: ignore[index]


def main(folder: Path) -> None:
    whole = volume(large_nodule())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        for kind, result in (("2d", one_slice(whole)), ("volume", whole)):
            path = folder / f"viewer-{kind}.html"
            path.write_text(page(result_document(result)), encoding="utf-8")
            tab = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
            tab.goto(path.resolve().as_uri())
            tab.wait_for_selector("body[data-ready=yes]")
            tab.evaluate("berdiff.set({mask: true, representative: 0, raters: [0]})")
            tab.wait_for_timeout(500)
            picture = folder / f"viewer-{kind}.png"
            tab.screenshot(path=picture)
            Image.open(picture).convert("RGB").save(FIGURES / picture.name, optimize=True)
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))

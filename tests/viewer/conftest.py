"""A headless Chromium with no network, where the machine has one; nothing is ever downloaded."""

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from berdiff_viewer.page import page

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
PATIENCE = 60_000  # ms: graphics by a busy processor are slow


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="no playwright for browser tests")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium for browser tests")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


class Tab:
    """A page in the browser, with what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))

    def open(self, address: str) -> "Tab":
        self.page.goto(address)
        self.page.wait_for_selector("body[data-ready]")
        assert self.page.get_attribute("body", "data-ready") == "yes", self.page.inner_text("#message")
        return self

    def run(self, script: str) -> Any:
        return self.page.evaluate(script)

    def set(self, **state: Any) -> None:
        self.page.evaluate("state => berdiff.set(state)", state)

    def pixels(self) -> np.ndarray:
        """(height, width, 3) of the window."""
        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"), np.int16)

    def where(self, voxel: tuple[int, int, int], axis: int = 0) -> tuple[int, int]:
        """(x, y) in the window of the middle of a voxel, in the axial, coronal or sagittal plane."""
        x, y = self.page.evaluate("([voxel, axis]) => berdiff.hooks.canvasOf(voxel, axis)", [list(voxel), axis])
        return round(x), round(y)

    def colour(self, voxel: tuple[int, int, int], axis: int = 0) -> np.ndarray:
        x, y = self.where(voxel, axis)
        return self.pixels()[y, x]


@pytest.fixture
def new_tab(browser: Any) -> Iterator[Callable[..., Tab]]:
    contexts = []

    def make(offline: bool = True, **options: Any) -> Tab:
        options = {"viewport": {"width": 1000, "height": 640}, **options}
        contexts.append(browser.new_context(offline=offline, **options))
        return Tab(contexts[-1].new_page())

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def show(new_tab: Callable[..., Tab], tmp_path: Path) -> Callable[..., Tab]:
    """A document in a file of its own, opened with the network off."""

    def open_document(document: dict[str, Any], **options: Any) -> Tab:
        path = tmp_path / "viewer.html"
        path.write_text(page(document), encoding="utf-8")
        return new_tab(**options).open(path.as_uri())

    return open_document

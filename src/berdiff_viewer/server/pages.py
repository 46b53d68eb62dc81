"""The one door to the page: what the server shows is made by `berdiff_viewer.page` and `berdiff_viewer.document`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from berdiff.inference.opening import OpenedImage
from berdiff.inference.result import Result

if TYPE_CHECKING:
    from berdiff.inference.representatives import Representative


def live_page(token: str) -> str:
    """The HTML of the page, before anything is opened."""
    from berdiff_viewer import document, page

    return page.page(document.live_document(token))


def image_document(image: OpenedImage, channels: Sequence[str], raters: Sequence[str]) -> dict[str, Any]:
    """Of an image alone, with the masks of these raters where it has any."""
    from berdiff_viewer import document

    return document.image_document(image, channels, rater_names=tuple(raters))


def result_document(result: Result, chosen: "Sequence[Representative]", image: bool = False) -> dict[str, Any]:
    """Of a result; without the image where the page shows it already."""
    from berdiff_viewer import document

    return document.result_document(result, chosen, image=image)

"""berdiff view [MODEL] [PATH...]"""

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le
from tyro.conf import OmitArgPrefixes, Positional, arg

from berdiff import schema
from berdiff.cli.arguments import MODEL, parse
from berdiff.data.limits import Limits as ImageLimits
from berdiff.data.limits import using
from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory

NEEDED = ("fastapi", "uvicorn", "python_multipart")


@dataclass(frozen=True)
class View(schema.Settings):
    """Look at images in the browser and segment where you click; the same server answers 3D Slicer and OHIF.

    Needs `pip install "berdiff[viewer]"`. It listens on this machine alone unless --host says otherwise.
    """

    model: Annotated[
        Positional[str], arg(metavar="MODEL", help=f"{MODEL}; the bundled ones can be chosen beside it")
    ] = "lidc"
    paths: Annotated[Positional[tuple[str, ...]], arg(metavar="PATH")] = ()
    """images, folders, result folders of `berdiff segment`, prepared stores; default: cases of the embedded data"""
    models: Annotated[tuple[str, ...], arg(metavar="MODEL")] = ()  # further models to choose from
    split: Literal["train", "val", "test", "all"] = "test"  # split of a prepared store
    limit: Annotated[int, Ge(1), Le(10_000), arg(metavar="N")] = 100
    """maximum number of images listed per PATH; of a store, the first of one seeded order"""
    corrections: Path | None = None
    """folder for raters' masks drawn in the viewer; `berdiff data prepare folder` reads it"""
    host: str = "127.0.0.1"  # address to listen at; for any but this machine's own, a token is needed and made
    port: Annotated[int, Ge(0), Le(65535)] = 8000  # port to listen at; 0: a free one, which is printed
    token: str | None = None  # token that every client must know; default: none on this machine, a new one elsewhere
    host_name: Annotated[tuple[str, ...], arg(metavar="NAME")] = ()
    """further names by which clients address the server, such as that of a proxy before it"""
    queue: Annotated[int, Ge(1), Le(1000)] = 8  # maximum queue length of segmentations
    session_minutes: Annotated[float, Ge(1), Le(1e6)] = 60
    """minutes without a request after which a client's uploads are removed"""
    no_browser: bool = False  # do not open the page in a browser
    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps, ...
    json: bool = False  # print the addresses as one line of JSON
    limits: OmitArgPrefixes[ImageLimits] = field(default_factory=ImageLimits)

    def run(self) -> None:
        with using(self.limits):
            self._run()

    def _run(self) -> None:
        if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
            install = 'pip install "berdiff[viewer]"'
            raise InputError(f"{missing[0]}: this needs `{install}`", "missing")
        import torch

        from berdiff_viewer.server.common import Limits
        from berdiff_viewer.server.guard import Access
        from berdiff_viewer.server.models import is_model
        from berdiff_viewer.server.run import make_service, serve

        keep_freed_memory()
        torch.set_num_threads(1)  # one worker; the other cores are for reading and packing
        model, paths = self.model, self.paths
        if not is_model(model) and Path(model).exists():  # `berdiff view scan.png`
            model, paths = View.model, (model, *paths)
        limits = Limits(jobs=self.queue, session_seconds=60 * self.session_minutes)
        service = make_service(
            (model, *self.models), paths, self.split, self.limit, limits, self.corrections, self.device
        )
        serve(service, Access(self.host, self.token, self.host_name), self.port, not self.no_browser, self.json)

    def check(self) -> None:
        short = self.token is not None and len(self.token) < 16
        if short or (self.token and not self.token.replace("-", "").replace("_", "").isalnum()):
            raise InputError("token: expected at least 16 letters, digits, - or _, found another one")
        if self.corrections is not None and self.corrections.is_file():
            raise InputError(f"corrections: expected a folder, found the file {self.corrections}", "kind")


def command(argv: list[str]) -> None:
    parse(View, argv, "view").run()

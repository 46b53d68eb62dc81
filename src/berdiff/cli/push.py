"""berdiff push MODEL hf://owner/name"""

import re
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from berdiff.cli.arguments import Model, parse, print_json
from berdiff.display import note
from berdiff.errors import InputError


@dataclass(frozen=True)
class Push:
    """Publish a model on a model hub: configuration, weights (safetensors) and card, as one commit.

    Needs `pip install "berdiff[hub]"` and a token that may write (HF_TOKEN). Others load it by its address.
    """

    model: Model
    address: Annotated[Positional[str], arg(metavar="hf://OWNER/NAME")]  # repository, which is made where there is none
    private: bool = False  # make a new repository private
    revision: str | None = None  # branch to write to, made where there is none; default: main
    license: str | None = None  # identifier of the licence of the weights for the card, such as apache-2.0
    message: str = "Upload a berdiff model"  # message of the commit
    json: bool = False  # print the result as JSON

    def run(self) -> None:
        from berdiff import hub
        from berdiff.methods import folder
        from berdiff.methods.card import model_card

        address = hub.parse(self.address)
        if self.revision is not None:
            if address.revision is not None:
                raise InputError("--revision: expected the branch once, found it in the address too", "conflict")
            address = hub.parse(f"{self.address}@{self.revision}")
        if self.license is not None and not re.fullmatch(r"[\w.+-]+", self.license):
            raise InputError(f"--license: expected an identifier such as apache-2.0, found {self.license!r}")
        path = folder.resolve(self.model)
        folder.load(path)  # what cannot be loaded is not published
        config, spec, digest = folder.read_config(path / folder.CONFIG)
        card = model_card(path, address.repository, config, spec, self.license)
        note(f"uploading {path} to {address} ...")
        pinned = hub.push(path, str(address), card, self.private, self.message)
        if self.json:
            return print_json({"address": pinned, "weights_sha256": digest})
        print(f'published as {pinned}\nload it by: berdiff.load("{pinned}")')


def command(argv: list[str]) -> None:
    parse(Push, argv, "push").run()

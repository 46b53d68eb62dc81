"""berdiff export MODEL --out DIR"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from berdiff.cli.arguments import Model as ModelAddress
from berdiff.cli.arguments import parse, print_json
from berdiff.display import note, progress
from berdiff.errors import InputError
from berdiff.memory import keep_freed_memory

if TYPE_CHECKING:
    from berdiff.inference.model import Model


@dataclass(frozen=True)
class Export:
    """Write a model in a format of other programs.

    onnx: two graphs, the encoder and the step network, checked equal to PyTorch, in about a minute. Needs
    `pip install berdiff[onnx]`. Both ONNX Runtime and OpenVINO read them; export.json describes their use.
    bundle: a MONAI bundle that `monai.bundle` runs where berdiff is installed, with the masks of `berdiff segment`.
    """

    model: ModelAddress
    out: Path  # new folder for the files
    format: Literal["onnx", "bundle"] = "onnx"  # onnx, or a MONAI bundle
    size: Annotated[tuple[int, int] | None, arg(metavar="H W")] = None
    """with onnx: height and width of the images, fixed in the graphs; default: what the model was trained at"""
    device: str = "auto"  # device that traces the graphs: auto, cpu, cuda, cuda:1, mps, ...
    json: bool = False  # print the result as JSON

    def run(self) -> None:
        from berdiff.inference.model import load

        keep_freed_memory()
        model = load(self.model, self.device, self.size)
        note(f"device: {model.device}")
        summary, line = self._bundle(model) if self.format == "bundle" else self._onnx(model)
        if self.json:
            return print_json({"out": self.out, "format": self.format, **summary})
        print(line)
        print(f"written to {self.out}: {', '.join(summary['files'])}")

    def _onnx(self, model: "Model") -> tuple[dict[str, Any], str]:
        from berdiff.methods.export import export_onnx

        with progress(f"exporting {model.name}") as update:
            summary = export_onnx(model.segmenter, model.size, self.out, update)
        H, W = model.size
        found = summary["largest_difference_to_pytorch"]
        line = f"{model.name} at {H}x{W}: at most {found:.1e} from PyTorch's numbers"
        return {"largest_difference_to_pytorch": found, "files": [*summary["files"], "export.json"]}, line

    def _bundle(self, model: "Model") -> tuple[dict[str, Any], str]:
        from berdiff.methods import folder
        from berdiff.output.bundle_files import export_bundle

        if self.size is not None:
            raise InputError("--size: expected it with --format onnx alone, found it with bundle", "conflict")
        files = export_bundle(model, folder.resolve(self.model), self.out)
        run = f"python -m monai.bundle run --config_file {self.out}/configs/inference.json --bundle_root {self.out}"
        return {"files": files}, f"{model.name}; run it by: {run} --dataset_dir IMAGES"


def command(argv: list[str]) -> None:
    parse(Export, argv, "export").run()

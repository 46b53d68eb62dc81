"""berdiff export MODEL --out DIR"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from berdiff.display import note
from berdiff.memory import keep_freed_memory


@dataclass(frozen=True)
class Export:
    """Write a model as two ONNX graphs, the encoder and the step network, checked equal to PyTorch. About a minute.

    Needs `pip install berdiff[onnx]`. Both ONNX Runtime and OpenVINO read them; export.json describes their use.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]  # model folder, folder of a run, or name of bundled weights
    out: Path  # new folder for encode.onnx, denoise.onnx and export.json
    size: Annotated[tuple[int, int] | None, arg(metavar="H W")] = None
    """height and width of the images, fixed in the graphs; default: what the model was trained at"""
    device: str = "auto"  # device that traces the graphs: auto, cpu, cuda, cuda:1, mps, ...

    def run(self) -> None:
        from berdiff.inference.model import load
        from berdiff.methods.export import export_onnx

        keep_freed_memory()
        model = load(self.model, self.device, self.size)
        note(f"device: {model.device}")
        summary = export_onnx(model.segmenter, model.size, self.out)
        H, W = model.size
        print(f"{model.name} at {H}x{W}: at most {summary['largest_difference_to_pytorch']:.1e} from PyTorch's numbers")
        print(f"written to {self.out}: {', '.join(summary['files'])}, export.json")


def command(argv: list[str]) -> None:
    tyro.cli(Export, args=argv, prog="berdiff export").run()

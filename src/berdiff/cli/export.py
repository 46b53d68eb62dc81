"""berdiff export MODEL --out DIR"""

from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, arg

from berdiff.memory import keep_freed_memory


def export(
    model: Annotated[Positional[str], arg(metavar="MODEL")], out: Path, size: tuple[int, int] | None = None
) -> None:
    """Write a model as two ONNX graphs, the encoder and the step network, checked equal to PyTorch. About a minute.

    Needs `pip install berdiff[onnx]`. Both ONNX Runtime and OpenVINO read them; export.json says how they are used.

    Args:
        model: a model folder, the folder of a run, or the name of bundled weights
        out: a new folder for encode.onnx, denoise.onnx and export.json
        size: H W of the images, fixed in the graphs; default: what the model was trained at
    """
    from berdiff.inference.model import load
    from berdiff.methods.export import export_onnx

    keep_freed_memory()
    loaded = load(model, size=size)
    said = export_onnx(loaded.segmenter, loaded.size, out)
    H, W = loaded.size
    print(f"{loaded.name} at {H}x{W}: at most {said['largest_difference_to_pytorch']:.1e} from PyTorch's numbers")
    print(f"written to {out}: {', '.join(said['files'])}, export.json")


def command(argv: list[str]) -> None:
    tyro.cli(export, args=argv, prog="berdiff export")

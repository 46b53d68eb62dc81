"""A model as two ONNX graphs: the encoder, run once an image, and the step network, run at each step of each mask.

For programs without PyTorch; ONNX Runtime and OpenVINO both read them. Height and width are fixed, the numbers of
images and of masks are free. Nothing appears that does not give PyTorch's own numbers.
"""

import json
import logging
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from berdiff.errors import InputError
from berdiff.files import whole_folder, write_text

TOLERANCE = 1e-4  # relative and absolute: float32 summed in another order
_NEEDED = ("onnx", "onnxscript", "onnxruntime")


def export_onnx(segmenter: Any, size: tuple[int, int], out: Path) -> dict[str, Any]:
    """Write encode.onnx, denoise.onnx and export.json into `out`, a new folder; returns what export.json says."""
    if (method := segmenter.config()["method"]) != "berdiff":  # what is described are Bernoulli steps
        raise InputError(f"the model: expected the method berdiff, found {method}")
    for package in _NEEDED:
        if find_spec(package) is None:
            raise InputError(f"{package}: expected the packages of `pip install berdiff[onnx]`, found it missing")
    if out.exists():
        raise InputError(f"--out: expected a folder that does not exist yet, found {out}")
    network = segmenter.network
    generator = torch.Generator().manual_seed(0)
    # the exporter takes a length of 1 for a fixed one; other lengths in the check show that none is fixed
    example, check = (_inputs(network, B, N, size, generator) for B, N in ((2, 3), (3, 2)))
    with whole_folder(out) as part, torch.no_grad():
        features, checked = (_flat(network.encode(image)) for image, _, _ in (example, check))
        maps = [f"feature{i}" for i in range(len(features))]
        encode, denoise = (["image"], maps), (["y_t", "t", *maps], ["logits"])
        _write(_Encode(network), example[:1], *encode, masks=False, file=part / "encode.onnx")
        _write(_Denoise(network), (*example[1:], *features), *denoise, masks=True, file=part / "denoise.onnx")
        logits = network.denoise(*check[1:], _nested(checked))
        difference = max(
            _compare(part / "encode.onnx", check[:1], checked),
            _compare(part / "denoise.onnx", (*check[1:], *checked), (logits,)),
        )
        said = _describe(segmenter, size, encode, denoise, difference)
        write_text(part / "export.json", json.dumps(said, indent=2) + "\n")
    return said


class _Encode(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return _flat(self.network.encode(image))


class _Denoise(nn.Module):
    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def forward(self, y_t: Tensor, t: Tensor, *features: Tensor) -> Tensor:
        return self.network.denoise(y_t, t, _nested(features))


def _flat(features: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One tensor (the paper's network: the image) or several, as the inputs and outputs of a graph."""
    return (features,) if isinstance(features, Tensor) else features


def _nested(features: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    return features[0] if len(features) == 1 else features


def _inputs(
    network: Any, B: int, N: int, size: tuple[int, int], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """image, y_t and t as sampling makes them."""
    image = torch.rand(B, network.image_channels, *size, generator=generator)
    y_t = torch.randint(2, (B, N, network.targets, *size), generator=generator).float()
    return image, y_t, torch.randint(1, 1001, (B, N), generator=generator)


def _write(
    module: nn.Module, args: tuple[Tensor, ...], inputs: list[str], outputs: list[str], masks: bool, file: Path
) -> None:
    free = torch.export.Dim.DYNAMIC
    # y_t and t have images and masks as their first lengths, all others images alone
    shapes = [{0: free, 1: free} if masks and name in ("y_t", "t") else {0: free} for name in inputs]
    dynamic = (*shapes[:2], tuple(shapes[2:])) if masks else tuple(shapes)
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of packages that we do not need
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's own deprecated parts
            torch.onnx.export(
                module.eval(),
                args,
                str(file),
                dynamo=True,
                input_names=inputs,
                output_names=outputs,
                dynamic_shapes=dynamic,
                external_data=False,
                verbose=False,
            )
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _compare(file: Path, args: Sequence[Tensor], expected: tuple[Tensor, ...]) -> float:
    """The largest difference to PyTorch's numbers."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    named = {put.name: value.contiguous().numpy() for put, value in zip(session.get_inputs(), args, strict=True)}
    found = [torch.from_numpy(array) for array in session.run(None, named)]
    largest = 0.0
    for ours, theirs in zip(expected, found, strict=True):
        difference = float((ours - theirs).abs().max())
        largest = max(largest, difference)
        if not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE):
            raise InputError(
                f"{file.name}: expected PyTorch's numbers within {TOLERANCE}, found {difference:.2g} beside"
            )
    return largest


def _describe(
    segmenter: Any,
    size: tuple[int, int],
    encode: tuple[list[str], list[str]],
    denoise: tuple[list[str], list[str]],
    difference: float,
) -> dict[str, Any]:
    return {
        "weights_sha256": segmenter.weights_sha256,
        "size": list(size),
        "about": segmenter.about,
        "config": segmenter.config(),
        "alpha_bar": segmenter.schedule.alpha_bar.tolist(),
        "largest_difference_to_pytorch": difference,
        "files": {
            "encode.onnx": {"inputs": encode[0], "outputs": encode[1], "run": "once an image"},
            "denoise.onnx": {"inputs": denoise[0], "outputs": denoise[1], "run": "at each step, for all masks at once"},
        },
        "shapes": {
            "image": "(images, channels, height, width) float32 in [0, 1]",
            "y_t": "(images, masks, targets, height, width) float32 of 0 and 1; at first each a fair coin",
            "t": "(images, masks) int64, 1 to T",
            "logits": f"like y_t: of the {segmenter.target} (config.target) being 1",
        },
    }

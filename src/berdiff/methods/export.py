"""A model as two ONNX graphs: the encoder, run once per image, and the step network, run at each step of each mask.

For programs without PyTorch; ONNX Runtime and OpenVINO both read them. Height and width are fixed, the numbers of
images and of masks are free. Nothing appears that does not give PyTorch's own numbers. What a program does with the
graphs' numbers, by sampler, hurdle and kind of targets, is in docs/onnx.md.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from berdiff import schema
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.kernels.categorical import Categorical
from berdiff.errors import InputError
from berdiff.files import whole_folder, write_text
from berdiff.methods.base import Segmenter
from berdiff.methods.berdiff.hurdle import Encoded, GatedDenoiser
from berdiff.methods.config import to_plain
from berdiff.methods.families.diffusion import DiffusionSegmenter
from berdiff.networks.denoiser import Denoiser

TOLERANCE = 1e-4  # relative and absolute: float32 summed in another order
PARTS = 3  # of the work, for its bar: two graphs, and the comparison
_NEEDED = ("onnx", "onnxscript", "onnxruntime")
Names = tuple[list[str], list[str]]  # of a graph's inputs and outputs


def export_onnx(
    segmenter: Segmenter,
    size: tuple[int, ...],
    out: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Write encode.onnx, denoise.onnx and export.json into `out`, a new folder; returns the content of export.json."""
    if not (isinstance(segmenter, DiffusionSegmenter) and isinstance(segmenter.kernel, Bernoulli | Categorical)):
        expected = "a Bernoulli diffusion or a categorical one"
        raise InputError(f"the model: expected {expected}, found {segmenter.config.method}", "unsupported")
    for package in _NEEDED:
        if find_spec(package) is None:
            raise InputError(f"{package} is not installed: pip install berdiff[onnx]", "missing")
    if out.exists():
        raise InputError(f"--out: {out} exists already", "conflict")
    network, kernel = segmenter.network.cpu(), segmenter.kernel  # on the CPU the graphs are compared
    gated = isinstance(network, GatedDenoiser)
    step, head = (network.network, ["empty"]) if gated else (network, [])
    generator = torch.Generator().manual_seed(0)
    # the exporter takes a length of 1 for a fixed one; other lengths in the check show that none is fixed
    example, check = (_inputs(network, kernel, B, N, size, generator) for B, N in ((2, 3), (3, 2)))
    with whole_folder(out) as part, torch.no_grad():
        encoded, checked = (_flat(network.encode(image)) for image, _, _ in (example, check))
        maps = [f"feature{i}" for i in range(len(encoded) - len(head))]
        features = checked[: len(maps)]
        encode: Names = ["image"], maps + head
        denoise: Names = ["y_t", "t", *maps], ["logits"]
        _write(_Encode(network), example[:1], encode, part / "encode.onnx")
        progress(1, PARTS)
        _write(_Denoise(step), (*example[1:], *encoded[: len(maps)]), denoise, part / "denoise.onnx")
        progress(2, PARTS)
        logits = step.denoise_mask(*check[1:], _nested(features))
        difference = max(
            _compare(part / "encode.onnx", check[:1], checked),
            _compare(part / "denoise.onnx", (*check[1:], *features), (logits,)),
        )
        progress(3, PARTS)
        files = {
            "encode.onnx": {"inputs": encode[0], "outputs": encode[1], "run": "once per image"},
            "denoise.onnx": {"inputs": denoise[0], "outputs": denoise[1], "run": "at each step, for all masks at once"},
        }
        about = {"size": size, "largest_difference_to_pytorch": difference, "files": files}
        content = schema.plain({**about, **_describe(segmenter, kernel)})
        write_text(part / "export.json", schema.dump(content))
    return content


class _Graph(nn.Module):
    def __init__(self, network: Denoiser[Any]) -> None:
        super().__init__()
        self.network = network


class _Encode(_Graph):
    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return _flat(self.network.encode(image))


class _Denoise(_Graph):
    def forward(self, y_t: Tensor, t: Tensor, *features: Tensor) -> Tensor:
        return self.network.denoise_mask(y_t, t, _nested(features))


def _flat(features: Tensor | tuple[Tensor, ...] | Encoded) -> tuple[Tensor, ...]:
    """One tensor (the paper's network: the image) or several, as the inputs and outputs of a graph; pi is the last."""
    if isinstance(features, Encoded):
        return (*_flat(features.features), features.empty)
    return (features,) if isinstance(features, Tensor) else features


def _nested(features: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """What `_flat` made flat."""
    return features[0] if len(features) == 1 else features


def _inputs(
    network: Denoiser[Any], kernel: Kernel, B: int, N: int, size: tuple[int, ...], generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """image, y_t and t as in sampling."""
    image = torch.rand(B, network.image_channels, *size, generator=generator)
    y_t = kernel.prior((B, N, network.targets, *size), generator, image)
    return image, y_t, torch.randint(1, 1001, (B, N), generator=generator)


def _write(module: nn.Module, args: tuple[Tensor, ...], names: Names, file: Path) -> None:
    free = torch.export.Dim.DYNAMIC
    # y_t and t have images and masks as their first lengths, all others only images
    shapes = [{0: free, 1: free} if name in ("y_t", "t") else {0: free} for name in names[0]]
    dynamic = (*shapes[:2], tuple(shapes[2:])) if "y_t" in names[0] else tuple(shapes)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it reports packages that we do not need
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter's own deprecated parts
            options: dict[str, Any] = {"input_names": names[0], "output_names": names[1], "dynamic_shapes": dynamic}
            options |= {"dynamo": True, "external_data": False, "verbose": False}
            torch.onnx.export(module.eval(), args, str(file), **options)  # pyright: ignore[reportUnknownMemberType]
    finally:
        logger.setLevel(level)


def _compare(file: Path, args: Sequence[Tensor], expected: tuple[Tensor, ...]) -> float:
    """The largest difference to PyTorch's numbers."""
    runtime: Any = import_module("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    named = {put.name: value.contiguous().numpy() for put, value in zip(session.get_inputs(), args, strict=True)}
    largest = 0.0
    for ours, theirs in zip(expected, map(torch.as_tensor, session.run(None, named)), strict=True):
        difference = float((ours - theirs).abs().max())
        largest = max(largest, difference)
        if not torch.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE):
            raise InputError(f"{file.name}: differs from PyTorch by {difference:.2g}, more than {TOLERANCE}", "damaged")
    return largest


def _describe(segmenter: DiffusionSegmenter, kernel: Bernoulli | Categorical) -> dict[str, Any]:
    shapes = {
        "image": "(images, channels, height, width) float32 in [0, 1]",
        "y_t": "(images, masks, targets, height, width) float32 of 0 and 1",
        "t": "(images, masks) int64, 1 to T",
        "logits": "like y_t",
    }
    about: dict[str, Any] = {
        "weights_sha256": segmenter.weights_sha256,
        "input_spec": segmenter.input_spec,
        "model": to_plain(segmenter.config),
        "alpha_bar": kernel.schedule.alpha_bar.tolist(),  # pyright: ignore[reportUnknownMemberType]
        "shapes": shapes,
        "targets": segmenter.kind,
        "hurdle": isinstance(kernel, Bernoulli) and kernel.nonempty,
        "how_to_sample": "docs/onnx.md",
    }
    if about["hurdle"]:
        shapes["empty"] = "(images,) float32: the logit of pi, the probability that a mask is empty"
    return about

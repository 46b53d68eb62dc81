"""The model of a training before its first step: its costs and settings need no trained weights."""

import torch

from berdiff.data.store import Store
from berdiff.errors import InputError
from berdiff.inference.model import Model
from berdiff.training.config import AnyConfig


def untrained(config: AnyConfig, store: Store, asked: str, device: str = "cpu") -> Model:
    """As the folder of the trained model would open; `asked` is the option or file that a misfit is reported of."""
    spec = config.data.seen(store.input_spec)
    try:
        segmenter = config.model.build(spec)
    except ValueError as error:
        raise InputError(
            f"{asked}: the method {config.model.method} does not fit the data: {error}", "conflict"
        ) from error
    segmenter.to(device, memory_format=torch.channels_last).eval()  # pyright: ignore[reportCallIssue]
    crop = None if spec.patches else min(spec.size)
    return Model(segmenter, config.model.method, segmenter.input_spec, spec.size, device, crop=crop)

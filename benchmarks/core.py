"""The paper's 85.6 M U-Net at 128x128: a training step, and sampling."""

import torch

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.bernoulli import predict_y0_logits, q_sample
from berdiff.diffusion.losses import bce_loss, kl_loss
from berdiff.diffusion.sampler import Sampler
from berdiff.memory import keep_freed_memory
from berdiff.methods.berdiff import BerDiff
from reproduce.side_by_side import durations

BATCH, SIZE = 2, 128
SPEC = InputSpec((SIZE, SIZE), ("ct",), ("nodule",))


def training_step() -> dict[str, float]:
    """KL + BCE from one pass, against a pass for each loss (the paper's release) and against channels_last.

    We train in the default format, so `step_vs_default_format` is 1 by construction.
    """
    keep_freed_memory()  # as every command that runs a network does
    model, other = (BerDiff("paper-128").build(SPEC) for _ in range(2))
    other.to(memory_format=torch.channels_last)
    schedule = model.kernel.schedule
    image, masks = torch.rand(BATCH, 1, SIZE, SIZE), torch.randint(2, (BATCH, 4, 1, SIZE, SIZE))
    generator = torch.Generator().manual_seed(0)

    def one_pass() -> None:
        model.zero_grad(set_to_none=True)
        model.loss(image, masks, generator)["loss"].backward()

    def two_passes() -> None:
        """As the release does it: the network is asked once for each loss."""
        model.zero_grad(set_to_none=True)
        y0, t = masks[:, :1].float(), torch.randint(1, 1001, (BATCH, 1))
        y_t, eps = q_sample(schedule, y0, t, generator)
        kl_logits = predict_y0_logits(y_t, model.network.denoise(y_t, t, image))
        kl = kl_loss(schedule, y_t, y0, kl_logits, t, t - 1).mean()
        bce = bce_loss(eps, model.network.denoise(y_t, t, image)).mean()
        (kl + bce).backward()

    def channels_last() -> None:
        other.zero_grad(set_to_none=True)
        other.loss(image, masks, generator)["loss"].backward()

    ours, twice, last = durations(one_pass, two_passes, channels_last, repeats=2)
    return {
        "step_seconds": ours,
        "step_vs_two_passes": twice / ours,
        "step_vs_default_format": 1.0,
        "step_vs_channels_last": last / ours,
    }


def sampling() -> dict[str, float]:
    """16 masks of one image in one batch, against one by one; two steps, since the cost is the same for each."""
    keep_freed_memory()
    model = BerDiff("paper-128").build(SPEC).eval()
    model.to(memory_format=torch.channels_last)  # as `methods.folder.load` makes it
    image, generator = torch.rand(1, 1, SIZE, SIZE), torch.Generator().manual_seed(0)
    sampler = Sampler(steps=2)

    def batched() -> None:
        model.sample(image, 16, generator, sampler)

    def single() -> None:
        for _ in range(16):
            model.sample(image, 1, generator, sampler)

    together, one_by_one = durations(batched, single, repeats=1)
    return {"sample16_seconds_per_step": together / 2, "sample16_batched_vs_single": one_by_one / together}

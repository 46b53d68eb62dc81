"""The paper's 85.6 M U-Net at 128x128: a training step, and sampling."""

import torch

from benchmarks.side_by_side import durations
from berdiff.diffusion.bernoulli import predict_y0_logits, q_sample
from berdiff.diffusion.losses import bce_loss, kl_loss
from berdiff.diffusion.sampling import Sampler
from berdiff.diffusion.schedule import linear
from berdiff.methods.berdiff import BerDiff
from berdiff.networks.paper import make_network

BATCH, SIZE = 2, 128


def training_step() -> dict[str, float]:
    """KL + BCE from one pass, against a pass for each loss (the paper's release) and against the default format."""
    model = BerDiff(make_network("paper-128"), linear())
    plain = BerDiff(make_network("paper-128"), linear())
    plain.network.unet.to(memory_format=torch.contiguous_format)
    image, masks = torch.rand(BATCH, 1, SIZE, SIZE), torch.randint(2, (BATCH, 4, 1, SIZE, SIZE))
    generator = torch.Generator().manual_seed(0)

    def one_pass() -> None:
        model.zero_grad(set_to_none=True)
        model.loss(image, masks, generator)["loss"].backward()

    def two_passes() -> None:
        """As the release does it: the network is asked once for each loss."""
        model.zero_grad(set_to_none=True)
        y0, t = masks[:, :1].float(), torch.randint(1, 1001, (BATCH, 1))
        y_t, eps = q_sample(model.schedule, y0, t, generator)
        kl_logits = predict_y0_logits(y_t, model.network.denoise(y_t, t, image))
        kl = kl_loss(model.schedule, y_t, y0, kl_logits, t, t - 1).mean()
        bce = bce_loss(eps, model.network.denoise(y_t, t, image)).mean()
        (kl + bce).backward()

    def default_format() -> None:
        plain.zero_grad(set_to_none=True)
        y0, t = masks[:, :1].float(), torch.randint(1, 1001, (BATCH, 1))
        y_t, eps = q_sample(plain.schedule, y0, t, generator)
        logits = plain.network.unet(torch.cat([y_t[:, 0], image], 1), t.flatten()).unsqueeze(1)
        kl = kl_loss(plain.schedule, y_t, y0, predict_y0_logits(y_t, logits), t, t - 1).mean()
        (kl + bce_loss(eps, logits).mean()).backward()

    ours, twice, default = durations(one_pass, two_passes, default_format)
    return {
        "step_seconds": ours,
        "step_vs_two_passes": twice / ours,
        "step_vs_default_format": default / ours,
    }


def sampling() -> dict[str, float]:
    """16 masks of one image in one batch, against one by one; two steps, since the cost is the same for each."""
    model = BerDiff(make_network("paper-128"), linear()).eval()
    image, generator = torch.rand(1, 1, SIZE, SIZE), torch.Generator().manual_seed(0)
    sampler = Sampler(steps=2)

    def batched() -> None:
        model.sample(image, 16, generator, sampler)

    def single() -> None:
        for _ in range(16):
            model.sample(image, 1, generator, sampler)

    together, one_by_one = durations(batched, single, repeats=2)
    return {"sample16_seconds_a_step": together / 2, "sample16_batched_vs_single": one_by_one / together}

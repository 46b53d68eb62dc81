"""What every network of a diffusion promises: shapes, each mask for itself, gradients, and what it refuses."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnnecessaryIsInstance=false

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from berdiff.networks.build import make_network
from berdiff.networks.denoiser import Denoiser
from berdiff.networks.whole import Whole
from berdiff.testing.contract import Contract, expect, refuses
from berdiff.testing.examples import awaken, generator

N = 3  # masks per image


@dataclass(frozen=True)
class Network:
    fresh: Denoiser[Any]
    awaken: Callable[[nn.Module], None]
    size: tuple[int, ...]

    def net(self) -> Denoiser[Any]:
        """A copy with weights that have something to say, in evaluation."""
        torch.manual_seed(0)
        net = copy.deepcopy(self.fresh)
        self.awaken(net)
        return net.eval()

    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """(image, y_t, t), all different."""
        B, C, K = 2, self.fresh.image_channels, self.fresh.targets
        image = torch.rand(B, C, *self.size, generator=generator())
        y_t = torch.randint(2, (B, N, K, *self.size), generator=generator(1)).float()
        return image, y_t, torch.randperm(1000, generator=generator(2))[: B * N].reshape(B, N) + 1


contract = Contract[Network]()


def check_network(
    network: str | Denoiser[Any],
    size: tuple[int, ...] | None = None,
    awaken: Callable[[nn.Module], None] = awaken,
) -> None:
    """ContractError unless a network keeps the promises of every `Denoiser`.

    `network`: one of any channels and targets, or the name of a preset. `size`: of images; by default 2 x 3 strides.
    `awaken`: as in `check_method`.
    """
    net = make_network(network, 2, 2) if isinstance(network, str) else network
    size = size or (2 * net.stride, 3 * net.stride)
    contract.run(f"network {net.preset}", Network(net, awaken, size))


def logits(net: Denoiser[Any], image: Tensor, y_t: Tensor, t: Tensor) -> Tensor:
    return net.denoise(y_t, t, net.encode(image))


@contract
def other_channels_and_sizes_are_refused(network: Network) -> None:
    net, (image, *_) = network.net(), network.inputs()
    wrong = {"other channels": image.repeat(1, 2, *[1] * len(network.size))}
    if net.stride > 1:
        wrong["a size that is no multiple of the stride"] = image[..., 1:]
    for what, bad in wrong.items():
        sentence = refuses(lambda bad=bad: net.encode(bad), ValueError, what)
        expect(sentence.startswith("image"), f"{what} is refused as {sentence!r}")


@contract
def logits_of_masks_together_are_those_one_by_one_in_any_memory_format(network: Network) -> None:
    net, (image, y_t, t) = network.net(), network.inputs()
    together = logits(net, image, y_t, t).detach()
    expect(together.shape == y_t.shape, f"{tuple(together.shape)} for masks {tuple(y_t.shape)}")
    expect(bool(together.isfinite().all()), "some are not finite")
    if len(network.size) == 2:
        net.to(memory_format=torch.channels_last)  # pyright: ignore
    for b, i in product(range(2), range(N)):
        one = logits(net, image[b : b + 1], y_t[b : b + 1, i : i + 1], t[b : b + 1, i : i + 1])
        torch.testing.assert_close(one[0, 0], together[b, i], rtol=1e-3, atol=3e-4)


@contract
def a_change_reaches_its_own_masks_and_no_other(network: Network) -> None:
    net, (image, y_t, t) = network.net(), network.inputs()
    sees_masks = not isinstance(net, Whole)
    before = logits(net, image, y_t, t).detach()
    other_image, other_mask, other_step = image.clone(), y_t.clone(), t.clone()
    other_image[1], other_mask[1, 2], other_step[1, 2] = 1 - image[1], 1 - y_t[1, 2], 1001 - t[1, 2]
    changes = {
        "image": (logits(net, other_image, y_t, t), [False] * N + [True] * N),
        "mask": (logits(net, image, other_mask, t), [False] * (2 * N - 1) + [sees_masks]),
        "step": (logits(net, image, y_t, other_step), [False] * (2 * N - 1) + [sees_masks]),
    }
    for what, (found, touched) in changes.items():
        change = (found.detach() - before).abs().flatten(0, 1).flatten(1).amax(1)
        moved = (change > 1e-4).tolist()
        expect(moved == touched, f"another {what} moves masks {moved}, not {touched}")


@contract
def features_serve_every_step_and_a_copy_is_the_same_network(network: Network) -> None:
    net, (image, y_t, t) = network.net(), network.inputs()
    out = logits(net, image, y_t, t)  # with a history, of which nothing may stay behind
    expect(torch.equal(logits(copy.deepcopy(net), image, y_t, t), out), "a copy has other logits")
    expect(isinstance(net.preset, str) and net.stride >= 1, f"preset {net.preset!r}, stride {net.stride}")
    with torch.no_grad():
        features = net.encode(image)
        first = net.denoise(y_t, t, features)
        net.denoise(1 - y_t, 1001 - t, features)
        logits(net, 1 - image, y_t, t)
        expect(torch.equal(net.denoise(y_t, t, features), first), "the same call has other logits later")


@contract
def a_summary_leaves_the_features_as_they_are(network: Network) -> None:
    net, (image, y_t, t) = network.net(), network.inputs()
    if not net.summary_width:
        refuses(lambda: net.encode_and_summarise(image), ValueError, "a summary of width 0")
        return
    with torch.no_grad():
        features, summary = net.encode_and_summarise(image)
        expect(summary.shape == (2, net.summary_width), f"the summary of two images is {tuple(summary.shape)}")
        same = torch.equal(net.denoise(y_t, t, features), logits(net, image, y_t, t))
    expect(same, "features differ from those of `encode`")


@contract
def every_parameter_gets_a_gradient_and_has_one_name(network: Network) -> None:
    net = network.net().train()
    image, y_t, t = network.inputs()
    outputs = net.levels(image) if isinstance(net, Whole) else [logits(net, image, y_t, t)]  # deep supervision
    torch.stack([output.square().mean() for output in outputs]).sum().backward()
    still = [name for name, p in net.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
    expect(not still, ", ".join(still[:5]))
    state = {name: value for name, value in net.state_dict().items() if value.numel()}
    expect(len({value.data_ptr() for value in state.values()}) == len(state), "one tensor has two names")

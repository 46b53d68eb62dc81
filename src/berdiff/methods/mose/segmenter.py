"""The segmenter of MoSE: samples of every expert are carried to the raters, and the gate follows what they took."""

import torch
from torch import Tensor

from berdiff.data.input_spec import InputSpec
from berdiff.diffusion.random import Generators, normal, uniform
from berdiff.methods.base import SampleRequest, Terms
from berdiff.methods.families.encoded import EncodedSegmenter, Shape
from berdiff.methods.mose import MoSE
from berdiff.methods.mose.network import Encoded
from berdiff.methods.mose.network import MoSE as Network
from berdiff.methods.mose.transport import gate_kl, greedy_coupling, soft_iou_cost


class MixtureSegmenter(EncodedSegmenter):
    average_buffers = True  # BatchNorm's
    training_state = ("steps",)  # of the cap
    config: MoSE
    steps: Tensor

    def __init__(self, config: MoSE, input_spec: InputSpec, network: Network) -> None:
        super().__init__(config, input_spec, network.stride)
        self.network, self.raters = network, "all"
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def loss(self, image: Tensor, masks: Tensor, generators: Generators) -> Terms:
        """sum P C, the cost of carrying every rater to the samples, + beta KL(mass of each expert || gate)."""
        self.check_batch(image, masks)
        E, S = self.config.experts, self.config.samples_per_expert
        features, log_gate = self.network.encode(image)
        expert = torch.arange(E, device=image.device).repeat_interleave(S).expand(len(image), -1)
        noise = normal((*expert.shape, self.network.dims), generators, log_gate)
        p = self.network.decode(features, self.network.latents(expert, noise)).float().sigmoid()
        cost = soft_iou_cost(p, masks)
        coupling = greedy_coupling(cost, self.config.cap if self.steps < self.config.cap_steps else 1.0)
        transport = (coupling * cost).sum((1, 2)).mean()
        kl = gate_kl(coupling.sum(2).reshape(-1, E, S).sum(2), log_gate).mean()
        return {"loss": transport + self.config.beta * kl, "transport": transport, "kl": kl}

    def after_step(self, terms: Terms) -> None:
        self.steps += 1

    def draw(self, features: Encoded, shape: Shape, request: SampleRequest) -> Tensor:
        """Of a sample: the expert, then its z. A pixel is marked where it is more probable than not, given z."""
        maps, log_gate = features
        level = uniform(shape[:2], request.generators, log_gate)
        cumulated = log_gate.exp().cumsum(1)[:, :-1].contiguous()  # the last is 1, but for rounding
        expert = torch.searchsorted(cumulated, level.to(cumulated.dtype), right=True)
        noise = normal((*shape[:2], self.network.dims), request.generators, log_gate)
        return self.network.decode(maps, self.network.latents(expert, noise)) > 0

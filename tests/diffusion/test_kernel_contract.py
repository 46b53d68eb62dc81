"""Every kernel keeps the contract of `berdiff.testing`, and the contract sees what a broken kernel does."""

from dataclasses import replace

import pytest
import torch

from berdiff.diffusion.flow import Flow
from berdiff.diffusion.gaussian import Gaussian
from berdiff.diffusion.kernels.bernoulli import Bernoulli
from berdiff.diffusion.kernels.categorical import Categorical
from berdiff.diffusion.nested import Nested
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.schedule import make_schedule
from berdiff.testing import ContractError, check_kernel
from berdiff.testing.kernels import contract
from refusals import refused

COSINE, POWER = make_schedule("cosine", 100), make_schedule("power2.5", 100)
ODE, SHARED = Sampler(sigma=0.0), Sampler(noise="shared", last_step="sample")
KERNELS = {
    **{
        f"bernoulli, {name}": (Bernoulli(COSINE, name), Sampler(), "independent") for name in ("noise", "mask", "prior")
    },
    "bernoulli, ddpm": (Bernoulli(POWER, posterior="marginal"), Sampler(rule="ddpm"), "independent"),
    "bernoulli, hurdle": (Bernoulli(POWER, "mask", nonempty=True), SHARED, "independent"),
    "bernoulli, shared": (Bernoulli(POWER, "mask"), SHARED, "independent"),
    "categorical": (Categorical(COSINE), Sampler(), "exclusive"),
    "categorical, ddpm": (Categorical(POWER, posterior="marginal"), Sampler(rule="ddpm"), "exclusive"),
    "nested": (Nested(COSINE), Sampler(), "nested"),
    "nested, hurdle": (Nested(POWER, nonempty=True, inner_weight=2.0), SHARED, "nested"),
    "gaussian, noise": (Gaussian(COSINE), ODE, "independent"),
    "gaussian, mask": (Gaussian(COSINE, "mask"), Sampler(rule="ddpm"), "independent"),
    "flow, velocity": (Flow(POWER), ODE, "independent"),
    "flow, mask": (Flow(POWER, "mask"), ODE, "independent"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_keeps_the_contract(name: str):
    check_kernel(*KERNELS[name])


SIGNED = ({"posterior": "marginal"}, {"last_step": "sample"}, {"noise": "shared"}, {"smallest": 4})
OTHERS = {  # choices that a kernel does not have
    "bernoulli, noise": [{"smallest": 4}],
    "bernoulli, hurdle": [{"last_step": "sample"}],
    "categorical": [{"smallest": 8}],
    "gaussian, noise": SIGNED,
    "flow, velocity": [*SIGNED, {"rule": "ddpm"}, {"sigma": 0.5}],
}


@pytest.mark.parametrize(("name", "choice"), [(name, choice) for name, of in OTHERS.items() for choice in of], ids=str)
def test_what_a_kernel_does_not_have_is_refused(name: str, choice: dict):
    kernel, sampler, _ = KERNELS[name]
    kernel.check(sampler)
    usual = Sampler(sigma=0.0) if "flow" in name else Sampler()
    with refused(f"{next(iter(choice))}:" if "hurdle" not in name else "noise:", error=ValueError):
        kernel.check(replace(usual, **choice))


# --- the contract can fail -------------------------------------------------------------------------------------------


def broken(promise: str, **methods):
    """A Bernoulli kernel whose methods are wrapped: each gets (kernel, what the kernel gives, its arguments)."""

    def wrapped(name, change):
        return lambda self, *args: change(self, getattr(Bernoulli, name)(self, *args), *args)

    return promise, type("Broken", (Bernoulli,), {name: wrapped(name, of) for name, of in methods.items()})


def in_the_batch(self, drawn, *args):
    return drawn[0].roll(1, 0), drawn[1].roll(1, 0)


def all_of_the_mask(self, drawn, y0, t, generators):
    return y0, drawn[1]


def sum_over_pixels(self, terms, output, *args):
    return {"loss": terms["loss"] * (1 if args[-1] is None else output[0, 0].numel())}


def infinite_when_sure(self, terms, output, *args):
    return {"loss": terms["loss"] - (1 - output.sigmoid()).log().mean()}


def of_the_other_mask(self, terms, output, y0, y_t, *args):
    return Bernoulli.loss(self, output, y0, 1 - y_t, 1 - (y0 - (1 - y_t)).abs(), *args)


BROKEN = [
    broken("noise is drawn mask by mask from its generators alone", q_sample=in_the_batch),
    broken("noise is drawn mask by mask from its generators alone", prior=lambda self, y, *args: torch.rand_like(y)),
    broken("after T steps a mask is pure noise", q_sample=all_of_the_mask),
    broken("a loss is the mean over masks or their weighted sum", loss=sum_over_pixels),
    broken(
        "the loss and its gradient are finite at both ends for empty and full masks and sure outputs",
        loss=infinite_when_sure,
    ),
    broken("what the loss teaches the step draws", loss=of_the_other_mask),
    broken("what the loss teaches the step draws", step=lambda self, drawn, *args: (1 - drawn[0], drawn[1])),
    broken("a step draws mask by mask from its generators alone", step=in_the_batch),
    broken("samples are masks of their kind and every step is seen", to_mask=lambda self, mask, *args: mask / 2),
    broken("tiles of one output have its mean", from_mean=lambda self, output, *args: output + 0.01),
]


@pytest.mark.parametrize(("promise", "kind"), BROKEN, ids=lambda value: value if isinstance(value, str) else "")
def test_a_kernel_that_breaks_it_is_named(promise: str, kind):
    with pytest.raises(ContractError) as caught:
        check_kernel(kind(COSINE, "mask"))
    assert f"\n- {promise}: " in str(caught.value)


def test_every_promise_has_a_kernel_that_breaks_it():
    assert {promise for promise, _ in BROKEN} == set(contract.checks)

"""What the noise of every diffusion promises: q_sample, the loss, the reverse step and the means of tiles agree."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from berdiff.data.input_spec import Kind
from berdiff.diffusion.kernels.base import Kernel
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Step
from berdiff.diffusion.sampling import sample as run
from berdiff.targets.targets import Targets
from berdiff.testing.contract import Contract, expect
from berdiff.testing.examples import KEYS, generator, generators, masks

B, N, SIDE = 3, 2, 6


@dataclass(frozen=True)
class Process:
    """A kernel, the sampler to run it by, and masks of its kind. All calls of a kernel are here."""

    kernel: Kernel
    sampler: Sampler
    kind: Kind
    targets: int

    @property
    def T(self) -> int:
        return self.kernel.schedule.T

    def y0(self, count: int = N, side: int = SIDE) -> Tensor:
        y0 = masks((B, count, self.targets, side, side), self.kind).float()
        y0[..., 0, 0] = 1.0 if self.kind != "exclusive" else y0[..., 0, 0]  # of a hurdle no mask is empty
        return y0

    def noisy(self, y0: Tensor, t: Tensor, which: Sequence[int] = range(B)) -> tuple[Tensor, Tensor]:
        rows = list(which)
        return self.kernel.q_sample(y0[rows], t[rows], generators([KEYS[i] for i in rows], y0.shape[1]))

    def terms(self, output: Tensor, y0: Tensor, t: Tensor, weight: Tensor | None = None) -> dict[str, Tensor]:
        return self.kernel.loss(output, y0, *self.noisy(y0, t), t, weight)

    def step(self, output: Tensor, y_t: Tensor, t: int, s: int, which: Sequence[int] = range(B)) -> tuple[Tensor, ...]:
        rows = list(which)
        own = generators([KEYS[i] for i in rows], y_t.shape[1])
        return self.kernel.step(self.sampler, output[rows], y_t[rows], t, s, own)

    def masks(self, n: int = N, callback: Callable[[Step], None] | None = None, steps: int = 3) -> Tensor:
        """By an estimate that depends on the noisy mask, sure of some pixels and not of others."""
        own = generators(KEYS[:B], n)
        y_T = self.kernel.prior((B, n, self.targets, SIDE, SIDE), own, torch.zeros(()))
        pixels = torch.sin(torch.arange(y_T[0, 0].numel()).float() ** 2).reshape(y_T.shape[2:])
        few = replace(self.sampler, steps=min(steps, self.T))
        return run(self.kernel, few, lambda y, t: 3 * pixels + 2 * y, y_T, own, callback)


contract = Contract[Process]()


def check_kernel(
    process: Kernel, sampler: Sampler | None = None, kind: Kind = "independent", targets: int | None = None
) -> None:
    """ContractError unless the noise of a diffusion keeps the promises of every kernel.

    `sampler`: one that the kernel follows, by default the paper's. `kind`, `targets`: of the masks that it is for.
    """
    targets = targets or (1 if kind == "independent" else 3)
    contract.run(f"kernel {type(process).__name__}", Process(process, sampler or Sampler(), kind, targets))


@contract
def noise_is_drawn_mask_by_mask_from_its_generators_alone(p: Process) -> None:
    y0, t = p.y0(), torch.arange(1, 1 + B * N).reshape(B, N) * p.T // (B * N)
    t = t.clamp(min=1)
    y_t, eps = p.noisy(y0, t)
    expect(y_t.shape == eps.shape == y0.shape, f"{tuple(y_t.shape)} and {tuple(eps.shape)} for {tuple(y0.shape)}")
    expect(bool(y_t.isfinite().all()), "some values are not finite")
    torch.manual_seed(1)
    expect(torch.equal(p.noisy(y0, t)[0], y_t), "the same generators give other noise")
    expect(torch.equal(p.noisy(y0, t, [2, 0])[0], y_t[[2, 0]]), "noise depends on the batch")
    shape, like = (B, N, p.targets, SIDE, SIDE), torch.zeros(())
    y_T = p.kernel.prior(shape, generators(KEYS[:B], N), like)
    alone = p.kernel.prior((1, *shape[1:]), generators(KEYS[1:2], N), like)
    expect(y_T.shape == shape and torch.equal(y_T[1:2], alone), "pure noise depends on the batch")


@contract
def after_T_steps_a_mask_is_pure_noise(p: Process) -> None:
    """6,000 values or more, means within 5 standard errors and .02 for what the schedule keeps."""
    side, like = 45, torch.zeros(())
    y0, t = p.y0(1, side), torch.full((B, 1), p.T)
    y_T, _ = p.noisy(y0, t)
    pure = p.kernel.prior(y0.shape, generator(5), like)
    spread = float(pure.std())
    for what, found in {"all": y_T, "marked": y_T[y0 == 1], "other": y_T[y0 == 0]}.items():
        error = 5 * spread * (1 / found.numel() + 1 / pure.numel()) ** 0.5 + 0.02
        apart = abs(float(found.mean() - pure.mean()))
        expect(apart < error, f"the mean of {what} pixels is {apart:.3f} from that of pure noise")


@contract
def a_loss_is_the_mean_over_masks_or_their_weighted_sum(p: Process) -> None:
    y0, t = p.y0(), torch.randint(1, p.T + 1, (B, N), generator=generator())
    output = torch.randn(y0.shape, generator=generator(1), requires_grad=True)
    terms = p.terms(output, y0, t)
    expect("loss" in terms, f"no loss among {', '.join(terms)}")
    odd = [name for name, value in terms.items() if value.shape != () or not bool(value.isfinite())]
    expect(not odd, f"no finite numbers: {', '.join(odd)}")
    weight = torch.tensor([[0.2, 0.0], [1.5, 0.0], [0.0, 0.7]])
    even, weighted = (p.terms(output, y0, t, of) for of in (torch.full((B, N), 1 / (B * N)), weight))
    parts = output, y0, *p.noisy(y0, t), t
    of_each = {(b, i): p.kernel.loss(*(x[b : b + 1, i : i + 1] for x in parts)) for b in range(B) for i in range(N)}
    for name, value in terms.items():
        torch.testing.assert_close(even[name], value, rtol=1e-4, atol=1e-5)
        alone = sum(float(weight[place]) * of[name] for place, of in of_each.items())
        torch.testing.assert_close(weighted[name], alone, rtol=1e-4, atol=1e-5)
    (grad,) = torch.autograd.grad(weighted["loss"], output)
    taught = grad.flatten(2).any(2)
    expect(torch.equal(taught, weight > 0), f"weights {weight.tolist()} teach masks {taught.tolist()}")


@contract
def the_loss_and_its_gradient_are_finite_at_both_ends_for_empty_and_full_masks_and_sure_outputs(p: Process) -> None:
    for t, filled, sure in ((t, filled, sure) for t in (1, p.T) for filled in (0, 1) for sure in (-60.0, 0.0, 60.0)):
        y0 = torch.full((B, N, p.targets, SIDE, SIDE), float(filled))
        if p.kind == "exclusive":
            y0[:, :, 1:] = 0
        output = torch.full_like(y0, sure).requires_grad_()
        loss = p.terms(output, y0, torch.full((B, N), t))["loss"]
        loss.backward()
        assert output.grad is not None
        finite = bool(loss.isfinite()) and bool(output.grad.isfinite().all())
        expect(finite, f"not at t = {t}, masks of {filled}, outputs of {sure:g}")


@contract
def what_the_loss_teaches_the_step_draws(p: Process) -> None:
    """An output that lowers the loss as far as it goes leads back to the mask."""
    y0, t = p.y0(), max(1, p.T // 2)
    times = torch.full((B, N), t)
    output = torch.zeros(y0.shape, requires_grad=True)
    optimizer = torch.optim.Adam([output], 0.1)
    for _ in range(200):
        optimizer.zero_grad()
        (y0.numel() * p.terms(output, y0, times)["loss"]).backward()
        optimizer.step()
    y_t, _ = p.noisy(y0, times)
    y_s, y0_hat = p.step(output.detach(), y_t, t, 0)
    expect(y0_hat.shape == y0.shape, f"the estimate is {tuple(y0_hat.shape)}")
    wrong = float((p.kernel.to_mask(y_s) != y0).float().mean())
    expect(wrong <= 0.01, f"{wrong:.1%} of the pixels are others")


@contract
def a_step_draws_mask_by_mask_from_its_generators_alone(p: Process) -> None:
    y0 = p.y0()
    y_t, _ = p.noisy(y0, torch.full((B, N), p.T))
    output = torch.randn(y0.shape, generator=generator(1))
    for s in (p.T // 2, 0):
        y_s, y0_hat = p.step(output, y_t, p.T, s)
        expect(y_s.shape == y0_hat.shape == y0.shape, f"{tuple(y_s.shape)} for {tuple(y0.shape)}")
        expect(bool(y_s.isfinite().all()), f"some values at s = {s} are not finite")
        torch.manual_seed(1)
        expect(torch.equal(p.step(output, y_t, p.T, s)[0], y_s), "the same generators give another mask")
        expect(torch.equal(p.step(output, y_t, p.T, s, [2, 0])[0], y_s[[2, 0]]), "a step depends on the batch")


@contract
def samples_are_masks_of_their_kind_and_every_step_is_seen(p: Process) -> None:
    steps: list[Step] = []
    found = p.masks(4, steps.append)
    values = set(found.unique().tolist())
    expect(values <= {0.0, 1.0}, f"masks hold {sorted(values)[:5]}")
    broken = Targets(tuple(KEYS[: p.targets]), p.kind).violation(found.flatten(0, 1).numpy().astype("uint8"))
    expect(not broken, f"of {p.kind} targets {broken}")
    times = [(step.t, step.s) for step in steps]
    falling = all(t > s for t, s in times) and times[0][0] == p.T and times[-1][1] == 0
    expect(falling, f"steps are {times}")
    expect(torch.equal(p.masks(2)[:, 0], p.masks(4)[:, 0]), "a mask depends on how many are drawn")


@contract
def tiles_of_one_output_have_its_mean(p: Process) -> None:
    output = 3 * torch.randn(p.y0().shape, generator=generator(1), dtype=torch.float64)
    mean = p.kernel.to_mean(output)
    expect(mean.shape == output.shape, f"a mean is {tuple(mean.shape)}")
    torch.testing.assert_close(p.kernel.from_mean(mean), output, rtol=1e-6, atol=1e-6)

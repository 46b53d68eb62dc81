"""What every method promises: its configuration, the loss, samples, checkpoints and model folders."""
# pyright: reportUnknownMemberType=false

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from berdiff.data.input_spec import Kind
from berdiff.errors import InputError
from berdiff.methods import folder
from berdiff.methods.base import Segmenter
from berdiff.methods.config import MethodConfig, from_plain, method_class, to_plain
from berdiff.targets.targets import Targets
from berdiff.testing.contract import Contract, expect, refuses
from berdiff.testing.examples import KEYS, awaken, generator, generators, images, input_spec, masks

ROUNDING = 0.01  # share of pixels that may differ where only rounding does
KINDS: tuple[Kind, ...] = ("independent", "nested", "exclusive")


@dataclass(frozen=True)
class Method:
    config: MethodConfig
    size: tuple[int, ...]
    random: bool
    awaken: Callable[[nn.Module], None]

    def build(self, channels: int = 1, targets: int = 1, kind: Kind = "independent") -> Segmenter:
        """With weights that have something to say, in evaluation; a pass holds four masks."""
        torch.manual_seed(0)
        segmenter = self.config.build(input_spec(self.size, channels, targets, kind))
        self.awaken(segmenter)
        segmenter.masks_per_pass = 4
        return segmenter.eval()

    def kinds(self) -> list[Kind]:
        """Those of its kinds that this configuration takes."""
        return [kind for kind in self.config.kinds if _builds(self.config, self.size, kind)]


contract = Contract[Method]()


def check_method(
    method: str | type[MethodConfig] | MethodConfig,
    size: Sequence[int] = (16, 16),
    random: bool = True,
    awaken: Callable[[nn.Module], None] = awaken,
) -> None:
    """ContractError unless a method keeps the promises of every method.

    `method`: a configuration (a small one is quicker), its class, or its name. `size`: of images that it takes.
    `random`: whether masks of one image differ. `awaken` gives fresh weights something to say: masks are all alike
    where the last layer begins as zeros.
    """
    kind = method_class(method) if isinstance(method, str) else method
    config = kind() if isinstance(kind, type) else kind
    contract.run(f"method {config.method}", Method(config, tuple(size), random, awaken))


# --- the two calls that everything below makes -----------------------------------------------------------------------


def loss(segmenter: Segmenter, which: Sequence[int] = (0, 1, 2), R: int = 4, seed: int = 1) -> dict[str, Tensor]:
    """The terms of some of three images, each with its own generator."""
    spec, rows = segmenter.input_spec, list(which)
    y = masks((3, R, len(spec.targets), *spec.size), segmenter.kind, seed)
    return dict(segmenter.loss(images(spec)[rows], y[rows], generators([KEYS[i] for i in rows])))


def sample(segmenter: Segmenter, which: Sequence[int] = (0, 1, 2), n: int = 3) -> Tensor:
    """n masks of some of five images, each with its own generator; with n = 2 images share a pass, with 3 none does."""
    rows = list(which)
    return segmenter.sample(images(segmenter.input_spec, 5)[rows], n, generators([KEYS[i] for i in rows], n))


# --- the configuration -----------------------------------------------------------------------------------------------


@contract
def its_configuration_survives_JSON(method: Method) -> None:
    config = method.config
    expect(dataclasses.is_dataclass(config), f"{type(config).__name__} is no dataclass")
    expect(method_class(config.method) is type(config), f"the name {config.method} stands for another class")
    again = from_plain(to_plain(config), str)
    expect(again == config, f"{config} came back as {again}")
    refuses(lambda: from_plain({**to_plain(config), "no such setting": 1}, str), InputError, "an unknown setting")


@contract
def it_draws_a_kind_of_targets_or_refuses_it(method: Method) -> None:
    config = method.config
    expect(config.kinds and set(config.kinds) <= set(KINDS), f"kinds are {config.kinds}")
    expect(method.kinds(), f"no segmenter is built for {' or '.join(config.kinds)} targets")
    for kind in set(KINDS) - set(config.kinds):
        several, one = input_spec(method.size, 1, 3, kind), input_spec(method.size, 1, 1, kind)
        refuses(lambda spec=several: config.build(spec), InputError, f"a spec of {kind} targets")
        expect(config.build(one).kind == "independent", "one target alone is not of every kind")


def _builds(config: MethodConfig, size: Sequence[int], kind: Kind) -> bool:
    try:
        config.build(input_spec(size, 1, 3, kind))
    except InputError:
        return False
    return True


@contract
def a_segmenter_is_what_its_configuration_and_its_spec_say(method: Method) -> None:
    kind = method.kinds()[0]
    segmenter, again = (method.build(2, 2, kind) for _ in range(2))
    first, second = ({name: value.shape for name, value in of.state_dict().items()} for of in (segmenter, again))
    expect(first == second, f"built twice, {sorted(set(first.items()) ^ set(second.items()))[:3]} differ")
    expect(segmenter.config == method.config, "its config is another one")
    expect(segmenter.input_spec == input_spec(method.size, 2, 2, kind), "its input spec is another one")
    expect((segmenter.targets, segmenter.kind) == (2, kind), f"{segmenter.targets} {segmenter.kind} targets")
    expect(segmenter.raters in ("one", "all"), f"raters is {segmenter.raters!r}")
    expect(not any(side % segmenter.stride for side in method.size), f"its stride is {segmenter.stride}")
    groups = segmenter.parameter_groups()
    for name, _ in segmenter.named_parameters():
        expect(any(name.startswith(group.prefixes) for group in groups), f"{name} is in no group")
    rates = [group.rate_at(step) for group in groups for step in (1, 2, 1000)]
    expect(all(0 <= rate < float("inf") for rate in rates), f"rates of its groups are {rates}")


# --- the loss --------------------------------------------------------------------------------------------------------


@contract
def the_loss_and_every_gradient_are_finite_for_any_channels_targets_and_raters(method: Method) -> None:
    """No parameter is left without one: processes that train together wait for the gradient of each."""
    for kind in method.kinds():
        segmenter = method.build(2, 3, kind).train()
        for R in (1, 4):
            terms = loss(segmenter, R=R)
            expect("loss" in terms, f"no loss among {', '.join(terms)}")
            odd = [name for name, value in terms.items() if value.shape != () or not bool(value.isfinite())]
            expect(not odd, f"{kind} targets, {R} raters: {', '.join(odd)}")
            terms["loss"].backward()
        none = [name for name, p in segmenter.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all())]
        expect(not none, f"no finite gradient: {', '.join(none[:5])}")


@contract
def the_loss_of_an_image_does_not_depend_on_its_batch(method: Method) -> None:
    segmenter = method.build()
    together, alone = loss(segmenter)["loss"], torch.stack([loss(segmenter, [i])["loss"] for i in range(3)])
    torch.testing.assert_close(together, alone.mean(), rtol=1e-4, atol=1e-5)


@contract
def the_loss_draws_from_its_generators_alone_and_moves_no_state(method: Method) -> None:
    segmenter = method.build()
    before = {name: value.clone() for name, value in segmenter.state_dict().items()}
    terms: list[Tensor] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        terms.append(loss(segmenter)["loss"].detach())
    expect(torch.equal(*terms), f"the same generators give {terms[0]:g} and {terms[1]:g}")
    moved = [name for name, value in segmenter.state_dict().items() if not torch.equal(value, before[name])]
    expect(not moved, f"{', '.join(moved)} moved; only `after_step` may")


@contract
def with_half_the_bits_the_loss_is_about_the_same_and_in_float32(method: Method) -> None:
    segmenter = method.build()
    full = loss(segmenter)["loss"]
    with torch.autocast("cpu", torch.bfloat16):
        half = loss(segmenter)["loss"]
    half.backward()
    expect(half.dtype == torch.float32, f"it is in {half.dtype}")
    torch.testing.assert_close(half, full, rtol=0.1, atol=0.05)
    expect(all(p.grad is None or bool(p.grad.isfinite().all()) for p in segmenter.parameters()), "infinite gradients")


@contract
def a_checkpoint_has_all_state_of_a_training(method: Method) -> None:
    """Weights and buffers go into another segmenter, which then goes on as the first one does."""

    def step(segmenter: Segmenter, seed: int) -> Tensor:
        torch.manual_seed(seed)  # of dropout
        terms = {name: value.detach() for name, value in loss(segmenter, seed=seed).items()}
        with torch.no_grad():
            segmenter.after_step(terms)
        return terms["loss"]

    first, second = method.build().train(), method.build().train()
    for seed in (1, 2):
        step(first, seed)
    second.load_state_dict(first.state_dict())
    for seed in (3, 4):
        one, two = step(first, seed), step(second, seed)
        expect(torch.equal(one, two), f"the loss is {one:g}, and {two:g} in a resumed training")
    state = second.state_dict()
    expect(all(torch.equal(value, state[name]) for name, value in first.state_dict().items()), "buffers differ")


# --- samples ---------------------------------------------------------------------------------------------------------


@contract
def samples_are_masks_of_0_and_1_of_the_kind_of_the_targets(method: Method) -> None:
    for kind in method.kinds():
        segmenter = method.build(2, 3, kind)
        drawn = sample(segmenter)
        expect(drawn.shape == (3, 3, 3, *method.size), f"the shape of 3 x 3 masks is {tuple(drawn.shape)}")
        expect(drawn.dtype == torch.uint8 and int(drawn.max()) <= 1, f"{drawn.dtype} up to {drawn.max()}")
        broken = Targets(segmenter.input_spec.targets, kind).violation(drawn.flatten(0, 1).numpy())
        expect(not broken, f"of {kind} targets {broken}")


@contract
def a_sample_does_not_depend_on_its_batch_or_on_how_many_are_drawn(method: Method) -> None:
    segmenter = method.build()
    whole = sample(segmenter, range(5), 2)
    for which in ([0], [4, 1], [2, 0, 3]):
        share = _differing(sample(segmenter, which, 2), whole[which])
        expect(not share, f"{share:.2%} of the pixels of images {which} differ when drawn by themselves")
    share = _differing(sample(segmenter, [3, 1], 3)[:, :2], whole[[3, 1]])
    expect(share <= ROUNDING, f"{share:.2%} of the pixels differ where three masks are drawn and not two")


@contract
def samples_are_drawn_from_their_generators_alone(method: Method) -> None:
    segmenter, drawn = method.build(), list[Tensor]()
    for seed in (1, 2):
        torch.manual_seed(seed)
        drawn.append(sample(segmenter))
    expect(torch.equal(*drawn), "the same generators give other masks")
    differ = bool((drawn[0][:, :1] != drawn[0]).any())
    expect(differ == method.random, f"masks of one image {'differ' if differ else 'do not differ'}")


@contract
def wrong_calls_of_sample_are_refused(method: Method) -> None:
    segmenter = method.build()
    image = images(segmenter.input_spec, 2)
    for name, call in (
        ("image", lambda: segmenter.sample(image[0], 1, generator())),
        ("image", lambda: segmenter.sample(image.repeat_interleave(2, 1), 1, generator())),
        ("n", lambda: segmenter.sample(image, 0, generator())),
        ("generators", lambda: segmenter.sample(image, 3, generators(["a"], 5))),
    ):
        sentence = refuses(call, ValueError, f"a wrong {name}")
        expect(sentence.startswith(name), f"a wrong {name} is refused as {sentence!r}")


@contract
def larger_images_are_sampled_by_tiles_or_refused(method: Method) -> None:
    segmenter, (*first, last) = method.build(), method.size
    tile: tuple[int, ...] = method.size
    larger = images(input_spec((*first, last + max(4, segmenter.stride))), 1)
    one = images(segmenter.input_spec, 1)
    try:
        tiled, same = (segmenter.sample(x, 2, generators(["a"], 2), tile=(tile, 0.25)) for x in (larger, one))  # pyright: ignore[reportArgumentType]
    except InputError:
        return
    expect(tiled.shape == (1, 2, 1, *larger.shape[2:]), f"masks of {tuple(larger.shape)} are {tuple(tiled.shape)}")
    share = _differing(same, segmenter.sample(one, 2, generators(["a"], 2)))
    expect(share <= ROUNDING, f"{share:.2%} of the pixels differ where one tile is the whole image")


@contract
def a_model_folder_is_the_same_model(method: Method) -> None:
    for kind in method.kinds():
        segmenter = method.build(2, 2, kind)
        with TemporaryDirectory() as place:
            folder.save(segmenter, place)
            opened = folder.load(place)
        expect(opened.config == segmenter.config, f"its configuration is {opened.config}")
        expect(opened.input_spec == segmenter.input_spec, "its input spec is another one")
        state = opened.state_dict()
        other = [name for name, value in segmenter.state_dict().items() if not torch.equal(value, state[name])]
        expect(not other, f"{', '.join(other[:3])} differ")
        opened.masks_per_pass = segmenter.masks_per_pass
        share = _differing(sample(opened), sample(segmenter))
        expect(share <= ROUNDING, f"{share:.2%} of the pixels of its masks differ")


def _differing(one: Tensor, two: Tensor) -> float:
    return float((one != two).float().mean())

"""A method's configuration: a frozen dataclass in the method's own file, that builds its segmenter. No torch here.

Other packages join by the entry-point group `berdiff.methods`: name = "package.module:ConfigClass".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from berdiff import schema
from berdiff.data.input_spec import InputSpec, Kind
from berdiff.errors import InputError
from berdiff.plugins import Registry

if TYPE_CHECKING:
    from berdiff.methods.base import Segmenter

METHODS = Registry(
    "berdiff.methods",
    {
        "berdiff": "berdiff.methods.berdiff:BerDiff",
        "gaussian": "berdiff.methods.gaussian:GaussianDiffusion",
        "unet": "berdiff.methods.unet:UNet",
        "nnunet": "berdiff.methods.nnunet:NNUNet",
        "transunet": "berdiff.methods.transunet:TransUNet",
        "swinunetr": "berdiff.methods.swinunetr:SwinUNETR",
        "mednext": "berdiff.methods.mednext:MedNeXt",
        "probunet": "berdiff.methods.probunet:ProbUNet",
        "hprobunet": "berdiff.methods.hprobunet:HierarchicalProbUNet",
        "car": "berdiff.methods.car:CAR",
        "jprounet": "berdiff.methods.jprounet:JProUNet",
        "segdiff": "berdiff.methods.segdiff:SegDiff",
        "medsegdiff": "berdiff.methods.medsegdiff:MedSegDiff",
        "flow": "berdiff.methods.flow:FlowMatching",
        "pixelseg": "berdiff.methods.pixelseg:PixelSeg",
        "ssn": "berdiff.methods.ssn:SSN",
        "mose": "berdiff.methods.mose:MoSE",
    },
)


@dataclass(frozen=True)
class MethodConfig(schema.Settings, ABC):
    """Every field is a flag of `berdiff train` (`--model.NAME`) and an entry of `config.json`."""

    method: ClassVar[str]
    kinds: ClassVar[tuple[Kind, ...]] = ("independent",)  # of targets that the method can draw
    spatial_dims: ClassVar[tuple[int, ...]] = (2,)  # of images that it knows: slices, volumes

    @classmethod
    def taken_from(cls, other: "MethodConfig") -> dict[str, Any]:
        """What another method's configuration says to this one: its values of the settings of the same name."""
        values = {field.name: getattr(other, field.name) for field in fields(cls) if hasattr(other, field.name)}
        if "preset" in values:
            values["preset"] = _of_same_size(cls, values["preset"])
        return values

    @abstractmethod
    def build(self, spec: InputSpec) -> "Segmenter":
        """The segmenter with fresh weights, for images and targets as `spec` says."""

    def kind_of(self, spec: InputSpec) -> Kind:
        """How the method draws the targets of a spec; InputError where it cannot. One target alone is of every kind."""
        if len(spec.size) not in self.spatial_dims:
            raise InputError(f"size: the method {self.method} takes slices only, not volumes", "unsupported")
        kind = spec.kind if len(spec.targets) > 1 else "independent"
        if kind not in self.kinds:
            raise InputError(
                f"targets: expected {' or '.join(self.kinds)} ones for the method {self.method} (data prepared with "
                f"--kind {self.kinds[0]}, or of one target), found {kind} ones",
                "unsupported",
            )
        return kind


M = TypeVar("M", bound=MethodConfig)


def method_class(name: str) -> type[MethodConfig]:
    """The configuration class of a method, ours or a plug-in's."""
    kind = METHODS.load(name)
    if not (isinstance(kind, type) and issubclass(kind, MethodConfig) and getattr(kind, "method", None) == name):
        raise InputError(f"method {name}: expected a MethodConfig with method = {name!r}, found {kind!r}", "kind")
    return kind


def to_plain(config: MethodConfig) -> dict[str, Any]:
    """In plain JSON types, with the method's name."""
    return {"method": config.method, **schema.plain(config)}


def from_plain(content: dict[str, Any], name: Callable[[str], str]) -> MethodConfig:
    """What `to_plain` gave, checked; `name` turns the place of a fault into words."""
    settings = dict(content)
    try:
        kind = method_class(str(settings.pop("method", None)))
    except InputError as error:
        raise InputError(f"{name('method')}:{str(error).partition(':')[2]}", error.code) from error
    return schema.parse(kind, settings, name)


# What a recipe of one method says to another that has the setting; all others are a method's own, such as beta, which
# is of another size in each.
CARRIED = {"T", "sampler", "preset", "schedule", "time_sampling", "masks_per_image", "prediction"} | {
    *("lambda_bce", "lambda_dice", "answer", "inner_weight")
}


def adopt(kind: type[M], other: MethodConfig) -> M:
    """Another method's configuration as a `kind`: what is in `CARRIED` is kept where the new method has that choice.

    All else is the new method's default; `dropped` names what is not kept.
    """
    if type(other) is kind:
        return other
    choices = {name: get_args(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is Literal}
    taken = {name: value for name, value in kind.taken_from(other).items() if name in CARRIED}
    return schema.check(kind(**{n: v for n, v in taken.items() if v in choices.get(n, (v,))}), kind, str)


def dropped(new: MethodConfig, other: MethodConfig) -> list[str]:
    """The settings in which `other` is not its method's default, and which `new` has not taken from it."""
    usual, names = type(other)(), list[str]()
    for field in fields(other):
        value = getattr(other, field.name)
        same = _of_same_size(type(new), value) if field.name == "preset" and hasattr(new, "preset") else value
        if value != getattr(usual, field.name) and getattr(new, field.name, None) != same:
            names.append(field.name)
    return names


def _of_same_size(kind: type[MethodConfig], preset: str) -> str:
    """The method's own name for it: the published network is `paper` in some, `paper-128` and `paper-224` in others.

    Two-core networks must not take its place by being the default.
    """
    hint = get_type_hints(kind)["preset"]
    if get_origin(hint) is not Literal or preset in get_args(hint):
        return preset
    size = preset.partition("-")[0]
    return next((name for name in get_args(hint) if name.partition("-")[0] == size), preset)

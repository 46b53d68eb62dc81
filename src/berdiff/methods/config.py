"""A method's configuration: a frozen dataclass in the method's own file, that builds its segmenter. No torch here.

Other packages join by the entry-point group `berdiff.methods`: name = "package.module:ConfigClass".
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import combinations
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
        kind = spec.kind if len(spec.targets) > 1 else "independent"
        if kind not in self.kinds:
            raise InputError(
                f"targets: expected {' or '.join(self.kinds)} ones for the method {self.method} (data prepared with "
                f"--kind {self.kinds[0]}, or of one target), found {kind} ones"
            )
        return kind


M = TypeVar("M", bound=MethodConfig)


def method_class(name: str) -> type[MethodConfig]:
    """The configuration class of a method, ours or a plug-in's."""
    kind = METHODS.load(name)
    if not (isinstance(kind, type) and issubclass(kind, MethodConfig) and getattr(kind, "method", None) == name):
        raise InputError(f"method {name}: expected a MethodConfig with method = {name!r}, found {kind!r}")
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
        raise InputError(f"{name('method')}:{str(error).partition(':')[2]}") from error
    return schema.parse(kind, settings, name)


def adopt(kind: type[M], other: MethodConfig) -> M:
    """Another method's configuration as a `kind`: settings of the same name are kept where the new method has them.

    A value that the new method does not know, such as another method's prediction, gives way to the default. Checked
    together, not one by one: a small T goes with few steps only.
    """
    values = kind.taken_from(other)
    for count in range(len(values), 0, -1):
        for names in combinations(values, count):
            try:
                return schema.check(kind(**{name: values[name] for name in names}), kind, str)
            except (InputError, ValueError):
                continue
    return kind()


def _of_same_size(kind: type[MethodConfig], preset: str) -> str:
    """The method's own name for it: the published network is `paper` in some, `paper-128` and `paper-224` in others.

    Two-core networks must not take its place by being the default.
    """
    hint = get_type_hints(kind)["preset"]
    if get_origin(hint) is not Literal or preset in get_args(hint):
        return preset
    size = preset.partition("-")[0]
    return next((name for name in get_args(hint) if name.partition("-")[0] == size), preset)

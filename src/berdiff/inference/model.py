"""The opened model: `model = berdiff.load(...)`, `result = model.segment(image)`, `result.saliency`."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from berdiff import hub, schema
from berdiff.data.apply import Prepared
from berdiff.data.describe import by, expect, present
from berdiff.data.input_spec import InputSpec, Sides, Size
from berdiff.data.store import Store
from berdiff.device import choose_device, choose_precision
from berdiff.diffusion.sampler import Sampler
from berdiff.diffusion.sampling import Callback
from berdiff.display import note
from berdiff.errors import as_keywords
from berdiff.inference.compiling import compiled
from berdiff.inference.inputs import Input, case_input, find_inputs
from berdiff.inference.opening import ReadInput, meant, open_array, open_input, read_input
from berdiff.inference.region import Region, Unit, plain
from berdiff.inference.result import Result
from berdiff.inference.run_file import read_run_file
from berdiff.inference.sets import choose_set, set_rng
from berdiff.inference.settings import COHERENCE, Precision, SegmentSettings, SetRule, option
from berdiff.inference.slices import Advance, sample_images
from berdiff.methods import folder
from berdiff.methods.base import Segmenter
from berdiff.methods.sampling import SamplerOptions, choose_sampler


@dataclass(frozen=True, eq=False)
class Model:
    """A trained segmenter, what an image must look like for it, and what it was trained on."""

    segmenter: Segmenter
    name: str
    input_spec: InputSpec
    size: Size  # that the network sees at once
    device: str = "cpu"
    store: str | None = None  # what its run was trained on, where the model lies in a run
    crop: Sides | None = None  # pixels per side of the centre to take of a larger store; None: all of it

    def __repr__(self) -> str:
        """What it is, what it sees and marks, and what it was trained on."""
        config, spec = self.segmenter.config, self.input_spec
        millions = sum(parameter.numel() for parameter in self.segmenter.parameters()) / 1e6
        preset = f" ({found})" if (found := getattr(config, "preset", "")) else ""
        lines = [f"Model {self.name}: {config.method}{preset}, {millions:.3g} M parameters, on {self.device}"]
        lines.append(f"  sees {by(self.size)} pixels of {', '.join(spec.channels)}; marks {', '.join(spec.targets)}")
        trained = [*([spec.source] if spec.source else []), *([self.store] if self.store else []), *spec.notes]
        return "\n".join([*lines, *([f"  trained on {'; '.join(trained)}"] if trained else [])])

    @as_keywords(samples="n")
    def segment(
        self,
        image: Any,
        n: int = 16,
        *,
        seed: int = 0,
        set: SetRule = "independent",
        pool: int = 64,
        center: Sequence[float] | None = None,
        box: Sequence[int] | None = None,
        slices: str | tuple[int | None, int | None] | None = None,
        pad: bool = False,
        extent: float | None = None,
        slice: bool = False,
        center_unit: Unit = "voxel",
        coherence: float = COHERENCE,
        overlap: float = 0.25,
        window: tuple[float, float] | None = None,
        spacing_mm: Sequence[float] | None = None,
        name: str = "image",
        force: bool = False,
        allow_gaps: bool = False,
        batch_size: int = 16,
        callback: Callback | None = None,
        **sampler_options: Any,
    ) -> Result:
        """n masks of one image or volume: a path, or an array or tensor (H, W), (Z, H, W), or with channels first.

        They are n samples, or a `set` of n chosen out of a `pool` of samples (`inference/sets.py`); shares, maps and
        measurements are of all samples drawn.

        8-bit values are divided by 255; floats in [0, 1] are taken as they are; others by the model's own intensity
        rule, or by `window`. `spacing_mm` (along the last axes) and `name` (which seeds the noise) are for arrays; a
        file has its own. `center`, `box`, `slices` choose a region; a `center` (z, y, x) means the slices up to
        `extent` mm (15) below and above it, or with `slice` that slice alone, and may be in mm (`center_unit`); `pad`
        accepts a smaller image; `coherence` is the length in mm along which a sample is one opinion through a volume.
        `force` segments what the model was not trained on, with a warning; `allow_gaps` interpolates missing slices of
        a DICOM series. `callback` runs after each step. The options of `Sampler` (steps, rule, posterior, sigma,
        spacing, last_step, noise, views, smallest) replace the model's own.
        """
        known = [field.name for field in fields(Sampler)]
        if unknown := sorted(sampler_options.keys() - known):
            raise TypeError(f"segment: expected sampler options among {', '.join(known)}, found {', '.join(unknown)}")
        if isinstance(slices, tuple):
            slices = ":".join("" if end is None else str(end) for end in slices)
        around = None if center is None else plain(center, "center")
        inside = None if box is None else plain(box, "box")
        region = Region(around, inside, slices, pad, extent, slice, center_unit)
        options = SamplerOptions(**sampler_options)
        settings = SegmentSettings(
            n, seed, set, pool, options, region, window, coherence, overlap, force, allow_gaps, batch_size
        )
        self.check(settings)
        opened = self.open(image, settings, spacing_mm, name)
        return self.results([opened], settings, callback=callback)[0]

    def check(self, settings: SegmentSettings) -> Sampler | None:
        """The sampler that is meant. InputError where settings make no sense or do not fit the model."""
        schema.check(settings, SegmentSettings, option)
        return choose_sampler(self.segmenter, settings.sampler)

    def open(
        self,
        image: Any,
        settings: SegmentSettings,
        spacing_mm: Sequence[float] | None = None,
        name: str = "image",
    ) -> Prepared:
        """A path, an `Input`, an array or a tensor as this model wants to see it."""
        if isinstance(image, str | Path):
            found = find_inputs([image], self.input_spec.channels)
            names = ", ".join(item.name for item in found[:3])
            expect(len(found) == 1, image, "one image or volume", f"{len(found)} ({names}, ...)", "kind")
            image = found[0]
        if isinstance(image, Input):
            return open_input(image, self.input_spec, settings)
        if isinstance(image, torch.Tensor):
            image = image.detach().cpu().numpy()
        return open_array(image, self.input_spec, settings, name, spacing_mm)

    def read(self, item: Input, settings: SegmentSettings) -> ReadInput:
        """An input read once, to be segmented in several regions."""
        return read_input(item, self.input_spec, settings)

    def results(
        self,
        images: Sequence[Prepared],
        settings: SegmentSettings,
        advance: Advance = lambda slices: None,
        callback: Callback | None = None,
    ) -> list[Result]:
        """The results of opened images, sampled together."""
        if settings.region.at_place:  # which slices are meant depends on the image
            return [self._around(image, settings, advance, callback) for image in images]
        sampler = self.check(settings)
        each = sample_images(self.segmenter, images, self.size, settings, sampler, self.device, advance, callback)
        results: list[Result] = []
        identity, spec = self.identity(settings), self.input_spec
        for image, (grid, part, pool) in zip(images, each, strict=True):
            chosen, rng = None, set_rng(settings.seed, image.name)
            if settings.set != "independent":
                chosen = tuple(choose_set(pool, settings.samples, settings.set, rng).tolist())
            notes = tuple(dict.fromkeys([*spec.notes, *image.notes]))  # each once, in order
            results.append(
                Result(
                    name=image.name,
                    image=part,
                    grid=grid,
                    pool=pool,
                    chosen=chosen,
                    targets=spec.targets,
                    kind=spec.kind,
                    settings=identity,
                    scan=image.image if image.grid.whole is None else None,
                    raters=image.raters,
                    notes=notes,
                    warnings=image.warnings,
                    title=image.title,
                    details=image.details,
                    channels=image.channels,
                )
            )
        return results

    def _around(
        self, image: Prepared, settings: SegmentSettings, advance: Advance, callback: Callback | None
    ) -> Result:
        """Of the slices that a place means; the result keeps the settings as they were asked for."""
        region = meant(settings.region, image.grid, image.what)
        (result,) = self.results([image], replace(settings, region=region), advance, callback)
        return replace(result, settings=self.identity(settings))

    def case_results(
        self,
        store: Store,
        indices: Sequence[int] | np.ndarray,
        settings: SegmentSettings,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Result]:
        """The results of cases of a store, one by one: of the centre, or of all by tiles where the model was trained on
        patches. Noise is seeded by the cases' names, so the masks are those of an evaluation."""
        middle = tuple(side // 2 for side in store.size)
        region = Region(middle) if len(middle) == 2 else Region(box=(*middle, *(side + 1 for side in middle)))
        settings = replace(settings, region=Region() if self.input_spec.patches else region)
        results: list[Result] = []
        for index in indices:
            opened = self.open(case_input(store, int(index)), settings)
            results += self.results([opened], settings)
            progress(len(results), len(indices))
        return results

    def rounding(self) -> dict[str, Any]:
        """What else the bits of the masks depend on, where it is not as usual."""
        of = self.segmenter
        return ({"precision": of.precision} if of.precision != "fp32" else {}) | (
            {"compile": True} if of.compiled else {}
        )

    def identity(self, settings: SegmentSettings) -> dict[str, Any]:
        """Everything that the masks depend on but the image, in plain JSON types."""
        named = {"model": self.name, "weights_sha256": self.segmenter.weights_sha256, "size": self.size}
        values = {**named, **asdict(settings), "sampler": self.check(settings)}
        values |= self.rounding()
        del values["batch_size"], values["force"]
        if not settings.allow_gaps:
            del values["allow_gaps"]
        if settings.set == "independent":  # no pool: another one changes nothing
            del values["set"], values["pool"]
        region = values["region"]
        if settings.region.at_place:
            region["extent"] = settings.region.reach
        for name, usual in (("extent", None), ("slice", False), ("center_unit", "voxel")):
            if region[name] == usual:
                del region[name]
        return schema.plain(values)


def load(
    path_or_name: str | Path,
    device: str = "auto",
    size: Size | None = None,
    precision: Precision = "fp32",
    compile: bool = False,
) -> Model:
    """A model by its folder, its run, the name of bundled weights, or an address (hf://owner/name, with @revision if
    wanted). `size` is what the network sees at once (default: as trained); `precision` and `compile` may change masks
    by rounding."""
    device = choose_device(device)
    path = folder.resolve(path_or_name)
    segmenter = folder.load(path, device).with_changes(precision=choose_precision(device, precision))
    if compile:
        segmenter = compiled(segmenter, device)
    spec, stride = segmenter.input_spec, segmenter.stride
    size = size or spec.size
    sides = "height and width" if spec.dims == 2 else "depth, height and width"
    fits = len(size) == spec.dims and min(size) > 0 and not any(side % stride for side in size)
    expect(fits, "--size", f"{sides} in multiples of {stride}", " ".join(map(str, size)), "shape")
    place = path.resolve()
    run = place.parent if place.name == "model" else None
    published = hub.address_of(place)
    if published:
        note(f"model: {published}")  # which commit it was
    name = published or (run or place).name
    if run is None or not (run / "config.json").is_file():
        whole = spec.patches or len(set(spec.size)) > 1  # a crop is square
        return Model(segmenter, name, spec, size, device, crop=None if whole else spec.size[0])
    data = present(read_run_file(run).get("data"), run / "config.json", "what it was trained on (data)")
    return Model(segmenter, name, spec, size, device, data["store"], data["crop"])

"""What a job computes: the masks around a click, and the document, files and label maps made of them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from berdiff.data.describe import expect
from berdiff.inference.region import Region
from berdiff.inference.result import Result
from berdiff.inference.sets import choose_set, set_rng
from berdiff.inference.settings import SegmentSettings
from berdiff.methods.sampling import SamplerOptions
from berdiff.viewer.server import pages
from berdiff.viewer.server.images import Images
from berdiff.viewer.server.items import Item
from berdiff.viewer.server.limits import MIB, Limits
from berdiff.viewer.server.models import ModelEntry
from berdiff.viewer.server.schemas import JobRequest

if TYPE_CHECKING:
    from berdiff.inference.representatives import Representative

Progress = Callable[[int, int], None]  # (steps done, in all); may raise to end the work
FILES = {"nifti": ("nifti", "json"), "dicom-seg": ("dicom-seg", "json"), "json": ("json", "csv")}


@dataclass(eq=False)
class Segmented:
    """The masks of a job. Of a click on a volume only the clicked slice is kept, as a volume of one slice."""

    result: Result
    model: str
    asked: int  # representative masks
    z: int | None = None  # the slice of the volume
    depth: int = 1

    @cached_property
    def representatives(self) -> "list[Representative]":
        return self.result.representatives(self.asked)

    @property
    def size(self) -> int:
        return self.result.pool.nbytes + self.result.image.nbytes

    def document(self) -> dict[str, Any]:
        document = pages.result_document(self.result, self.representatives)
        if self.z is not None:  # from the slab to the volume that it is a part of
            document["shape"] = [self.depth, *document["shape"][1:]]
            document["start"] = [self.z, *document["start"][1:]]
            for name, place in (("region", document), ("box", document["masks"])):
                place[name] = place[name] and [[self.z, self.z + 1], *place[name][1:]]
        return document

    def mask(self, what: str, number: int) -> np.ndarray:
        """(K, [Z,] H, W) of the whole image: the majority, or a representative mask or sample by its number from 1."""
        choices = {"representative": [one.mask for one in self.representatives], "sample": self.result.samples}
        if what == "majority":
            return self._on_volume(self.result.majority())
        masks = choices[what]
        expect(1 <= number <= len(masks), "what", f"a {what} from 1 to {len(masks)}", number)
        return self._on_volume(masks[number - 1])

    def files(self, kind: str, limits: Limits) -> Iterator[tuple[str, bytes]]:
        """(name, content) of a download. A path of this machine is in none of them."""
        from berdiff.output.dicom_common import DicomSource
        from berdiff.output.exports import ARRAYS, DICOM_MAKERS, MAKERS, array_files

        refers = kind != "dicom-seg" or self.result.geometry.kind == "dicom"
        expect(refers, self.result.name, "a DICOM image for dicom-seg, which refers to it", "another kind")
        most, size = limits.samples_file_bytes, self.result.pool.nbytes * self.depth
        whole = self._whole(size, limits)
        chosen = [one._replace(mask=self._on_volume(one.mask)) for one in self.representatives]
        for part in FILES[kind]:
            if part == "nifti":
                arrays = [name for name in ARRAYS if name != "samples" or size <= most]
                made = (one for name in arrays for one in array_files(name, whole, chosen, True))
            elif part in DICOM_MAKERS:
                made = DICOM_MAKERS[part](DicomSource(whole, False), chosen)
            else:
                made = MAKERS[part](whole, chosen)
            for name, content in made:
                yield name, _without_paths(content) if name == "result.json" else content

    def _whole(self, size: int, limits: Limits) -> Result:
        if self.z is None:
            return self.result
        expect(size <= 4 * limits.pool_bytes, self.result.name, f"at most {4 * limits.pool_bytes // MIB} MiB of masks")
        roi = self.result.roi or tuple((0, side) for side in self.result.pool.shape[2:])
        image = np.broadcast_to(self.result.image, (len(self.result.image), self.depth, *self.result.image.shape[2:]))
        pool = self._on_volume(self.result.pool)
        return replace(self.result, pool=pool, image=image, roi=((self.z, self.z + 1), *roi[1:]))

    def _on_volume(self, masks: np.ndarray) -> np.ndarray:
        if self.z is None:
            return masks
        volume = np.zeros((*masks.shape[:-3], self.depth, *masks.shape[-2:]), masks.dtype)  # untouched: costs nothing
        volume[..., self.z, :, :] = masks[..., 0, :, :]
        return volume


def segment(
    item: Item, entry: ModelEntry, request: JobRequest, images: Images, limits: Limits, progress: Progress
) -> Segmented:
    """The masks that `berdiff segment --center` gives, bit for bit. InputError in the words of that command."""
    model = entry.load()
    region = Region(None if request.center is None else tuple(request.center))
    options = SamplerOptions(steps=request.steps)
    settings = SegmentSettings(
        request.samples, request.seed, request.set, request.pool, options, region, force=request.force
    )
    sampler = model.check(settings)
    clicked = images.plane(item, entry.spec, settings)
    opened = model.open(item.input, settings) if clicked is None else clicked[0]
    drawn = settings.drawn * len(entry.spec.targets) * opened.image[0].size
    most = f"at most {limits.pool_bytes // MIB} MiB of masks"
    expect(drawn <= limits.pool_bytes, item.name, f"{most} (a click on one slice, or fewer samples)", f"{drawn // MIB}")
    sampled = settings
    if clicked is not None:  # the slice by itself; the set is chosen below, as of the volume
        assert region.center is not None
        within = replace(region, center=region.center[1:])
        sampled = replace(settings, region=within, samples=settings.drawn, set="independent")
    slices = opened.image.shape[1] if opened.image.ndim == 4 else 1
    batches, done = -(-slices // settings.batch_size), 0

    def step(one: Any) -> None:
        nonlocal done
        done += 1
        progress(done, max(batches * one.total, done))

    progress(0, batches * (sampler.count if sampler else 1))
    result = model.results([opened], sampled, callback=step)[0]
    if clicked is None:
        return Segmented(result, entry.name, request.representatives)
    file, z = images.file(item, len(entry.spec.channels)), clicked[1]
    chosen = None
    if settings.set != "independent":
        rng = set_rng(settings.seed, item.name)
        chosen = tuple(choose_set(result.in_region(result.pool), settings.samples, settings.set, rng).tolist())
    slab = replace(
        result,
        name=item.name,
        image=result.image[:, None],
        pool=result.pool[:, :, None],
        chosen=chosen,
        roi=None if result.roi is None else ((0, 1), *result.roi),
        spacing=file.spacing,
        geometry=file.geometry,
        settings=model.identity(settings),
    )
    return Segmented(slab, entry.name, request.representatives, z, file.values.shape[1])


def _without_paths(content: bytes) -> bytes:
    facts = json.loads(content)
    facts["source"]["files"] = [Path(file).name for file in facts["source"]["files"]]
    return (json.dumps(facts, indent=2) + "\n").encode()

"""What a job computes: the masks around a click, and the document, files and label maps made of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from berdiff.data.describe import expect
from berdiff.inference.region import Region
from berdiff.inference.result import Result
from berdiff.inference.settings import SegmentSettings
from berdiff.methods.sampling import SamplerOptions
from berdiff_viewer import document
from berdiff_viewer.server.common import MIB, Limits
from berdiff_viewer.server.images import Images
from berdiff_viewer.server.items import Item
from berdiff_viewer.server.models import ModelEntry
from berdiff_viewer.server.schemas import JobRequest

if TYPE_CHECKING:
    from berdiff.inference.representatives import Representative

Progress = Callable[[int, int], None]  # (steps done, in all); may raise to end the work
FILES = {"nifti": ("nifti", "json"), "dicom-seg": ("dicom-seg", "json"), "json": ("json", "csv")}


@dataclass(eq=False)
class Segmented:
    """The masks of a job. Of a click on a volume only the slices around it are kept, as a volume of these."""

    result: Result  # its first slice is the volume's `result.first`
    model: str
    asked: int  # representative masks
    depth: int | None = None  # slices of the volume; None: the result has all

    @cached_property
    def representatives(self) -> "list[Representative]":
        return self.result.representatives(self.asked)

    @property
    def size(self) -> int:
        return self.result.pool.nbytes + self.result.image.nbytes

    def document(self) -> dict[str, Any]:
        return document.result_document(self.result, self.representatives, image=False, depth=self.depth)

    def mask(self, what: str, number: int) -> np.ndarray:
        """(K, [Z,] H, W) of the whole image: the majority, or a representative mask or sample by its number from 1."""
        choices = {"representative": [one.mask for one in self.representatives], "sample": self.result.samples}
        if what == "majority":
            return self._on_volume(self.result.majority())
        masks = choices[what]
        expect(1 <= number <= len(masks), "what", f"a {what} from 1 to {len(masks)}", number)
        return self._on_volume(masks[number - 1])

    def marked_at(self, place: Sequence[int]) -> np.ndarray:
        """(P, K) bool: which samples mark which targets at ([z,] y, x) of the whole image."""
        pool, first = self.result.pool, self.result.first
        slices, plane = [z - first for z in place[:-2]], place[-2:]
        segmented = all(0 <= z < pool.shape[2] for z in slices)
        return pool[(..., *slices, *plane)] > 0 if segmented else np.zeros(pool.shape[:2], bool)

    def only(self, keep: np.ndarray) -> "Segmented":
        """With those samples of the pool alone for which `keep` (P,) is true."""
        places = np.flatnonzero(keep)
        chosen = [int(np.searchsorted(places, one)) for one in self.result.chosen or () if keep[one]]
        result = replace(self.result, pool=self.result.pool[places], chosen=tuple(chosen) or None)
        return replace(self, result=result)

    def files(self, kind: str, limits: Limits) -> Iterator[tuple[str, bytes]]:
        """(name, content) of a download."""
        from berdiff.output.dicom_common import DicomSource
        from berdiff.output.exports import ARRAYS, DICOM_MAKERS, MAKERS, array_files

        refers = kind != "dicom-seg" or self.result.geometry.kind == "dicom"
        expect(refers, self.result.name, "a DICOM image for dicom-seg, which refers to it", "another kind")
        most, pool = limits.samples_file_bytes, self.result.pool
        size = pool.nbytes if self.depth is None else pool.nbytes // pool.shape[2] * self.depth
        expect(size <= 4 * limits.pool_bytes, self.result.name, f"at most {4 * limits.pool_bytes // MIB} MiB of masks")
        whole = self._whole()
        chosen = [one._replace(mask=self._on_volume(one.mask)) for one in self.representatives]
        for part in FILES[kind]:
            if part == "nifti":
                arrays = [name for name in ARRAYS if name != "samples" or size <= most]
                made = (one for name in arrays for one in array_files(name, whole, chosen, True))
            elif part in DICOM_MAKERS:
                made = DICOM_MAKERS[part](DicomSource(whole, False), chosen)
            else:
                made = MAKERS[part](whole, chosen)
            yield from made

    def _whole(self) -> Result:
        """Of the whole volume, whatever was kept of it."""
        if self.depth is None:
            return self.result
        pool, roi = self._on_volume(self.result.pool), document.region_in_volume(self.result)
        # no file of a download shows the image: this one stands for its shape, and takes no memory
        image = np.broadcast_to(np.float32(0), (len(self.result.image), *pool.shape[2:]))
        return replace(self.result, pool=pool, image=image, roi=roi, first=0)

    def _on_volume(self, masks: np.ndarray) -> np.ndarray:
        if self.depth is None:
            return masks
        volume = np.zeros((*masks.shape[:-3], self.depth, *masks.shape[-2:]), masks.dtype)  # untouched: costs nothing
        volume[..., self.result.first : self.result.first + masks.shape[-3], :, :] = masks
        return volume


def segment(
    item: Item, entry: ModelEntry, request: JobRequest, images: Images, limits: Limits, progress: Progress
) -> Segmented:
    """The masks that `berdiff segment --center` gives, bit for bit. InputError in the words of that command."""
    model = entry.load()
    center, placed = request.center, len(request.center or ()) == 3
    region = Region(None if center is None else tuple(center))
    if placed:
        region = replace(region, slice=request.slice, extent=None if request.slice else request.extent)
    expect(placed or not request.slice, "slice", "a center of a slice, row and column beside it")
    options = SamplerOptions(steps=request.steps)
    settings = SegmentSettings(
        request.samples, request.seed, request.set, request.pool, options, region, force=request.force
    )
    sampler = model.check(settings)
    slab = images.slab(item, entry.spec, settings)
    opened = model.open(item.input, settings) if slab is None else slab[0]
    files = opened.geometry.addresses or opened.geometry.paths  # no path of this machine goes into a result
    opened = replace(opened, geometry=replace(opened.geometry, addresses=tuple(Path(one).name for one in files)))
    drawn = settings.drawn * len(entry.spec.targets) * opened.image[0].size
    most = f"at most {limits.pool_bytes // MIB} MiB of masks"
    expect(drawn <= limits.pool_bytes, item.name, f"{most} (one slice, or fewer samples)", f"{drawn // MIB}")
    sampled = settings if slab is None else replace(settings, region=slab[1])
    slices = opened.image.shape[1] if opened.image.ndim == 4 else 1
    batches, done = -(-slices // settings.batch_size), 0

    def step(one: Any) -> None:
        nonlocal done
        done += 1
        progress(done, max(batches * one.total, done))

    progress(0, batches * (sampler.count if sampler else 1))
    result = model.results([opened], sampled, callback=step)[0]
    if slab is None:
        return Segmented(result, entry.name, request.representatives)
    depth = images.file(item, len(entry.spec.channels)).values.shape[1]
    result = replace(result, settings=model.identity(settings))
    return Segmented(result, entry.name, request.representatives, depth)

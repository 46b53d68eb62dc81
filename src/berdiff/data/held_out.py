"""Held-out cases of the embedded data without the wait: each nodule is simulated when it is read, as in the store."""

import numpy as np

from berdiff import __version__
from berdiff.data.contours import READERS, Nodule, nodules, read_scans
from berdiff.data.input_spec import InputSpec
from berdiff.data.manifest import Manifest
from berdiff.data.sources import lidc_readers
from berdiff.data.sources.lidc import LidcReading, names
from berdiff.data.split import split_patients
from berdiff.data.store import Store, cache_folder, embedded_path
from berdiff.data.table import CaseTable

SPLIT = {"seed": 0, "val": 0.1, "test": 0.2}  # what `prepare` takes where it is not told otherwise


def open_held_out() -> Store:
    """The embedded store where it has been made; otherwise its test split, in the same order."""
    made = embedded_path(cache_folder())
    return Store.open(made) if made.exists() else HeldOut()


class HeldOut(Store):
    """The test split of the embedded data."""

    def __init__(self) -> None:
        self.options = options = lidc_readers.Options()
        scans = [scan for scan in read_scans() if scan.annotations]
        splits = split_patients((scan.patient for scan in scans), **SPLIT)
        tested = [scan for scan in scans if splits[scan.patient] == "test"]
        self._places = [(nodule, i) for scan in tested for nodule in nodules(scan) for i in range(len(nodule.zs))]
        self._made: dict[Nodule, tuple[np.ndarray, np.ndarray]] = {}
        table = _table(self._places)
        size = (options.size, options.size)
        about = LidcReading(
            size=size, total=len(table), cases=iter(()), intensity=lidc_readers.INTENSITY, notes=(lidc_readers.NOTE,)
        )
        super().__init__(
            "lidc-readers (embedded)",
            Manifest(
                input_spec=InputSpec(
                    size, about.channels, about.targets, about.intensity, "lidc-readers", about.notes, about.kind
                ),
                options=vars(options),
                path="",
                raters=about.raters,
                dtype=about.dtype,
                shard=1,
                split={"by": "patient", **SPLIT},
                counts=table.counts(),
                files={},
                berdiff=__version__,
            ),
            table,
        )

    def read_stored(self, indices: np.ndarray | list[int]) -> tuple[np.ndarray, np.ndarray]:
        some = [self._places[index] for index in np.asarray(indices, dtype=np.int64).reshape(-1)]
        for nodule in dict.fromkeys(nodule for nodule, _ in some if nodule not in self._made):
            cases = list(lidc_readers.nodule_cases(nodule, self.options))
            self._made[nodule] = np.stack([case.image for case in cases]), np.stack([case.masks for case in cases])
        images, masks = ([self._made[nodule][which][i] for nodule, i in some] for which in (0, 1))
        return np.stack(images), np.stack(masks)


def _table(places: list[tuple[Nodule, int]]) -> CaseTable:
    volumes, cases = zip(*(names(nodule, nodule.zs[i]) for nodule, i in places), strict=True)
    scans = [nodule.scan for nodule, _ in places]
    texts = {"case": cases, "volume": volumes, "patient": [scan.patient for scan in scans]}
    texts |= {"source": [lidc_readers.NOTE] * len(places), "split": ["test"] * len(places)}
    return CaseTable(
        **{name: np.array(column, dtype=object) for name, column in texts.items()},
        spacing=np.array([[scan.spacing] * 2 for scan in scans]),
        raters=np.full(len(places), READERS),
    )

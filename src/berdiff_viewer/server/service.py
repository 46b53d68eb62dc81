"""Everything behind the routes: items, sessions, jobs, uploads, corrections; started and closed as one."""

import base64
import binascii
import gzip
import io
import secrets
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from berdiff import __version__
from berdiff.data.describe import by, expect
from berdiff.data.image import Grid, Image, Source
from berdiff.errors import InputError
from berdiff.files import lock
from berdiff_viewer import document
from berdiff_viewer.server.common import Limits, Refused, public
from berdiff_viewer.server.corrections import Corrections, safe_name
from berdiff_viewer.server.grid import labels_from_grid
from berdiff_viewer.server.images import Images
from berdiff_viewer.server.items import Item, uploaded_items
from berdiff_viewer.server.jobs import Job, JobQueue
from berdiff_viewer.server.models import Models
from berdiff_viewer.server.results import most_disagreement
from berdiff_viewer.server.schemas import JobRequest, RaterRequest
from berdiff_viewer.server.sessions import Session, Sessions, item_of
from berdiff_viewer.server.uploads import Upload, check_headers
from berdiff_viewer.server.work import Progress, Segmented, segment

PREFIX = "berdiff-view-"
HOUSEKEEPING = 0.5  # seconds between two looks at what is over


@dataclass(eq=False)
class Service:
    models: Models
    shared: dict[str, Item]
    limits: Limits
    corrections: Corrections | None = None

    def __post_init__(self) -> None:
        remove_leftovers(Path(tempfile.gettempdir()))
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))  # of this user alone (0700)
        self._alive = lock(self.folder / "lock")
        self.images = Images(self.limits)
        self.queue = JobQueue(self.limits)
        self.sessions = Sessions(self.folder, self.limits, self._ended)
        self.added: set[str] = set()  # ids of shared items that a client added
        self._adding = threading.Lock()
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep_house, name="berdiff-keeper", daemon=True)

    def start(self) -> None:
        self.queue.start()
        self._keeper.start()

    def close(self) -> None:
        """Ends all work and removes every temporary file. May be called again."""
        self._closing.set()
        self.queue.close()
        self.sessions.close()
        if self._alive is not None:
            self._alive.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def state(self, session: Session) -> dict[str, Any]:
        items = [*self.shared.values(), *session.items.values()]
        return {
            "token": session.token,
            "version": __version__,
            "models": [model.shown() for model in self.models],
            "items": [self._shown(item) for item in items],
            "limits": {**self.limits.shown()},
            "corrections": self.corrections is not None,
        }

    def item(self, session: Session, id: str) -> Item:
        return item_of(session, self.shared, id)

    def _shown(self, item: Item) -> dict[str, Any]:
        shown = item.shown()
        return {**shown, "error": public(shown["error"], item.paths)}

    # --- uploads -----------------------------------------------------------------------------------------------------

    def upload(self, session: Session, files: Iterable[tuple[str, BinaryIO]]) -> list[Item]:
        """The new items of (name, content); where one file is refused, none is kept."""
        with self._received(session, files) as upload:
            items = uploaded_items(upload.folder, self.models.first.spec.channels, "uploaded")
            for item in items:
                expect(not item.input.error, item.name, "a readable image", item.input.error)
            with session.lock:
                most = self.limits.items
                expect(len(session.items) + len(items) <= most, "upload", f"at most {most} images of one session")
                session.items |= {item.id: item for item in items}
        return items

    @contextmanager
    def _received(self, session: Session, files: Iterable[tuple[str, BinaryIO]]) -> Iterator[Upload]:
        """Files of (name, content), checked by their headers; removed where the block refuses one."""
        folder = session.folder / secrets.token_hex(4)
        folder.mkdir(parents=True)
        upload = Upload(folder, self.limits, self.sessions.room())
        try:
            for name, content in files:
                upload.add(name, content)
            expect(upload.files, "upload", "PNG, JPG, TIFF, NIfTI, DICOM or .npy files, or a zip of them", "none")
            check_headers(upload.files, self.limits)
            yield upload
            with session.lock:
                session.stored += upload.unpacked
        except InputError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise Refused(400, public(error, [*upload.files, folder / "x"])) from error
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def shared_named(self, image: str) -> Item | None:
        """By its id, its name or the UID of its DICOM series: never by a path."""
        shared = self.shared
        named = (one for one in shared.values() if image and image in (one.name, one.series))
        return shared.get(image) or next(named, None)

    def share(self, image: str, name: str, content: BinaryIO) -> Item:
        """A client's file as an image of this name for all clients, until the server ends. The same is not kept twice;
        another one of the name is refused: nobody's masks shall lie on somebody else's image."""
        session = self.sessions.new()
        try:
            with self._adding:
                most = self.limits.sessions // 2
                expect(len(self.added) < most, "image", f"at most {most} images that clients add", "as many")
                items = self.upload(session, [(name, content)])
                expect(len(items) == 1, "file", "one image or one DICOM series", len(items))
                (item,), there = items, self.shared_named(image)
                if there is not None:
                    same = np.array_equal(self.values(item).values, self.values(there).values)
                    if not same:
                        raise Refused(409, "image: expected a name of its own, found that of another image; rename it")
                    return there
                item.input, item.own, session.lasting = replace(item.input, name=image), False, True
                self.added.add(item.id)
                self.shared = {**self.shared, item.id: item}  # a new one: others may be looking through the old one
                return item
        finally:
            if not session.lasting:
                self.sessions.end(session)

    # --- work --------------------------------------------------------------------------------------------------------

    def start_job(self, session: Session, request: JobRequest) -> Job:
        item, entry = self.item(session, request.item), self.models.get(request.model)
        if item.input.error:
            raise Refused(400, public(item.input.error, item.paths))

        def work(progress: Progress) -> Segmented:
            done = segment(item, entry, request, self.images, self.limits, progress)
            item.disagreement = most_disagreement(done.result.measurements())
            return done

        job = Job(
            work=work,
            say=lambda error: public(error, item.paths),
            item=item.id,
        )
        session.keep(job, self.limits)
        try:
            self.queue.add(job)
        except Refused:
            with session.lock:
                session.jobs.pop(job.id, None)
            raise
        return job

    def document(self, item: Item) -> dict[str, Any]:
        """Of an item, with the masks of a saved result or of a store's raters where it has them."""
        opened = self.images.shown(item)
        if item.saved is not None:
            result = item.saved.result(opened)
            return document.result_document(result, result.representatives())
        store = item.input.store
        channels = store.channels if store is not None else self.models.first.spec.channels
        return document.image_document(opened, channels)

    # --- raters ------------------------------------------------------------------------------------------------------

    def values(self, item: Item) -> Image:
        """The values of any item as of a file: of a store's case they are those it keeps."""
        store = item.input.store
        if store is None:
            return self.images.file(item)
        image, _ = store.read_stored([item.input.index])
        row, column = (float(mm) for mm in store.cases.spacing[item.input.index])
        source = Source("store", item.paths, image.shape[2:])
        return Image(image[0][:, None], Grid(image.shape[2:], (row, column), source=source))

    def save_rater(self, session: Session, item: Item, request: RaterRequest) -> tuple[list[str], list[str]]:
        """The files written, and the targets of the model that the rater has not saved yet."""
        job = session.job(request.job) if request.job else None
        entry = self.models.get(job.result.model if job and job.result else None)
        file = self.values(item)
        shape = file.values.shape[2:] if file.planar else file.values.shape[1:]
        mask = unpacked(request.mask, shape)
        note: dict[str, Any] = {"corrected_from": None}
        if job is not None and job.result is not None:
            note = {"corrected_from": {"sample": request.sample, "settings": dict(job.result.result.settings)}}
        known = self.known_targets()
        if self.corrections is not None and not request.new_target and safe_name(request.target, "target") not in known:
            adds = 'a new one needs "new_target": true'
            raise Refused(409, f"target: expected {', '.join(known.values())}, found {request.target!r} ({adds})")
        masks = {request.target: mask}
        return self.save(item, file, masks, request.name, note, entry.spec.targets, request.slices)

    def known_targets(self) -> dict[str, str]:
        """Folder's name -> target: of all models, and of what was saved before."""
        saved = self.corrections.targets() if self.corrections is not None else []
        return {safe_name(one, "target"): one for one in [*saved, *(t for m in self.models for t in m.spec.targets)]}

    def save(
        self,
        item: Item,
        file: Image,
        masks: dict[str, np.ndarray],
        rater: str,
        note: dict[str, Any],
        targets: Sequence[str],
        slices: Sequence[int] | None = None,
    ) -> tuple[list[str], list[str]]:
        if self.corrections is None:
            raise Refused(409, "corrections: expected a server that was started with --corrections DIR, found none")
        written = self.corrections.save(item, file, masks, rater, note, slices)
        known = targets if set(masks) <= set(targets) else list(masks)
        return written, self.corrections.missing(item, file, rater, known)

    def save_labels(
        self,
        session: Session,
        item: Item,
        name: str,
        content: BinaryIO,
        names: dict[int, str],
        rater: str,
        note: dict[str, Any],
    ) -> list[str]:
        """A label map that a client sends as a file, on the grid of the item: each value is a target's mask."""
        file = self.values(item)
        with self._received(session, [(name, content)]) as upload:  # no image of the session: nobody sees it as one
            labels = labels_from_grid(upload.files[0], file)
        shape = file.values.shape[2:] if file.planar else file.values.shape[1:]
        found = {int(value) for value in np.unique(labels)} - {0}
        expect(found <= set(names), "label", f"the values {', '.join(map(str, sorted(names)))}", sorted(found))
        names = self._as_targets(names, found)
        masks: dict[str, np.ndarray] = {}
        for value, target in names.items():  # two segments may have the same name
            mask = (labels == value).astype(np.uint8).reshape(shape)
            masks[target] = np.maximum(masks[target], mask) if target in masks else mask
        kept = self._meant({target: bool(mask.any()) for target, mask in masks.items()})
        values = {safe_name(target, "target"): value for value, target in names.items() if target in kept}
        note = {**note, "label_names": values}
        return self.save(item, file, {target: masks[target] for target in kept}, rater, note, kept)[0]

    def _meant(self, marked: dict[str, bool]) -> list[str]:
        """A client has an empty segment for every target of every model. An empty one means "nothing is there" if it is
        a target of a model of which another target is marked; of none, of the model that comes first."""
        known = [entry.spec.targets for entry in self.models]
        used = [targets for targets in known if any(marked.get(target) for target in targets)]
        if not any(marked.values()):
            used = [targets for targets in known if set(targets) & set(marked)][:1] or [tuple(marked)]
        return [target for target, any_pixel in marked.items() if any_pixel or any(target in one for one in used)]

    def _as_targets(self, names: dict[int, str], marked: set[int]) -> dict[int, str]:
        """Segments by the names of targets: a single one of another name is the only target of the first model."""
        known, targets = self.known_targets(), self.models.first.spec.targets
        unknown = {value for value, name in names.items() if safe_name(name, "segment") not in known}
        if marked == unknown & marked and len(marked) == len(targets) == 1:
            return dict.fromkeys(marked, targets[0])
        stray = ", ".join(names[value] for value in sorted(unknown & marked))
        left = {value: name for value, name in names.items() if value not in unknown}
        expect(left and not stray, "label", f"segments called {', '.join(known.values())}", stray or "none of these")
        return left

    # --- what nobody needs any more ----------------------------------------------------------------------------------

    def _ended(self, session: Session) -> None:
        for job in session.unfinished():
            self.queue.cancel(job)
        for item in session.items.values():
            self.images.forget(item)

    def _keep_house(self) -> None:
        while not self._closing.wait(HOUSEKEEPING):
            self.queue.cancel_abandoned()
            self.sessions.expire()


def unpacked(text: str, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of 0 and 1 from a client: base64 of gzip; no more is unpacked than the shape has room for."""
    size = int(np.prod(shape))
    try:
        packed = base64.b64decode(text, validate=True)
        with gzip.open(io.BytesIO(packed)) as file:
            content = file.read(size + 1)
    except (binascii.Error, ValueError, OSError, EOFError, zlib.error) as error:
        raise InputError("mask: expected base64 of gzip of uint8, found something else") from error
    expect(len(content) == size, "mask", f"{by(shape)} bytes", "another number of them")
    mask = np.frombuffer(content, np.uint8).reshape(shape)
    expect(mask.max(initial=0) <= 1, "mask", "the values 0 and 1", "others")
    return mask


def remove_leftovers(folder: Path) -> None:
    """Of servers that were killed: whoever lives holds the lock of its folder."""
    for old in folder.glob(f"{PREFIX}*"):
        try:
            if time.time() - old.stat().st_mtime < 60:  # perhaps being made right now
                continue
            held = lock(old / "lock", wait=False)
        except OSError:  # of another user, or just being made or removed
            continue
        if held is not None:
            held.close()
            shutil.rmtree(old, ignore_errors=True)

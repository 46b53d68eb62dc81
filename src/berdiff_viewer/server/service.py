"""Everything behind the routes: items, sessions, jobs, uploads, corrections; started and closed as one."""

import asyncio
import base64
import gzip
import io
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from berdiff import __version__
from berdiff.data.describe import by, check, expect
from berdiff.data.image import Grid, Image, Source
from berdiff.data.limits import check_size
from berdiff.data.volumes import stored_shape
from berdiff.errors import InputError
from berdiff.files import lock
from berdiff_viewer import document
from berdiff_viewer.server.common import Limits, Refused, not_found, public
from berdiff_viewer.server.corrections import Corrections, digest_of, plane_shape, safe_name
from berdiff_viewer.server.grid import labels_from_grid
from berdiff_viewer.server.items import Item, most_disagreement, uploaded_items
from berdiff_viewer.server.models import Models
from berdiff_viewer.server.schemas import ItemAnswer, JobRequest, RaterAnswer, RaterRequest, StateAnswer
from berdiff_viewer.server.sessions import Job, JobQueue, Session, Sessions
from berdiff_viewer.server.uploads import Upload
from berdiff_viewer.server.work import Images, Progress, Segmented, segment

PREFIX = "berdiff-view-"
HOUSEKEEPING = 0.5  # seconds between two looks at what is over
AT_A_TIME = 2  # threads that read and pack images; the others wait their turn without one
T = TypeVar("T")
Files = Iterable[tuple[str, BinaryIO]]  # (name, content)


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
        self.queue = JobQueue(self.limits, self.say)
        self.sessions = Sessions(self.folder, self.limits, self._ended)
        self.added: set[str] = set()  # ids of shared items that a client added
        self._adding = threading.Lock()
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep_house, name="berdiff-keeper", daemon=True)
        self._readers = ThreadPoolExecutor(AT_A_TIME, "berdiff-reader")

    def start(self) -> None:
        self._keeper.start()

    def close(self) -> None:
        """Ends all work and removes every temporary file. May be called again."""
        self._closing.set()
        self.queue.close()
        self._readers.shutdown(wait=False, cancel_futures=True)
        self.sessions.close()
        if self._alive is not None:
            self._alive.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def heavy(self, work: Callable[[], T]) -> T:
        """Work that takes longer than an answer may hold up others."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def say(self, error: Exception | str) -> str:
        """What a client is told of an error: no folder of this machine."""
        upload = rf"{re.escape(str(self.folder))}(/[0-9a-f]{{16}}(/[0-9a-f]{{8}})?)?"
        sentence = re.sub(upload, "the upload", re.sub(f"{upload}/", "", str(error)))
        folders = {path.parent for item in self.shared.values() for path in item.paths}
        return public(sentence, folders | ({self.corrections.folder} if self.corrections else set()))

    def state(self, session: Session) -> StateAnswer:
        return StateAnswer(
            token=session.token,
            version=__version__,
            models=[model.shown() for model in self.models],
            items=[self.shown(item) for item in (*self.shared.values(), *session.items.values())],
            limits=self.limits.shown(),
            corrections=self.corrections is not None,
        )

    def shown(self, item: Item) -> ItemAnswer:
        return item.shown(self.say(item.input.error) if item.input.error else "")

    def item(self, session: Session, id: str) -> Item:
        """A shared one or the session's own; any other, even of another session, is not there."""
        item = self.shared.get(id) or session.items.get(id)
        if item is None:
            raise not_found("item")
        return item

    # --- uploads -----------------------------------------------------------------------------------------------------

    def upload(self, session: Session, files: Files) -> list[Item]:
        """The new items; where one file is refused, none is kept."""
        with self._received(session, files) as upload:
            items = uploaded_items(upload.folder, self.models.first.spec.channels, "uploaded")
            for item in items:  # by their headers, before anything is decoded
                item.check()
                check_size(item.name, (item.channels or 1, *item.shape), 4)  # as it is shown, in 32 bits
            with session.lock:
                most = self.limits.items
                fits = len(session.items) + len(items) <= most
                check(fits, f"upload: a session may have at most {most} images", "limit")
                session.items |= {item.id: item for item in items}
        return items

    @contextmanager
    def _received(self, session: Session, files: Files) -> Generator[Upload]:
        """The files in a folder of their own, which is removed where the block refuses one."""
        folder = session.folder / secrets.token_hex(4)
        folder.mkdir(parents=True)
        upload = Upload(folder, self.limits, self.sessions.room())
        try:
            for name, content in files:
                upload.add(name, content)
            kinds = "PNG, JPG, TIFF, NIfTI, DICOM or .npy files, or a zip of them"
            check(upload.files, f"upload: there are no {kinds}", "kind")
            yield upload
            with session.lock:
                session.stored += upload.unpacked
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def shared_named(self, image: str) -> Item | None:
        """By its id, its name or the UID of its DICOM series: never by a path."""
        named = (one for one in self.shared.values() if image and image in (one.name, one.series))
        return self.shared.get(image) or next(named, None)

    def share(self, image: str, name: str, content: BinaryIO) -> Item:
        """A client's file as an image of this name for all clients, until the server ends. The same is not kept twice;
        another one of the name is refused: nobody's masks shall lie on somebody else's image."""
        session = self.sessions.new()
        try:
            with self._adding:
                most = self.limits.sessions // 2
                check(len(self.added) < most, f"image: clients may add at most {most} images", "limit")
                item, there = self.only_image(session, [(name, content)]), self.shared_named(image)
                if there is not None:
                    if not np.array_equal(self.values(item).values, self.values(there).values):
                        raise Refused(409, "image: another image has this name; rename it")
                    return there
                item.input, item.own, session.lasting = replace(item.input, name=image), False, True
                self.added.add(item.id)
                self.shared = {**self.shared, item.id: item}  # a new one: others may be looking through the old one
                return item
        finally:
            if not session.lasting:
                self.sessions.end(session)

    def only_image(self, session: Session, files: Files) -> Item:
        """The one image that a program's files are, called by its values: the same image gets the same masks, whatever
        the program's temporary file was called."""
        items = self.upload(session, files)
        check(len(items) == 1, f"files: these are {len(items)} images, and not one image or DICOM series")
        items[0].input = replace(items[0].input, name=f"image-{digest_of(self.values(items[0]))}")
        return items[0]

    # --- work --------------------------------------------------------------------------------------------------------

    def start_job(self, session: Session, request: JobRequest) -> Job:
        item, entry = self.item(session, request.item), self.models.get(request.model)
        item.check()

        def work(progress: Progress) -> Segmented:
            done = segment(item, entry, request, self.images, self.limits, progress)
            item.disagreement = most_disagreement(done.result.measurements())
            return done

        job = Job(work, item.id)
        session.keep(job, self.limits)
        try:
            self.queue.add(job)
        except Refused:
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

    def save_rater(self, session: Session, item: Item, request: RaterRequest) -> RaterAnswer:
        job = session.jobs.get(request.job or "")  # one that is gone is no reason to lose a mask
        done = job.result if job is not None else None
        corrections, file = self._corrections(), self.values(item)
        mask = unpacked(request.mask, plane_shape(file))
        known = self.known_targets()
        if not request.new_target and safe_name(request.target, "target") not in known:
            adds = 'a new one needs "new_target": true'
            raise Refused(409, f"target: {request.target!r} is none of {', '.join(known.values())} ({adds})")
        of = {"sample": request.sample, "settings": dict(done.result.settings)} if done is not None else None
        note = {"corrected_from": of}
        saved = corrections.save(item, file, {request.target: mask}, request.name, note, request.slices)
        targets = self.models.get(done.model if done is not None else None).spec.targets
        known = targets if request.target in targets else [request.target]
        return RaterAnswer(saved=saved, missing=corrections.missing(item, file, request.name, known))

    def _corrections(self) -> Corrections:
        if self.corrections is None:
            raise Refused(409, "corrections: the server was started without --corrections DIR")
        return self.corrections

    def known_targets(self) -> dict[str, str]:
        """Folder's name -> target: of all models, and of what was saved before."""
        saved = self.corrections.targets() if self.corrections is not None else []
        return {safe_name(one, "target"): one for one in [*saved, *(t for m in self.models for t in m.spec.targets)]}

    def save_labels(
        self, item: Item, name: str, content: BinaryIO, names: dict[int, str], rater: str, note: Mapping[str, Any]
    ) -> list[str]:
        """A label map that a client sends as a file, on the grid of the item: each value is a target's mask."""
        file, scratch = self.values(item), self.sessions.new()
        try:
            with self._received(scratch, [(name, content)]) as upload:
                (path, *_) = upload.files
                shape, voxels = stored_shape(path), by(file.values.shape[1:])
                same = prod(shape) == file.values[0].size
                expect(same, path, f"a label map of {voxels} voxels", by(shape), "shape")
                labels = labels_from_grid(path, file)
        finally:
            self.sessions.end(scratch)
        marked = {int(value) for value in np.unique(labels)} - {0}
        stray = sorted(marked - set(names))
        check(not stray, f"label: no segment has the values {stray}; there are {sorted(names)}")
        masks: dict[str, np.ndarray] = {}
        names = self._as_targets(names, marked)
        for value, target in names.items():  # two segments may have the same name
            mask = (labels == value).astype(np.uint8).reshape(plane_shape(file))
            masks[target] = np.maximum(masks[target], mask) if target in masks else mask
        kept = self._meant({target: bool(mask.any()) for target, mask in masks.items()})
        values = {safe_name(target, "target"): value for value, target in names.items() if target in kept}
        masks = {target: masks[target] for target in kept}
        return self._corrections().save(item, file, masks, rater, {**note, "label_names": values})

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
        check(left and not stray, f"label: a segment must be called {' or '.join(known.values())}, not {stray}", "name")
        return left

    # --- what nobody needs any more ----------------------------------------------------------------------------------

    def _ended(self, session: Session) -> None:
        for job in session.unfinished():
            self.queue.cancel(job)
        for item in session.items.values():
            self.images.forget(item)

    def _keep_house(self) -> None:
        while not self._closing.wait(HOUSEKEEPING):
            self.queue.cancel_abandoned(self.limits.abandoned_seconds)
            self.sessions.expire()


def unpacked(text: str, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of 0 and 1 from a client: base64 of gzip; no more is unpacked than the shape has room for."""
    size = prod(shape)
    try:
        with gzip.open(io.BytesIO(base64.b64decode(text, validate=True))) as file:
            content = file.read(size + 1)
    except Exception as error:  # whatever a library meets in foreign bytes
        raise InputError("mask: this is no base64 of gzip", "damaged") from error
    check(len(content) == size, f"mask: it must have {by(shape)} bytes", "shape")
    mask = np.frombuffer(content, np.uint8).reshape(shape)
    check(mask.max(initial=0) <= 1, "mask: only the values 0 and 1 are allowed")
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

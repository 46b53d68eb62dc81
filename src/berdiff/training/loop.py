"""The loop: batches in, steps down the loss, averages, checkpoints, validation. The engine is Lightning Fabric."""

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from berdiff.methods import folder as model_folder
from berdiff.training import checkpoint, state
from berdiff.training.batches import Batch
from berdiff.training.config import TrainConfig
from berdiff.training.ema import Ema, ema_decay
from berdiff.training.engine import learning_rate, set_up
from berdiff.training.record import memory_mb
from berdiff.training.report import Reporter, Window
from berdiff.training.stop import RunStopped, Signals, disk_errors_as_sentence, memory_errors_as_sentence
from berdiff.training.validate import Cases, score, sheet


@dataclass
class Progress:
    """All that changes in a run besides tensors: the counters of state.json."""

    step: int = 0  # batches seen
    skipped: int = 0  # of these, steps whose loss or gradient was not finite
    bad_in_a_row: int = 0
    minutes: float = 0.0  # of the sessions before this one
    best_ged: float | None = None
    best_step: int = 0


class Trainer:
    """One session of a run. Every random draw is a function of (seed, step), so no random state is to be remembered."""

    def __init__(
        self,
        fabric: Fabric,
        segmenter: nn.Module,
        config: TrainConfig,
        batches: Callable[[int], Iterator[list[Batch]]],
        cases: Cases | None,
        run: Path,
    ) -> None:
        """`batches(step)` yields this process's parts of batch step, step + 1, ...; `cases` are validated on."""
        self.fabric, self.config, self.batches, self.cases, self.run = fabric, config, batches, cases, run
        self.of_record = copy.deepcopy(segmenter).cpu()  # filled with the averages whenever they are saved
        self.module, self.optimizer = set_up(fabric, segmenter, config)
        self.ema = Ema(self.module.module)
        self.progress = Progress()
        self.signals = Signals()
        self.report = Reporter(config, run, on=fabric.is_global_zero)
        self._saved_step = -1
        self._started = time.monotonic()

    # --- the session -------------------------------------------------------------------------------------------------

    def train(self) -> str:
        """Run until the end, a limit or a signal; save; return the reason as a sentence."""
        notes = self._resume()
        with (
            self._room_for("the run"),
            self.report.opened(self.progress.step, str(self.fabric.device)),
            self.signals.watched(),
        ):
            for note in notes:
                self.report.say(note)
            reason = self._limit() or self._steps()
            self._save()
            self._end(reason)
        return reason

    def _steps(self) -> str:
        config, progress = self.config.loop, self.progress
        window = Window()
        for parts in self.batches(progress.step):
            terms, norm, bad, signalled = self.step(progress.step + 1, parts)
            progress.step += 1
            window.images += config.batch_size
            if bad:
                self._note_bad_step(terms, norm)
            else:
                progress.bad_in_a_row = 0
                window.add(terms, norm)
            if progress.step % config.log_every == 0:
                self._log(window)
                window = Window()
            with window.paused():
                if self.cases is not None and progress.step % self.config.validation.every == 0:
                    self._validate(self.cases)
                if progress.step % config.checkpoint_every == 0:
                    self._save()
            if signalled:
                return f"stopped by {self.signals.received.name if self.signals.received else 'another process'}"
            if (reason := self._limit()) is not None:
                return reason
        raise AssertionError("the batches ended, which they never do")

    def _limit(self) -> str | None:
        """Why the run is over, or None; the same in every process."""
        loop = self.config.loop
        if self.progress.step >= loop.max_steps:
            return f"finished: {loop.max_steps} steps"
        if loop.max_minutes is not None and self._any(self._minutes() >= loop.max_minutes)[0]:
            return f"finished: {loop.max_minutes:g} minutes"
        return None

    # --- one step ----------------------------------------------------------------------------------------------------

    def step(self, step: int, parts: list[Batch]) -> tuple[dict[str, Tensor], Tensor, bool, bool]:
        """Step 1, 2, ...: (terms of the loss, gradient norm, whether it had to be skipped, whether to leave)."""
        fabric, config = self.fabric, self.config
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(config.optim, step)
        total: dict[str, Tensor] = {}
        with memory_errors_as_sentence(lambda: self._memory_advice(parts[0])):
            for number, part in enumerate(parts):
                generators = part.generators(config.seed, step, fabric.device)
                image, masks = fabric.to_device((part.image, part.masks))
                with fabric.no_backward_sync(self.module, enabled=number < len(parts) - 1):
                    with fabric.autocast():
                        terms = self.module.loss(image, masks, generators)
                    fabric.backward(terms["loss"] / len(parts))
                for name, value in terms.items():
                    total[name] = total.get(name, 0) + value.detach() / len(parts)
            norm = self._clip()
            bad, signalled = self._any(
                not bool(torch.isfinite(total["loss"]) & torch.isfinite(norm)), self.signals.received is not None
            )
            if not bad or config.engine.precision == "16-mixed":
                self.optimizer.step()  # with fp16 the scaler leaves a bad step out itself, and lowers its scale
            if not bad:
                updates = step - 1 - self.progress.skipped
                self.ema.update(ema_decay(config.optim.ema_decay, updates, config.optim.ema_warmup))
            self.optimizer.zero_grad()
        return total, norm, bad, signalled

    def _clip(self) -> Tensor:
        """Shorten the gradient where asked; its length before that."""
        most = self.config.optim.clip_norm or math.inf
        norm = self.fabric.clip_gradients(self.module, self.optimizer, max_norm=most, error_if_nonfinite=False)
        assert norm is not None  # it is None only where values are clipped, not the norm
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _any(self, *flags: bool) -> list[bool]:
        """For each flag, whether any process raised it: all must do the same."""
        if self.fabric.world_size == 1:
            return list(flags)
        raised = torch.tensor([float(flag) for flag in flags], device=self.fabric.device)
        return [bool(value > 0) for value in self._reduce(raised, "sum")]

    def _reduce(self, values: Tensor, how: str) -> Tensor:
        reduced = self.fabric.all_reduce(values, reduce_op=how)
        assert isinstance(reduced, Tensor)
        return reduced

    def _note_bad_step(self, terms: dict[str, Tensor], norm: Tensor) -> None:
        progress, most = self.progress, self.config.loop.max_bad_steps
        progress.skipped += 1
        progress.bad_in_a_row += 1
        found = f"loss {float(terms['loss']):g}, gradient norm {float(norm):g}"
        self.report.say(f"step {progress.step} skipped: {found} ({progress.skipped} skipped so far)")
        if progress.bad_in_a_row >= most:
            raise RunStopped(
                f"stopped at step {progress.step}: {most} steps in a row without a finite loss and gradient ({found}); "
                f"{self._what_is_safe()}; try a lower --optim.lr, --optim.clip-norm 1 or --engine.precision 32-true"
            )

    def _memory_advice(self, part: Batch) -> str:
        count, (height, width) = len(part.places), part.image.shape[-2:]
        return (
            f"{count} slices of {height}x{width} at once are too many for {self.fabric.device}; raise "
            f"--loop.accumulate (the same result in less memory), lower --loop.batch-size (now "
            f"{self.config.loop.batch_size}) or use --engine.precision bf16-mixed; {self._what_is_safe()}"
        )

    # --- telling -----------------------------------------------------------------------------------------------------

    def _log(self, window: Window) -> None:
        means = window.means()
        if self.fabric.world_size > 1 and means:
            values = torch.tensor(list(means.values()), device=self.fabric.device)
            means = dict(zip(means, self._reduce(values, "mean").tolist(), strict=True))
        row = self._row("train") | means
        row["lr"] = self.optimizer.param_groups[0]["lr"]
        row["images_per_s"] = window.images_per_s()
        row["memory_mb"] = memory_mb(self.fabric.device)
        self.report.training(row, self.progress.best_ged)

    def _row(self, kind: str) -> dict:
        progress = self.progress
        return {"kind": kind, "step": progress.step, "minutes": self._minutes(), "skipped": progress.skipped}

    def _minutes(self) -> float:
        """Of all sessions together."""
        return self.progress.minutes + (time.monotonic() - self._started) / 60

    def _end(self, reason: str) -> None:
        progress = self.progress
        self.report.add(self._row("end") | {"reason": reason})
        line = f"{reason} (step {progress.step}, {self._minutes():.1f} minutes in all); "
        if not reason.startswith("finished"):
            line += "saved, and the same command goes on from here"
        else:
            line += f"the model of record is {self.run / 'model'}"
            if progress.best_ged is not None:
                line += f", the best by GED ({progress.best_ged:.3f} at step {progress.best_step}) {self.run / 'best'}"
        self.report.say(line)

    # --- validation --------------------------------------------------------------------------------------------------

    def _validate(self, cases: Cases) -> None:
        config, progress = self.config.validation, self.progress
        begun, n = time.monotonic(), config.samples
        self.module.eval()
        with self.ema.in_place(), memory_errors_as_sentence(lambda: "lower --validation.batch-size"):
            values, shown = score(self.fabric, self.module, cases, config, self.config.seed)
        self.module.train()
        line = f"step {progress.step}: validation GED{n} {values['ged']:.4f}, HM-IoU{n} {values['hm_iou']:.4f}"
        if progress.best_ged is None or values["ged"] < progress.best_ged:
            progress.best_ged, progress.best_step = values["ged"], progress.step
            with self.ema.in_place():
                weights = state.weights(self.module.module)
            self._write_model("best", weights)
            line += " (the best so far)"
        self.report.add(self._row("validation") | values | {"seconds": time.monotonic() - begun})
        if len(shown) and self.fabric.is_global_zero:
            sheet(self.run / "sheets" / f"step-{progress.step:08d}.png", cases, shown, line)
        self.report.say(line)

    # --- saving and resuming -----------------------------------------------------------------------------------------

    def _save(self) -> None:
        """Checkpoint, then the model of record. With FSDP every process takes part; the first one writes."""
        step = self.progress.step
        if step in (0, self._saved_step):
            return
        tensors = state.gather(self.module.module, self.optimizer.optimizer, self.ema)
        content = asdict(self.progress) | {"minutes": self._minutes(), "scaler": self._precision().state_dict()}
        if self.fabric.is_global_zero:
            checkpoint.write(self.run / "checkpoints", step, tensors, content, self.config.loop.keep)
        self._saved_step = step
        self._write_model("model", tensors["ema"])
        self.fabric.barrier()

    def _write_model(self, name: str, weights: dict[str, Tensor]) -> None:
        """A model folder, by the first process."""
        if self.fabric.is_global_zero:
            self.of_record.load_state_dict(weights)
            model_folder.save(self.of_record, self.run / name)

    def _resume(self) -> list[str]:
        """Take up the newest whole checkpoint, if there is one; what is to be said about it."""
        newest, notes = checkpoint.read_newest(self.run / "checkpoints")
        self.fabric.barrier()  # all have read before the first one cleans
        if newest is not None:
            content = dict(newest.state)
            self._precision().load_state_dict(content.pop("scaler"))
            self.progress = Progress(**content)
            state.restore(newest.tensors, self.module.module, self.optimizer.optimizer, self.ema)
            self._saved_step = self.progress.step
            self._write_model("model", newest.tensors["ema"])  # a kill may have come between the checkpoint and this
            notes = [*notes, f"resuming after step {self.progress.step}"]
        if self.fabric.is_global_zero:
            checkpoint.clean(self.run, self.progress.step, self.config.loop.keep)
        return notes

    def _precision(self):
        """Fabric's precision plugin: it holds the scale of fp16's gradients, and nothing otherwise."""
        return self.fabric.strategy.precision

    def _room_for(self, what: str) -> AbstractContextManager[None]:
        return disk_errors_as_sentence(f"{what} in {self.run}", self._what_is_safe)

    def _what_is_safe(self) -> str:
        if self._saved_step < 0:
            return "there was no checkpoint yet"
        return f"the checkpoint of step {self._saved_step} is whole, and the same command goes on from it"

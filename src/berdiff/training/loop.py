"""The loop: batches in, steps down the loss, averages, checkpoints, validation. The engine is Lightning Fabric."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor

from berdiff import schema
from berdiff.data.batches import Batch, Batches
from berdiff.data.describe import by
from berdiff.diffusion.random import sample_generators
from berdiff.errors import InputError
from berdiff.methods import folder as model_folder
from berdiff.methods.base import Segmenter, Terms
from berdiff.training import checkpoint, state
from berdiff.training.checkpoint import Counters
from berdiff.training.config import AnyConfig
from berdiff.training.ema import Ema, copy, ema_decay, saved_buffers
from berdiff.training.engine import clip, set_rates, set_up, sum_over_processes
from berdiff.training.journal import Journal, RunningMeans
from berdiff.training.machine import used_memory
from berdiff.training.run_folder import StatsRow
from berdiff.training.stop import RunStopped, Signals, disk_errors_as_sentence, memory_errors_as_sentence, only_writer
from berdiff.training.validate import ValidationCases, validate


class Trainer:
    """One session of a run. Every random draw is a function of (seed, step), so there is no random state to save."""

    def __init__(
        self,
        fabric: Fabric,
        segmenter: Segmenter,
        config: AnyConfig,
        batches: Batches,
        cases: ValidationCases | None,
        run: Path,
        notes: Sequence[str] = (),
    ) -> None:
        """`batches` gives this process's parts of each batch; `cases` are validated on; `notes` are printed first."""
        self.fabric, self.config, self.batches, self.cases, self.run = fabric, config, batches, cases, run
        self.module, self.optimizer = set_up(fabric, segmenter, config)
        self.segmenter: Segmenter = self.module.module
        self.precision = fabric.strategy.precision  # it holds the scale of fp16's gradients, and nothing otherwise
        self.ema = Ema(self.segmenter, segmenter.average_buffers)
        self.buffers = saved_buffers(self.segmenter)
        self.notes = notes
        self.counters = Counters()
        self.signals = Signals()
        self.journal = Journal(config, run, on=fabric.is_global_zero)
        self._saved_step = -1
        self._used = 0.0  # the share of the run that is over, by the limit that is nearest
        self._started = time.monotonic(), time.process_time()

    def train(self) -> str:
        """Run until the end, a limit or a signal; save; return the reason as a sentence."""
        with only_writer(self.run, self.fabric), disk_errors_as_sentence(f"the run in {self.run}", self._what_is_safe):
            notes = [*self.notes, *self._resume()]
            if self.config.validation.every and self.cases is None:
                notes.append(f"validation is off: the store has no cases in the split {self.config.validation.split}")
            with self.journal.opened(self.counters.step, str(self.fabric.device)), self.signals.watched():
                for note in notes:
                    self.journal.print(note)
                reason = self._limit() or self._steps()
                self._save()
                self._end(reason)
        return reason

    def _steps(self) -> str:
        config, counters = self.config.loop, self.counters
        means = RunningMeans()
        for parts in self.batches.after(counters.step):
            terms, norm, bad, signalled = self.step(counters.step + 1, parts)
            counters.step += 1
            means.images += config.batch_size
            if bad:
                self._note_bad_step(terms, norm)
            else:
                counters.bad_in_a_row = 0
                means.add(terms, norm)
            if counters.step % config.log_every == 0:
                self._log(means)
                means = RunningMeans()
            with means.paused():
                if self.cases is not None and counters.step % self.config.validation.every == 0:
                    self._validate(self.cases)
                if counters.step % config.checkpoint_every == 0:
                    self._save()
            if signalled:
                return f"stopped by {self.signals.received.name if self.signals.received else 'another process'}"
            if (reason := self._limit()) is not None:
                return reason
        raise AssertionError("the batches ended, which they never do")

    def _limit(self) -> str | None:
        """Why the run is over, or None; the same in every process."""
        used = self.config.loop.used(self.counters.step, **self._elapsed())
        self._used = max(used.values())
        return next((f"finished: {limit}" for limit, share in used.items() if share >= 1), None)

    def step(self, step: int, parts: list[Batch]) -> tuple[Terms, Tensor, bool, bool]:
        """Step 1, 2, ...: (terms of the loss, gradient norm, whether it had to be skipped, whether to leave)."""
        fabric, config, optimizer = self.fabric, self.config, self.optimizer.optimizer
        total: dict[str, Tensor] = {}
        before = [buffer.clone() for buffer in self.buffers]  # few or none; a forward pass moves BatchNorm's
        with memory_errors_as_sentence(lambda: self._memory_advice(parts[0])):
            for number, part in enumerate(parts):
                generators = sample_generators(config.seed, part.keys(step), 1, fabric.device)
                image, masks = fabric.to_device((part.image, part.masks))
                with fabric.no_backward_sync(self.module, enabled=number < len(parts) - 1):
                    with fabric.autocast():
                        terms = self.module.loss(image, masks, generators)
                    fabric.backward(terms["loss"] / len(parts))
                for name, value in terms.items():
                    total[name] = total.get(name, 0) + value.detach() / len(parts)
            set_rates(optimizer, config.optim, step, self._used)
            self.precision.unscale_gradients(optimizer)
            norm = clip(optimizer)
            finite = bool(torch.isfinite(total["loss"]) & torch.isfinite(norm))
            total, (bad, signalled) = self._agree(total, not finite, self.signals.received is not None)
            if not bad or config.engine.precision == "16-mixed":
                self.optimizer.step()  # with fp16 the scaler leaves a bad step out itself, and lowers its scale
            if bad:
                copy(before, self.buffers)  # else one NaN would stay in them, and in their averages, for good
            else:
                with torch.no_grad():
                    self.segmenter.after_step(total)
                updates = step - 1 - self.counters.skipped
                self.ema.update(ema_decay(config.optim.ema_decay, updates, config.optim.ema_warmup))
            self.optimizer.zero_grad()
        return total, norm, bad, signalled

    def _agree(self, terms: dict[str, Tensor], *flags: bool) -> tuple[dict[str, Tensor], list[bool]]:
        """Terms averaged over the processes; for each flag, whether any process raised it: all must do the same."""
        own = torch.stack([*(term.float() for term in terms.values()), *terms["loss"].new_tensor(flags).float()])
        summed = sum_over_processes(self.fabric, own)
        means = summed[: len(terms)] / self.fabric.world_size
        return dict(zip(terms, means, strict=True)), [bool(value > 0) for value in summed[len(terms) :]]

    def _note_bad_step(self, terms: Terms, norm: Tensor) -> None:
        counters, limit = self.counters, self.config.loop.max_bad_steps
        counters.skipped += 1
        counters.bad_in_a_row += 1
        found = f"loss {float(terms['loss']):g}, gradient norm {float(norm):g}"
        self.journal.print(f"step {counters.step} skipped: {found} ({counters.skipped} skipped so far)")
        if counters.bad_in_a_row >= limit:
            raise RunStopped(
                f"stopped at step {counters.step}: {limit} steps in a row without a finite loss and gradient "
                f"({found}); {self._what_is_safe()}; "
                "try a lower --optim.lr, --optim.clip-norm 1 or --engine.precision 32-true"
            )

    def _memory_advice(self, part: Batch) -> str:
        return (
            f"{len(part.places)} images of {by(part.image.shape[2:])} at once are too many for {self.fabric.device}; "
            f"raise --loop.accumulate (the same batch in less memory), lower --loop.batch-size (now "
            f"{self.config.loop.batch_size}) or use --engine.precision bf16-mixed; {self._what_is_safe()}"
        )

    def _log(self, means: RunningMeans) -> None:
        row = self._row("train") | means.values()
        row["lr"] = self.optimizer.param_groups[0]["lr"]
        row["images_per_s"] = means.images_per_s()
        row["memory_mb"] = used_memory(self.fabric.device) / 2**20
        self.journal.add_training(row, self.counters.best_ged)

    def _row(self, kind: str) -> StatsRow:
        return {"kind": kind, "step": self.counters.step, **self._elapsed(), "skipped": self.counters.skipped}

    def _elapsed(self) -> dict[str, float]:
        """Of all sessions together, in minutes: time, and CPU time of all processes."""
        own = [time.monotonic() - self._started[0], time.process_time() - self._started[1]]
        clocks, cpus = (sum_over_processes(self.fabric, torch.tensor(own, device=self.fabric.device)) / 60).tolist()
        minutes = self.counters.minutes + clocks / self.fabric.world_size
        return {"minutes": minutes, "cpu_minutes": self.counters.cpu_minutes + cpus}

    def _end(self, reason: str) -> None:
        counters, row = self.counters, self._row("end") | {"reason": reason}
        self.journal.add(row)
        line = f"{reason} (step {counters.step}, {row['minutes']:.1f} minutes in all); "
        if not reason.startswith("finished"):
            line += "saved; the same command resumes from here"
        else:
            line += f"the trained model is {self.run / 'model'}"
            if counters.best_ged is not None:
                line += f", the best by GED ({counters.best_ged:.3f} at step {counters.best_step}) {self.run / 'best'}"
        self.journal.print(line)

    def _validate(self, cases: ValidationCases) -> None:
        config, counters = self.config.validation, self.counters
        begun, n = time.monotonic(), config.samples
        self.module.eval()
        with self.ema.in_place(), memory_errors_as_sentence(lambda: "lower --validation.batch-size"):
            values, shown = validate(self.fabric, self.module, cases, config, self.config.seed)
        self.module.train()
        of_limit = "" if (limit := cases.ged_limit(n)) is None else f" (limit {limit:.3f})"
        line = f"step {counters.step}: validation GED{n} {values['ged']:.4f}{of_limit}, "
        line += f"HM-IoU{n} {values['hm_iou']:.4f}"
        if counters.best_ged is None or values["ged"] < counters.best_ged:
            counters.best_ged, counters.best_step = values["ged"], counters.step
            with self.ema.in_place():
                weights = state.weights(self.segmenter)
            self._write_model("best", weights)
            line += " (the best so far)"
        self.journal.add(self._row("validation") | values | {"seconds": time.monotonic() - begun})
        if len(shown) and self.fabric.is_global_zero:
            from berdiff.output.sample_sheet import sample_sheet  # matplotlib: half a second to import

            path, spec = self.run / "sheets" / f"step-{counters.step:08d}.png", self.segmenter.input_spec
            sample_sheet(path, *cases.planes(shown), "; ".join([line, *cases.notes]), spec.targets, spec.kind)
        self.journal.print(line)

    def _save(self) -> None:
        """Checkpoint, then the trained model. With FSDP every process takes part; the first one writes."""
        step = self.counters.step
        if step in (0, self._saved_step):
            return
        tensors = state.gather(self.segmenter, self.optimizer.optimizer, self.ema)
        content = asdict(self.counters) | self._elapsed() | {"scaler": self.precision.state_dict()}
        if self.fabric.is_global_zero:
            checkpoint.write(self.run / "checkpoints", step, tensors, content, self.config.loop.keep)
        self._saved_step = step
        self._write_model("model", tensors["ema"])
        self.fabric.barrier()

    def _write_model(self, name: str, weights: dict[str, Tensor]) -> None:
        if self.fabric.is_global_zero:
            model_folder.save(self.segmenter, self.run / name, weights)

    def _resume(self) -> list[str]:
        """Take up the newest whole checkpoint, if there is one; what is to be printed about it."""
        newest, notes = checkpoint.read_newest(self.run / "checkpoints")
        self.fabric.barrier()  # all have read before the first one cleans
        if newest is not None:
            where = f"{self.run / 'checkpoints'}: state"
            self.counters = schema.parse(Counters, newest.state, lambda place: f"{where}.{place}".rstrip("."))
            try:
                self.precision.load_state_dict(self.counters.scaler)
                state.restore(newest.tensors, self.segmenter, self.optimizer.optimizer, self.ema)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise InputError(f"{self.run}: a checkpoint of another network: {error}", "changed") from error
            self._saved_step = self.counters.step
            self._write_model("model", newest.tensors["ema"])  # a kill may have come between the checkpoint and this
            notes.append(f"resuming after step {self.counters.step}")
        if self.fabric.is_global_zero:
            checkpoint.clean(self.run, self.counters.step, self.config.loop.keep)
        return notes

    def _what_is_safe(self) -> str:
        if self._saved_step < 0:
            return "there was no checkpoint yet"
        return f"the checkpoint of step {self._saved_step} is whole, and the same command resumes from it"

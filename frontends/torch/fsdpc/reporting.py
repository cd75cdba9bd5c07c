# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Feeds transformers' TrainerCallbacks from the log of a run, so that those of W&B, MLflow and TensorBoard work as they are.

The log is read soon after it is written, and the run does not wait: a callback sees steps that are over, and one that ends the
training ends it a few steps later.
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .program import Step


@dataclass(frozen=True)
class Rhythm:
    """When events come."""
    epoch: int         # steps of an epoch
    microbatches: int  # of an epoch, which its last step may not fill
    per_step: int
    logging: int       # steps between two logs; 0: none
    first: bool        # also logs the first step

    def epochs_after(self, steps: int) -> float:
        whole, more = divmod(steps, self.epoch)
        return whole + min(more * self.per_step, self.microbatches) / self.microbatches


class Reporter:
    """Calls the events of a training. The state's log_history holds what was logged, as that of transformers' Trainer."""

    def __init__(self, args: Any, handler: Any, state: Any, rhythm: Rhythm, checkpoints: Path | None):
        from transformers.trainer_callback import TrainerControl
        self.args, self.handler, self.state, self.rhythm, self.checkpoints = args, handler, state, rhythm, checkpoints
        self.control = TrainerControl()
        self.losses: list[float] = []  # since the last log
        self.total, self.steps, self.began = 0.0, 0, time.monotonic()
        self.known = self._written()

    def _call(self, event: str, **more: Any) -> None:
        self.control = getattr(self.handler, event)(self.args, self.state, self.control, **more) or self.control

    def _written(self) -> Sequence[str]:
        return sorted(path.name for path in self.checkpoints.glob("step-*")) if self.checkpoints and self.checkpoints.is_dir() else []

    def _note_checkpoints(self) -> None:
        if (written := self._written()) != self.known:
            if set(written) - set(self.known):
                self._call("on_save")
            self.known = written

    def begin(self) -> None:
        self._call("on_train_begin")

    def log(self, values: dict[str, float]) -> None:
        if self.state.epoch is not None:
            values = {**values, "epoch": self.state.epoch}
        self.state.log_history.append({**values, "step": self.state.global_step})
        self._call("on_log", logs=values)

    def note(self, line: Step) -> bool:
        """Takes a line of the log. Returns false if a callback ends the training."""
        if line.is_evaluation:
            self._evaluated(line)
        else:
            self._trained(line)
        self._note_checkpoints()
        # transformers' own callback ends the training at its last step, where the run ends by itself.
        return not self.control.should_training_stop or self.state.global_step >= self.state.max_steps

    def _trained(self, line: Step) -> None:
        epoch = self.rhythm.epoch
        if line.number % epoch == 0:
            self._call("on_epoch_begin")
        self._call("on_step_begin")
        self.losses.append(line.loss)
        self.total += line.loss
        self.steps += 1
        self.state.global_step = line.number + 1
        self.state.epoch = self.rhythm.epochs_after(self.state.global_step)
        self._call("on_step_end")
        every = self.rhythm.logging
        if (every and self.state.global_step % every == 0) or (self.rhythm.first and self.state.global_step == 1):
            self.log({"loss": sum(self.losses) / len(self.losses), "grad_norm": line.values["grad_norm"], "learning_rate": line.values["lr"]})
            self.losses = []
        if self.state.global_step % epoch == 0:
            self._call("on_epoch_end")

    def _evaluated(self, line: Step) -> None:
        metrics: dict[str, float] = {"eval_loss": line.loss}
        if "eval_ms" in line.values:
            seconds = line.values["eval_ms"] / 1e3
            metrics |= {"eval_runtime": seconds, "eval_samples_per_second": line.values["eval_samples"] / max(seconds, 1e-9)}
        if self.state.epoch is not None:
            metrics["epoch"] = self.state.epoch
        self.log(metrics)
        # Callbacks compare with the best one before.
        self._call("on_evaluate", metrics=metrics)
        if self.state.best_metric is None or line.loss < self.state.best_metric:
            self.state.best_metric, self.state.best_global_step = line.loss, line.number

    def end(self, samples_per_step: int) -> dict[str, float]:
        """Logs the sums of the training and returns them. The last checkpoint follows the last line of the log."""
        self._note_checkpoints()
        seconds = max(time.monotonic() - self.began, 1e-9)
        metrics = {"train_runtime": seconds, "train_samples_per_second": self.steps * samples_per_step / seconds,
                   "train_steps_per_second": self.steps / seconds, "train_loss": self.total / max(self.steps, 1)}
        self.log(metrics)
        self._call("on_train_end")
        return metrics

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A Trainer that is called as Hugging Face's and trains by a compiled program.

    trainer = fsdpc.Trainer(model, TrainingArguments(…), train_dataset=…, eval_dataset=…, data_collator=…)
    trainer.train()
    trainer.save_model("tuned")

It collates the samples into files, exports and compiles the model, runs the program, calls the callbacks, and loads what was trained
into the model. Needs torch and transformers.
"""
from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch

from . import collating, training_arguments
from .errors import CommandLineError, InputError, ToolWarning
from .exporting import export
from .program import Step, run
from .reporting import Reporter, Rhythm
from .tool import FlagValue, PathLike, call, compile
from .weights import load, pretrained_in


def _loss_of(output: Any) -> Any:
    """Returns the loss of what a model of transformers gives."""
    return output["loss"] if isinstance(output, Mapping) else output if isinstance(output, torch.Tensor) else output[0]


class Trainer:
    """Trains `model` by `args`, transformers' TrainingArguments. Raises CommandLineError for a field that fsdpc cannot follow.

    Datasets are of `datasets`, or anything with a length and items. `data_collator` makes a dict of tensors of a list of items; by default
    that of transformers. `processing_class`, a tokenizer or a processor, pads and is saved with the model. `loss` is that of
    `fsdpc.export`. `ranks` and `launcher` are those of `fsdpc.run`, and `compile_flags` and `run_flags` are flags of the compile and of
    the program, which count more than `args`. All files lie in the folder `args.output_dir`.
    """

    def __init__(self, model: torch.nn.Module, args: Any, data_collator: Callable[[list[Any]], Any] | None = None, train_dataset: Any = None,
                 eval_dataset: Any = None, processing_class: Any = None, *, callbacks: Sequence[Any] | None = None, loss: Callable[..., Any] | None = None, ranks: int = 1, launcher: str = "threads",
                 compile_flags: Mapping[str, FlagValue] | None = None, run_flags: Mapping[str, FlagValue] | None = None,
                 tool: PathLike | None = None, **others: Any):
        from transformers.data.data_collator import DataCollatorWithPadding, default_data_collator
        from transformers.trainer_callback import TrainerState
        training_arguments.refuse_parameters(others)
        self._refuse_methods()
        training_arguments.refuse_others(args)
        training_arguments.refuse_evaluation(args, eval_dataset)
        self.model, self.args, self.train_dataset, self.eval_dataset = model, args, train_dataset, eval_dataset
        self.processing_class, self.loss, self.tool = processing_class, loss or _loss_of, tool
        self.ranks, self.launcher = ranks, launcher
        self.compile_flags, self.run_flags = dict(compile_flags or {}), dict(run_flags or {})
        pads = hasattr(processing_class, "pad")
        self.data_collator = data_collator or (DataCollatorWithPadding(processing_class) if pads else default_data_collator)
        self.state = TrainerState()
        self.callback_handler = self._handler(callbacks or [])
        self.folder = Path(args.output_dir)
        self.checkpoints = self.folder / "checkpoints"
        takes = inspect.signature((model.get_base_model() if hasattr(model, "get_base_model") else model).forward).parameters
        self.columns = {*takes, *self.labels(takes), "label", "label_ids"}

    def _refuse_methods(self) -> None:
        """Refuses methods of a subclass that transformers' Trainer would call."""
        import transformers
        for name in sorted(set(dir(type(self))) - set(dir(Trainer))):
            if hasattr(transformers.Trainer, name):
                raise CommandLineError(f"'{type(self).__name__}.{name}' would not be called, since a program trains; "
                                       "give what it computes as the loss of the model, or as 'loss'")

    def add_callback(self, callback: Any) -> None:
        """Adds a TrainerCallback, or the class of one."""
        self.callback_handler.add_callback(callback)

    def remove_callback(self, callback: Any) -> None:
        """Removes a TrainerCallback, or that of a class."""
        self.callback_handler.remove_callback(callback)

    def predict(self, *_: Any, **__: Any) -> None:
        """Is not there. Raises CommandLineError."""
        raise CommandLineError("fsdpc.Trainer has no 'predict'; call the trained model, or write predictions by --keep-output of fsdpc and "
                               "--predict of the program")

    def labels(self, columns: Any = None) -> list[str]:
        """Returns the inputs that have targets."""
        named = [name for name in (columns if columns is not None else self.columns) if "label" in name]
        return list(self.args.label_names or named or ["labels"])

    def _handler(self, callbacks: Sequence[Any]) -> Any:
        from transformers.integrations import get_reporting_integration_callbacks
        from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback, PrinterCallback, ProgressCallback
        own = PrinterCallback if self.args.disable_tqdm else ProgressCallback
        return CallbackHandler([DefaultFlowCallback, *get_reporting_integration_callbacks(self.args.report_to), *callbacks, own], self.model, self.processing_class,
                               None, None)

    # ---- samples ----

    def _collate_items(self, items: list[Any]) -> Any:
        if self.args.remove_unused_columns and items and isinstance(items[0], Mapping):
            items = [{name: value for name, value in item.items() if name in self.columns} for item in items]
        return self.data_collator(items)

    def _epochs(self) -> collating.Epochs:
        """Returns how the training goes through its samples. What cannot be filled up with samples without a target is left out."""
        args = self.args
        fills = collating.can_fill(collating.arrays_of(self._collate_items([self.train_dataset[0]])), self.labels())
        seed = args.seed if args.data_seed is None else args.data_seed
        epochs = collating.Epochs(len(self.train_dataset), args.per_device_train_batch_size, args.gradient_accumulation_steps * self.ranks, seed,
                                  shuffles=getattr(args, "train_sampling_strategy", "random") != "sequential",
                                  drops_last=args.dataloader_drop_last or not fills, drops_step=not fills)
        if epochs.steps == 0:
            raise InputError(f"the {epochs.samples} samples do not fill a step of {epochs.per_step} microbatches of {epochs.batch} samples")
        left = epochs.samples - epochs.steps * epochs.per_step * epochs.batch
        if not fills and left > 0:
            warnings.warn(f"the last {left} samples of each epoch do not fill a step and are left out: their targets are no integers, of "
                          "which some could be ignored", ToolWarning, stacklevel=4)
        return epochs

    def _collated(self, dataset: Any, order: Any, **more: Any) -> collating.Spool:
        return collating.collate(dataset, order, self._collate_items, folder=self.folder / "samples",
                                 workers=self.args.dataloader_num_workers, seed=self.args.seed, **more)

    def _write_samples(self, epochs: collating.Epochs | None, steps: int, evaluated: Any) -> dict[str, dict[str, Path]]:
        spools = {}
        if epochs:
            spools["train"] = self._collated(self.train_dataset, epochs.order(steps), batch=epochs.batch, labels=self.labels())
        if evaluated is not None:
            order = collating.in_order(len(evaluated), self.args.per_device_train_batch_size)
            spools["eval"] = self._collated(evaluated, order)
        pad = getattr(self.processing_class, "pad_token_id", None) or 0
        shapes, pads = collating.padding(list(spools.values()), self.labels(), pad)
        self._filled = spools["train"].filled if epochs else 0
        return {name: spool.write(self.folder / "samples" / name, shapes, pads) for name, spool in spools.items()}

    # ---- the program ----

    def _example(self, files: Mapping[str, Path]) -> dict[str, torch.Tensor]:
        """Returns the first microbatch, with integers in 64 bits as collators have them."""
        batch = self.args.per_device_train_batch_size
        found = {}
        for name, file in files.items():
            value = torch.from_numpy(numpy.array(numpy.load(file, mmap_mode="r")[:batch]))
            found[name] = value.long() if value.dtype == torch.int32 else value
        return found

    def _build(self, files: Mapping[str, Path], folder: Path) -> Path:
        """Exports and compiles the model for the shapes of the samples, and returns the program."""
        model, program = folder / "model.onnx", folder / "program"
        export(self.model, self._example(files), model, loss=self.loss, tool=self.tool)
        flags = training_arguments.compile_flags(self.args, self.model) | self.compile_flags
        compile(model, program, tool=self.tool, **flags)
        manifest = json.loads(call([str(program.absolute()), "--manifest"]))
        if self._filled and manifest.get("lossMean") != "step":
            raise InputError(f"{self._filled} samples without a target would fill up microbatches or steps, but the loss of the model is not a "
                             "mean over the targets of a step; use dataloader_drop_last=True and steps that the samples fill")
        self._read = [entry["name"] for entry in manifest["inputs"]]
        return program

    def _data(self, files: Mapping[str, Path]) -> dict[str, Path]:
        return {name: file for name, file in files.items() if name in self._read}

    def _trains_part(self) -> bool:
        return any(not parameter.requires_grad for parameter in self.model.parameters())

    def _flags(self, epoch: int, steps: int, resume: Any) -> dict[str, FlagValue]:
        args = self.args
        training_arguments.write_rates(args, steps, self.folder / "rates.txt")
        flags: dict[str, FlagValue] = {
            "accumulate": args.gradient_accumulation_steps, "seed": args.seed, "lr_schedule": f"file:{self.folder / 'rates.txt'}",
            "log": self.folder / "log.jsonl", "save": self.folder / "trained.safetensors", "save_trained": self._trains_part()}
        if training_arguments.checkpoints(args):
            flags |= {"checkpoint": self.checkpoints, "checkpoint_every": training_arguments.interval(args, "save", epoch, steps) or None,
                      "checkpoint_trained": self._trains_part(), "keep": args.save_total_limit, "resume": resume}
        if self.eval_dataset is not None:
            flags["eval_every"] = training_arguments.interval(args, "eval", epoch, steps) or None
            if args.load_best_model_at_end:
                flags["best"] = self.folder / "best"
        return flags | self.run_flags

    # ---- calls of users ----

    def train(self, resume_from_checkpoint: Any = None) -> Any:
        """Trains to the end, loads the parameters into the model, and returns transformers' TrainOutput.

        `resume_from_checkpoint` is True, for the newest checkpoint in `output_dir`, or the folder of one of them.
        """
        from transformers.trainer_utils import TrainOutput
        args = self.args
        self.folder.mkdir(parents=True, exist_ok=True)
        resume = training_arguments.resumed(args, resume_from_checkpoint, self.checkpoints)
        epochs = self._epochs()
        steps = training_arguments.steps_of(args, epochs.steps)
        evaluates = self.eval_dataset is not None and training_arguments.interval(args, "eval", epochs.steps, steps) > 0
        files = self._write_samples(epochs, steps, self.eval_dataset if evaluates else None)
        program = self._build(files["train"], self.folder)
        reporter = self._reporter(epochs, steps)
        reporter.begin()
        run(program, self.ranks, steps=steps, data=self._data(files["train"]), eval=self._data(files["eval"]) if evaluates else None,
            launcher=self.launcher, progress=False, on_step=reporter.note, **self._flags(epochs.steps, steps, resume))
        # Callbacks that upload the model do so at the end.
        load(self.model, self._result())
        metrics = reporter.end(epochs.batch * epochs.per_step)
        return TrainOutput(self.state.global_step, metrics["train_loss"], metrics)

    def _reporter(self, epochs: collating.Epochs, steps: int) -> Reporter:
        from transformers.trainer_callback import TrainerState
        args = self.args
        every = {f"{kind}_steps": training_arguments.interval(args, kind, epochs.steps, steps) for kind in ("logging", "eval", "save")}
        self.state = TrainerState(max_steps=steps, num_train_epochs=-(-steps // epochs.steps), train_batch_size=epochs.batch,
                                  **{name: value or steps for name, value in every.items()})
        return Reporter(args, self.callback_handler, self.state,
                        Rhythm(epochs.steps, epochs.microbatches, epochs.per_step, every["logging_steps"], args.logging_first_step),
                        self.checkpoints if training_arguments.checkpoints(args) else None)

    def _result(self) -> Path:
        best = self.folder / "best" / "best.json"
        if self.args.load_best_model_at_end and best.exists():
            return best.with_name(json.loads(best.read_text())["file"])
        return self.folder / "trained.safetensors"

    def evaluate(self, eval_dataset: Any = None) -> dict[str, float]:
        """Returns the loss of the model, as it is now, over a dataset: by default that of the constructor."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise CommandLineError("fsdpc.Trainer has no eval_dataset; give one to the constructor or to evaluate")
        folder = self.folder / "evaluation"
        folder.mkdir(parents=True, exist_ok=True)
        files = self._write_samples(None, 0, dataset)["eval"]
        program = self._build(files, folder)
        done: list[Step] = []
        run(program, steps=0, eval=self._data(files), progress=False, on_step=done.append)
        return {"eval_loss": done[-1].loss}

    def save_model(self, output_dir: PathLike | None = None) -> None:
        """Writes the model, or its adapters, as `from_pretrained` loads it, and the tokenizer's files."""
        folder = Path(output_dir or self.folder)
        for part in (pretrained_in(self.model), self.processing_class):
            if part is not None:
                part.save_pretrained(str(folder))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What Hugging Face's TrainingArguments mean here: flags of the compile and of the program, or a refusal.

Every field is in one of the tables below, or must have its default: a field of a later version of transformers is refused by its
name, and never ignored.
"""
from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CommandLineError
from .tool import FlagValue

if TYPE_CHECKING:
    import torch

# Fields that decide what is trained or written, and what they become.
MAPPED = {
    "output_dir": "the folder of all files",
    "per_device_train_batch_size": "the samples of a microbatch",
    "per_device_eval_batch_size": "nothing: an evaluation takes the microbatches of the training, and its mean is over all targets",
    "gradient_accumulation_steps": "`--accumulate` of the program",
    "num_train_epochs": "`--steps`", "max_steps": "`--steps`",
    "learning_rate": "`--lr`",
    "lr_scheduler_type": "`--lr-schedule=file:…` with the rates of transformers' own scheduler",
    "lr_scheduler_kwargs": "as `lr_scheduler_type`", "warmup_steps": "as `lr_scheduler_type`", "warmup_ratio": "as `lr_scheduler_type`",
    "optim": "`--optimizer`: the AdamW of torch, `sgd`, `adagrad` or `rmsprop`",
    "adam_beta1": "`--betas`", "adam_beta2": "`--betas`", "adam_epsilon": "`--eps`",
    "weight_decay": "`--weight-decay`, and `--no-decay` for the parameters that transformers leaves out",
    "max_grad_norm": "`--clip-grad-norm`",
    "bf16": "`--param-dtype=bf16`", "fp16": "`--param-dtype=f16 --loss-scale=dynamic`",
    "gradient_checkpointing": "`--recompute=units`",
    "seed": "`--seed`, and the order of the samples", "data_seed": "the order of the samples",
    "dataloader_drop_last": "leaves out a microbatch that is not full; otherwise samples without a target fill it",
    "train_sampling_strategy": "the order of the samples: `random` or `sequential`",
    "dataloader_num_workers": "the processes that collate",
    "remove_unused_columns": "drops columns that forward does not take", "label_names": "the inputs whose -100 has no target",
    "eval_strategy": "`--eval-every`", "eval_steps": "`--eval-every`",
    "save_strategy": "`--checkpoint-every`; \"no\" writes no checkpoints", "save_steps": "`--checkpoint-every`",
    "save_total_limit": "`--keep`",
    "load_best_model_at_end": "`--best`", "metric_for_best_model": "must be the loss", "greater_is_better": "must be False",
    "logging_strategy": "how often `on_log` is called", "logging_steps": "how often `on_log` is called", "logging_first_step": "also after the first step",
    "report_to": "the callbacks of these integrations", "disable_tqdm": "no progress bar",
    "resume_from_checkpoint": "`--resume`: True, or the folder of a checkpoint of this package",
}
# Fields that change nothing in a training of fsdpc: other machinery, or other places.
WITHOUT_EFFECT = frozenset("""
    average_tokens_across_devices dataloader_in_order dataloader_multiprocessing_context dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_backend
    ddp_broadcast_buffers ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout do_eval do_predict do_train
    eval_accumulation_steps eval_do_concat_batches eval_use_gather_object full_determinism gradient_checkpointing_kwargs hub_always_push
    hub_model_id hub_private_repo hub_revision hub_strategy hub_token local_rank log_level log_level_replica log_on_each_node logging_dir
    logging_nan_inf_filter no_cuda overwrite_output_dir past_index prediction_loss_only project run_name save_on_each_node save_safetensors skip_memory_metrics tf32 torch_compile
    torch_compile_backend torch_compile_mode torch_empty_cache_steps trackio_bucket_id trackio_space_id trackio_static_space_id use_cache use_cpu use_liger_kernel
""".split())
# Parameters of transformers' Trainer that this one does not have, and what to do instead.
_NOT_PARAMETERS = {
    "model_init": "give the model",
    "compute_loss_func": "give 'loss', which gets the model's output",
    "compute_metrics": "return the metric from the model, and log it by compile_flags=dict(keep_output=NAME) and run_flags=dict(metric=NAME)",
    "preprocess_logits_for_metrics": "return what it computes from the model",
    "optimizers": "choose by TrainingArguments' optim and lr_scheduler_type",
    "optimizer_cls_and_kwargs": "choose by TrainingArguments' optim, or by compile_flags=dict(optimizer=…)",
}
OPTIMIZERS = {"adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "sgd": "sgd", "adagrad": "adagrad",
              "rmsprop": "rmsprop"}


def _text(value: Any) -> str:
    """Returns the value of an enumeration, or the text of another one."""
    return str(getattr(value, "value", value))


def _refuse(args: Any, name: str, cure: str) -> CommandLineError:
    return CommandLineError(f"TrainingArguments has {name}={_text(getattr(args, name))!r}, but {cure}")


def _default(of: dataclasses.Field[Any]) -> Any:
    return of.default_factory() if of.default_factory is not dataclasses.MISSING else of.default


def _normal(value: Any) -> Any:
    """Returns what a value means: an empty list of flags is none, and a dataclass its fields."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if item is not None}
    return None if value in ("", [], {}, False) else _text(value)


def refuse_others(args: Any) -> None:
    """Refuses the first field that would change the training and has no counterpart. Raises CommandLineError."""
    # Some fields are filled in by transformers itself, from others.
    untouched = type(args)(output_dir=args.output_dir)
    for of in dataclasses.fields(args):
        if of.name in MAPPED or of.name in WITHOUT_EFFECT or of.name.startswith("_") or not of.init:
            continue
        if _normal(getattr(args, of.name)) not in (_normal(_default(of)), _normal(getattr(untouched, of.name))):
            raise _refuse(args, of.name, "fsdpc.Trainer has nothing that does the same; leave it at its default")
    if _text(args.optim) not in OPTIMIZERS:
        raise _refuse(args, "optim", f"fsdpc.Trainer has {', '.join(OPTIMIZERS)}; compile_flags=dict(optimizer=…) takes those of fsdpc")
    if _text(getattr(args, "train_sampling_strategy", "random")) not in ("random", "sequential"):
        raise _refuse(args, "train_sampling_strategy", "a program of one shape pads all samples alike; use 'random' or 'sequential'")
    if _text(args.lr_scheduler_type) in ("reduce_lr_on_plateau", "greedy"):
        raise _refuse(args, "lr_scheduler_type", "a program's rates do not depend on its losses")
    if _text(args.save_strategy) == "best" and not args.load_best_model_at_end:
        raise _refuse(args, "save_strategy", "without load_best_model_at_end no best parameters are kept")
    if args.load_best_model_at_end and ((args.metric_for_best_model or "loss").removeprefix("eval_") != "loss" or args.greater_is_better):
        raise _refuse(args, "metric_for_best_model", "--best keeps the parameters of the lowest eval_loss")


def refuse_parameters(given: Mapping[str, Any]) -> None:
    """Refuses parameters of transformers' Trainer that have a value, and unknown ones. Raises CommandLineError."""
    for name, value in given.items():
        if name not in _NOT_PARAMETERS:
            raise CommandLineError(f"fsdpc.Trainer has no parameter '{name}'")
        if any(item is not None for item in (value if isinstance(value, (tuple, list)) else [value])):
            raise CommandLineError(f"fsdpc.Trainer has no '{name}'; {_NOT_PARAMETERS[name]}")


def refuse_evaluation(args: Any, dataset: Any) -> None:
    """Refuses evaluations without a dataset, and several datasets. Raises CommandLineError."""
    if dataset is None and _text(args.eval_strategy) != "no":
        raise _refuse(args, "eval_strategy", "fsdpc.Trainer has no eval_dataset")
    if isinstance(dataset, dict):
        raise CommandLineError("eval_dataset is a dict, but fsdpc.Trainer evaluates one dataset; use evaluate for the others")


def steps_of(args: Any, epoch: int) -> int:
    """Returns the steps of the training, where an epoch has `epoch` steps."""
    return args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * epoch)


def interval(args: Any, kind: str, epoch: int, steps: int) -> int:
    """Returns the steps between two evaluations ("eval"), checkpoints ("save") or logs ("logging"); 0: none.

    Transformers takes a number below 1 as a part of the training.
    """
    strategy = _text(getattr(args, f"{kind}_strategy"))
    if strategy in ("no", "best"):
        return 0
    if strategy == "epoch":
        return epoch
    every = getattr(args, f"{kind}_steps") or args.logging_steps
    return max(1, math.ceil(every * steps) if every < 1 else int(every))


def write_rates(args: Any, steps: int, path: Path) -> None:
    """Writes the rate of each step by the scheduler of transformers that the arguments name."""
    import torch
    from transformers.optimization import get_scheduler
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=args.learning_rate)
    scheduler = get_scheduler(args.lr_scheduler_type, optimizer, num_warmup_steps=args.get_warmup_steps(steps), num_training_steps=steps,
                              scheduler_specific_kwargs=args.lr_scheduler_kwargs or {})
    with path.open("w") as file:
        for step in range(steps):
            file.write(f"{step} {optimizer.param_groups[0]['lr']!r}\n")
            optimizer.step()
            scheduler.step()


def compile_flags(args: Any, model: "torch.nn.Module") -> dict[str, FlagValue]:
    """Returns the flags of the compile."""
    optimizer = OPTIMIZERS[_text(args.optim)]
    flags: dict[str, FlagValue] = {"optimizer": optimizer, "lr": args.learning_rate}
    if optimizer == "adamw":
        flags |= {"betas": f"{args.adam_beta1},{args.adam_beta2}", "eps": args.adam_epsilon}
    # torch's own default of AdamW is not that of transformers, which passes its weight decay always.
    flags["weight_decay"] = args.weight_decay
    if args.weight_decay:
        from transformers import Trainer
        decays = set(Trainer.get_decay_parameter_names(None, model))  # type: ignore[arg-type]
        rest = [name for name, parameter in model.named_parameters() if parameter.requires_grad and name not in decays]
        flags["no_decay"] = [f"^(?:{'|'.join(map(re.escape, rest))})$"] if rest else None
    if args.max_grad_norm:
        flags["clip_grad_norm"] = args.max_grad_norm
    if args.bf16:
        flags["param_dtype"] = "bf16"
    if args.fp16:
        flags |= {"param_dtype": "f16", "loss_scale": "dynamic"}
    if args.gradient_checkpointing:
        flags["recompute"] = "units"
    return flags


def checkpoints(args: Any) -> bool:
    """Returns true if the training writes checkpoints."""
    return _text(args.save_strategy) in ("steps", "epoch")


def resumed(args: Any, given: Any, folder: Path) -> FlagValue:
    """Returns the value of --resume for what `train` was given, or the arguments' own: True, the folder of a checkpoint, or nothing."""
    given = given if given is not None else args.resume_from_checkpoint
    if given is None or given is False:
        return None
    if not checkpoints(args):
        raise _refuse(args, "save_strategy", "resume_from_checkpoint needs checkpoints")
    if given is True:
        return True
    path = Path(given)
    step = re.fullmatch(r"step-(\d+)", path.name)
    if step is None or path.parent.resolve() != folder.resolve():
        raise CommandLineError(f"resume_from_checkpoint is '{given}', which is no checkpoint in '{folder}'; give True for the newest")
    return str(int(step[1]))

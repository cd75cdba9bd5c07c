# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the first loss and gradients of a compiled program with those of the module that was exported."""
from __future__ import annotations

import contextlib
import copy
import json
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from .agreement import Agreement, compare
from .draws import draws_undone
from .errors import MismatchError, RunError, ToolWarning, only_errors
from .program import run
from .shapes import sizes_of_dims
from .tool import PathLike, call, compile

_DROPOUTS = ("dropout", "alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout")


@contextlib.contextmanager
def _without_dropout() -> Iterator[None]:
    """The program's random numbers are its own, so dropout is off on both sides."""
    functional = torch.nn.functional
    before = {name: getattr(functional, name) for name in (*_DROPOUTS, "scaled_dot_product_attention")}

    def attention(*arguments: Any, **keywords: Any) -> Any:
        keywords.pop("dropout_p", None)
        return before["scaled_dot_product_attention"](*arguments[:4], *([0.0] if len(arguments) > 4 else []), *arguments[5:], **keywords)

    for name in _DROPOUTS:
        setattr(functional, name, lambda input, *_, **__: input)
    functional.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(functional, name, function)


def module_gradients(model: torch.nn.Module, inputs: dict[str, Any],
                     loss: Callable[..., Any] | None) -> tuple[float, dict[str, torch.Tensor | None]]:
    """Returns the loss of one microbatch and the gradient of each parameter, None where torch has none. Keeps `model` as it is."""
    return _gradients_of(copy.deepcopy(model).float(), inputs, loss)


def _gradients_in_double(model: torch.nn.Module, inputs: dict[str, Any],
                         loss: Callable[..., Any] | None) -> dict[str, torch.Tensor | None] | None:
    """Returns the gradients in f64, or None if the module computes in other types alone."""
    wide = {name: value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value
            for name, value in inputs.items()}
    try:
        _, gradients = _gradients_of(copy.deepcopy(model).double(), wide, loss)
    except Exception:  # a module may raise anything
        return None
    return gradients if all(gradient is None or gradient.dtype == torch.float64 for gradient in gradients.values()) else None


def _gradients_of(clone: torch.nn.Module, inputs: dict[str, Any],
                  loss: Callable[..., Any] | None) -> tuple[float, dict[str, torch.Tensor | None]]:
    from .exporting import prepared
    with prepared(clone, inputs, loss), _without_dropout(), torch.enable_grad():
        clone.zero_grad(set_to_none=True)
        output = clone(**inputs)
        value = output if isinstance(output, torch.Tensor) else _scalar(output)
        value.backward()
        return value.item(), {name: parameter.grad for name, parameter in clone.named_parameters()}


def ragged(inputs: dict[str, Any]) -> dict[str, Any]:
    """Returns inputs whose samples differ in padding and targets, as those of a data collator do.

    A mask is a matrix of integers or booleans with "mask" in its name. One that is the same everywhere changes in the first quarter of
    every other sample and in the last quarter of the others. Labels are a matrix of integers with "label" or "target" in its name, or
    with a -100, the index that losses ignore: they become -100 at the end of each sample, at one more position than in the sample before.
    """
    found = dict(inputs)
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or value.ndim != 2 or value.is_floating_point() or value.is_complex():
            continue
        if "mask" in name.lower():
            if value.shape[1] > 1 and bool((value == value[0, 0]).all()) and int(value[0, 0]) in (0, 1):
                found[name] = _with_padding(value)
        elif value.dtype != torch.bool and value.shape[1] > 2:
            if any(word in name.lower() for word in ("label", "target")) or bool((value == -100).any()):
                found[name] = _with_ignored_targets(value)
    return found


def _with_padding(mask: torch.Tensor) -> torch.Tensor:
    quarter = max(1, mask.shape[1] // 4)
    other = (1 - mask.long()).to(mask.dtype)
    padded = mask.clone()
    padded[::2, :quarter] = other[::2, :quarter]
    padded[1::2, -quarter:] = other[1::2, -quarter:]
    return padded


def _with_ignored_targets(labels: torch.Tensor) -> torch.Tensor:
    ignored = labels.clone()
    for sample in range(labels.shape[0]):
        ignored[sample, labels.shape[1] - 1 - sample % (labels.shape[1] - 2):] = -100
    return ignored


def ragged_where_possible(model: torch.nn.Module, inputs: dict[str, Any], loss: Callable[..., Any] | None) -> dict[str, Any]:
    """Returns ragged inputs, or `inputs` if the module fails on ragged ones or its loss is not finite: labels may be of another kind."""
    changed = ragged(inputs)
    if all(changed[name] is value for name, value in inputs.items()):
        return inputs
    try:
        value, _ = module_gradients(model, changed, loss)
    except Exception:  # a module may raise anything
        return inputs
    return changed if math.isfinite(value) else inputs


def _scalar(output: Any) -> torch.Tensor:
    values = output.values() if hasattr(output, "values") else output
    return next(value for value in values if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() == 1)


@only_errors
def check_export(model: torch.nn.Module, example_inputs: Any, path: PathLike, *, loss: Callable[..., Any] | None = None,
                 tolerance: float = 1e-4, tool: PathLike | None = None, **flags: Any) -> Agreement:
    """Compiles the exported model, runs one step on the example inputs, and compares loss and gradients with the module's.

    Dropout is off on both sides. `tolerance` bounds the relative difference of the loss, and of each gradient in L2. `flags` are
    those of the compile that the model needs; `dim` follows from the example inputs. Raises MismatchError with every parameter that differs, or
    what compile and run raise.
    """
    from safetensors.torch import load_file

    from .exporting import named_inputs
    inputs = named_inputs(model, example_inputs)
    flags.setdefault("dim", sizes_of_dims(path, inputs))
    with draws_undone():
        expected, gradients = module_gradients(model, inputs, loss)
    with tempfile.TemporaryDirectory(prefix="fsdpc-") as scratch, warnings.catch_warnings():
        # They are for the compile that trains.
        warnings.simplefilter("ignore", ToolWarning)
        program, file = Path(scratch) / "program", Path(scratch) / "gradients.safetensors"
        # The gradients are those before the update, so the optimizer does not matter.
        compile(path, program, tool=tool, dropout="off", optimizer="sgd", lr=1, strategy="ddp", **flags)
        read = {entry["name"] for entry in json.loads(call([str(program), "--manifest"]))["inputs"]}
        data = {name: value for name, value in inputs.items() if name in read}
        try:
            done = run(program, steps=1, data=data, progress=False, save_gradients=file, threads=1)
        except RunError as error:
            if error.code == 3 and math.isfinite(expected):
                raise MismatchError(f"the loss is {expected:.6g} in the module, but the program ends: {error}") from error
            raise
        saved = load_file(file)

    def in_double() -> dict[str, torch.Tensor | None] | None:
        with draws_undone():
            return _gradients_in_double(model, inputs, loss)

    return compare(model, expected, done.losses[0], gradients, saved, tolerance, in_double)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a torch module as ONNX such that the compiled program trains as the module does.

torch.onnx.export drops what only matters to gradients. The functions below keep it in the file (docs/onnx.md lists the metadata):
- detach stays a node, and what a block under torch.no_grad() returns is detached explicitly;
- the model has the key `fsdpc.export`, so that the tool believes what the file says;
- a parameter with requires_grad=False has the key `fsdpc.requires_grad`.
What a file cannot hold, such as the backward of a torch.autograd.Function, is an ExportError.
"""
from __future__ import annotations

import contextlib
import inspect
import logging
import os
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .checking import check_export
from .errors import ExportError
from .ties import parted, under_all_names
from .tool import PathLike

Inputs = Mapping[str, Any]
# Functions whose backward is that of their forward.
_PLAIN_FUNCTIONS = {"CheckpointFunction"}


def named_inputs(model: torch.nn.Module, example_inputs: Any) -> dict[str, Any]:
    """Returns the inputs by the names of forward's parameters. A tensor or a sequence is taken by position."""
    if isinstance(example_inputs, Mapping):
        return dict(example_inputs)
    values = list(example_inputs) if isinstance(example_inputs, Sequence) else [example_inputs]
    names = list(inspect.signature(model.forward).parameters)
    if len(values) > len(names):
        raise ExportError(f"{len(values)} example inputs are given, but forward takes {len(names)}: {', '.join(names)}")
    return dict(zip(names, values))


@contextlib.contextmanager
def prepared(model: torch.nn.Module, inputs: Inputs, loss: Callable[..., Any] | None) -> Iterator[None]:
    """Makes forward return the loss, and a module in evaluation mode train, as long as the context lasts.

    A module that is in training mode stays as it is: parts that were set to eval() keep their statistics.
    """
    modes = {part: part.training for part in model.modules()}
    forward, own = model.forward, vars(model).get("forward")
    if not model.training:
        model.train()
    if loss is not None:
        parameters = inspect.signature(forward).parameters
        takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        labels = inspect.signature(loss).parameters
        taken = [name for name in inputs if name in parameters or (takes_all and name not in labels)]
        rest = [name for name in inputs if name not in taken]

        def with_loss(**values: Any) -> Any:
            return loss(forward(**{name: values[name] for name in taken}), **{name: values[name] for name in rest})

        with_loss.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in inputs])
        model.forward = with_loss  # type: ignore[method-assign]
    try:
        yield
    finally:
        if loss is not None:
            del model.forward
            if own is not None:
                model.forward = own  # type: ignore[method-assign]
        for part, mode in modes.items():
            part.training = mode


@contextlib.contextmanager
def _own_backwards_refused() -> Iterator[None]:
    """Refuses torch.autograd.Functions: tracing keeps their forward, and the compiler would differentiate that."""
    # The classmethod itself: what the attribute gives is bound to this class.
    apply = vars(torch.autograd.Function)["apply"]
    called: set[str] = set()

    @classmethod  # type: ignore[misc]
    def record(cls: type, *arguments: Any, **keywords: Any) -> Any:
        called.add(cls.__name__)
        return apply.__get__(None, cls)(*arguments, **keywords)

    torch.autograd.Function.apply = record  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply  # type: ignore[method-assign]
    if own := sorted(called - _PLAIN_FUNCTIONS):
        raise ExportError(f"the module calls torch.autograd.Function '{own[0]}', whose backward an ONNX file cannot hold; write its "
                          f"forward such that torch's own gradient is the wanted one (x + (f(x) - x).detach() is straight-through)")


def detach_no_grad_blocks(program: "torch.export.ExportedProgram") -> int:
    """Detaches what blocks under torch.no_grad() return. Returns how many values that are.

    torch.export makes a graph of its own of each block and calls it by a higher-order op; the exporter then inlines it.
    """
    detached = 0
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.op != "call_function" or "wrap_with_set_grad_enabled" not in str(node.target) or node.args[0]:
                continue
            for item in list(node.users):
                value = item.meta.get("val")
                if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                    continue
                with part.graph.inserting_after(item):
                    stop = part.graph.call_function(torch.ops.aten.detach.default, (item,))
                stop.meta = {key: item.meta[key] for key in ("val", "nn_module_stack", "stack_trace") if key in item.meta}
                item.replace_all_uses_with(stop, delete_user_cb=lambda user, stop=stop: user is not stop)
                detached += 1
        part.graph.lint()
        part.recompile()
    return detached


def _check_loss(program: "torch.export.ExportedProgram") -> None:
    outputs = [value for value in program.graph.output_node().args[0]]
    losses = [value.meta["val"] for value in outputs if isinstance(value, torch.fx.Node)]
    losses = [value for value in losses if value.is_floating_point() and value.numel() == 1]
    if len(losses) != 1:
        raise ExportError(f"the module returns {len(losses)} float scalars; it must return its loss, or give a function as 'loss', "
                          "which gets the module's output and the inputs that forward does not take")


def _calls(program: "torch.export.ExportedProgram", target: str, trains: Callable[..., Any]) -> int:
    """Counts the calls of an op for whose arguments `trains` is true."""
    return sum(1 for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)
               for node in part.graph.nodes
               if node.op == "call_function" and str(node.target) == target and trains(*node.args))


def _check_survivors(model: torch.nn.Module, expected: Mapping[str, int], onnx_model: Any) -> None:
    """Checks that dropout, batch norms and tied weights are in the file as they are in the module."""
    found: dict[str, int] = defaultdict(int)
    for node in onnx_model.graph:
        found[node.op_type] += 1
    for op, count in expected.items():
        if found[op] < count:
            raise ExportError(f"the module has {count} {op} in training mode, but the exported graph only {found[op]}")
    for one, other in parted(model, onnx_model.graph.initializers):
        raise ExportError(f"the tied weight '{one}' became two in the export, also '{other}', which would train apart")


def _annotate(model: torch.nn.Module, onnx_model: Any) -> None:
    onnx_model.metadata_props["fsdpc.export"] = "1"
    values = under_all_names(model, onnx_model.graph.initializers)
    for name, parameter in model.named_parameters():
        value = values.get(name)
        if value is not None and not parameter.requires_grad:
            value.metadata_props["fsdpc.requires_grad"] = "False"


def _save(onnx_program: Any, path: Path, external_data: bool | None) -> None:
    """Writes the file, and the one of its weights, under temporary names first."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fsdpc-") as scratch:
        onnx_program.save(Path(scratch) / path.name, external_data=external_data)
        # The weights first, or the model would name a file that is not there yet.
        for file in sorted(Path(scratch).iterdir(), key=lambda file: file.name == path.name):
            os.replace(file, path.parent / file.name)


def export(model: torch.nn.Module, example_inputs: Any, path: PathLike, *, loss: Callable[..., Any] | None = None,
           external_data: bool | None = None, opset: int | None = None, check: bool = False, tool: PathLike | None = None) -> Path:
    """Writes `model` with its loss to the ONNX file `path`, and returns the path.

    `example_inputs` is one microbatch: a dict by the names of forward's parameters, a tuple, or a tensor. Its shapes are those of
    the program; the first axis of each input counts samples. The module returns its loss, or `loss(output, **labels)` computes it
    from the module's output and those inputs that forward does not take. `external_data` writes the weights to a file beside the
    model; by default only those of a model over 2 GB. With `check`, the program is compiled and its first loss and gradients are
    compared with the module's (check_export). Raises ExportError, or MismatchError.
    """
    inputs = named_inputs(model, example_inputs)
    with prepared(model, inputs, loss), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        try:
            with _own_backwards_refused():
                program = torch.export.export(model, (), inputs, strict=False)
            _check_loss(program)
            detach_no_grad_blocks(program)
            # A dropout of probability 0 changes nothing, and the exporter leaves it out.
            expected = {"Dropout": _calls(program, "aten.dropout.default", lambda x, p, train: train and p > 0),
                        "BatchNormalization": _calls(program, "aten.batch_norm.default", lambda *arguments: arguments[5])}
            written = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, opset_version=opset)
        except ExportError:
            raise
        except Exception as error:  # torch's exporter raises exceptions of many kinds
            raise ExportError(f"torch cannot export the module: {_reason(error)}") from error
    assert written is not None
    _check_survivors(model, expected, written.model)
    _annotate(model, written.model)
    path = Path(path)
    _save(written, path, external_data)
    if check:
        check_export(model, example_inputs, path, loss=loss, tool=tool)
    return path


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the log of torch's exporter, which names passes of its own."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def _reason(error: BaseException) -> str:
    """Returns the first line of the innermost cause, which names the module's fault."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

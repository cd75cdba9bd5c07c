# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a torch module as ONNX such that the compiled program trains as the module does.

torch.onnx.export drops what only matters to gradients. The functions below keep it in the file (docs/onnx.md lists the metadata):
- detach stays a node, and what a block under torch.no_grad() returns is detached explicitly;
- the model has the key `fsdpc.export`, so that the tool believes what the file says;
- a parameter with requires_grad=False has the key `fsdpc.requires_grad`;
- a torch.autograd.Function has its own backward in the file (functions.py).
A mean over rows that a mask selects becomes one over all rows, in which the other rows count as nothing (selections.py).
What a file cannot hold, such as torch.cond, is an ExportError (refusals.py).
"""
from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import os
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .assertions import ChecksPass, drop_assertions
from .checking import check_export, ragged_where_possible
from .draws import FixedDraws, draw_in, draws_undone
from .errors import Error, ExportError, MismatchError, only_errors
from .functions import own_backwards_traced
from .keeping import kept
from .masked_writes import write_by_masks
from .promotions import cast_integers
from .quantizing import quantized
from .refusals import refusal_of, refuse_control_flow
from .selections import selections_traced
from .settings import Settings
from .shapes import dynamic_dims
from .ties import parted, under_all_names
from .tool import PathLike
from .types import conversions_skipped, masters_kept, parameters_in

Inputs = Mapping[str, Any]
# Modules of more elements are compared with their file only on demand: the check compiles and runs a whole step.
_CHECKED_ELEMENTS = 50_000_000
# What is lost in an export changes a gradient by more; torch's own rounding in f32 changes those of deep vision models by up to 2e-4.
_TOLERANCE = 1e-3
# Where the module computes in 16 bits, as under torch.autocast, bfloat16 rounds each value by up to 4e-3.
_TOLERANCE_OF_16_BITS = 2e-2


def named_inputs(model: torch.nn.Module, example_inputs: Any) -> dict[str, Any]:
    """Returns the inputs by the names of forward's parameters. A tensor or a sequence is taken by position."""
    if isinstance(example_inputs, Mapping):
        return _apart(example_inputs)
    values = list(example_inputs) if isinstance(example_inputs, Sequence) else [example_inputs]
    names = list(inspect.signature(model.forward).parameters)
    if len(values) > len(names):
        raise ExportError(f"{len(values)} example inputs are given, but forward takes {len(names)}: {', '.join(names)}")
    return _apart(dict(zip(names, values)))


def _apart(inputs: Inputs) -> dict[str, Any]:
    """Copies a tensor that several arguments have (labels=input_ids): torch.export would make one input of them."""
    seen: set[int] = set()
    found = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and id(value) in seen:
            found[name] = value.clone()
        seen.add(id(value))
    return found


@contextlib.contextmanager
def settled(model: torch.nn.Module) -> Iterator[Settings]:
    """Sets what the export may set on the module (settings.py), and checkpoints without re-entering autograd, for as long as it lasts."""
    settings = Settings()

    class Plain(torch.utils.checkpoint.CheckpointFunction):
        """Calls the function as it is. Recomputing does not change a gradient, and the compiler decides on it anew."""

        @staticmethod
        def apply(function: Callable[..., Any], preserve_rng_state: bool, *arguments: Any) -> Any:
            settings.note("use_reentrant=False")
            return function(*arguments)

    before = torch.utils.checkpoint.CheckpointFunction
    torch.utils.checkpoint.CheckpointFunction = Plain  # type: ignore[misc]
    try:
        settings.prepare(model)
        yield settings
    finally:
        torch.utils.checkpoint.CheckpointFunction = before  # type: ignore[misc]
        settings.undo()


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


def _part_names(onnx_model: Any) -> None:
    """Renames values that have the name of a parameter or buffer, as the result of torch.mean has that of a buffer `mean`."""
    import onnx_ir
    taken = set(onnx_model.graph.initializers) | {value.name for value in onnx_model.graph.inputs}
    values = [value for node in onnx_ir.traversal.RecursiveGraphIterator(onnx_model.graph) for value in node.outputs]
    names = taken | {value.name for value in values}
    for value in values:
        if value.name in taken:
            numbered = (f"{value.name}_{i}" for i in itertools.count(1))
            value.name = next(name for name in numbered if name not in names)
            names.add(value.name)


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


@only_errors
def export(model: torch.nn.Module, example_inputs: Any, path: PathLike, *, loss: Callable[..., Any] | None = None,
           dtype: torch.dtype | None = None, dynamic_shapes: Mapping[str, Any] | None = None, external_data: bool | None = None,
           opset: int | None = None, quantize_base: str | None = None, check: bool | None = None, tool: PathLike | None = None) -> Path:
    """Writes `model` with its loss to the ONNX file `path`, and returns the path.

    `example_inputs` is one microbatch: a dict by the names of forward's parameters, a tuple, or a tensor. Its shapes are those of
    the program; the first axis of each input counts samples. The module returns its loss, or `loss(output, **labels)` computes it
    from the module's output and those inputs that forward does not take. With `dtype`, torch.bfloat16 or torch.float16, the file says
    what the module computes with its parameters in that type, each cast included, and keeps their values as they are: compile it with
    param_dtype="graph". Buffers keep their type; give float inputs in the type that the module takes. `dynamic_shapes` leaves axes of
    inputs open, as dict(ids={1: "T"}, labels={1: "T"}) does; names may also be torch.export.Dims. A compile sets their sizes. For
    several sizes, dim=dict(T=[128, 256]), the program has a bucket for each. `external_data` writes the weights to a file beside the
    model; by default only those of a model over 2 GB.

    `quantize_base`, "nf4", "int4" or "int8", writes the frozen weights of nn.Linear and of transformers' Conv1D (requires_grad=False,
    and not tied to another module's) as codes with a float32 scale per 64 elements, LAYER.weight_codes and LAYER.weight_scales; the
    program trains the others on them. The module itself keeps its weights.

    The program is compiled, and its first loss and gradients are compared with the module's (check_export), on inputs that have padding
    on both sides and targets of -100 where there is a mask or there are labels; each may differ by 1e-3, and by 2e-2 where the module computes in 16 bits,
    as under torch.autocast. By default this is left out,
    with a line on stderr, for modules of more than 50 million elements, for those whose parameters are not all float32, and where the
    model does not compile without flags; with check=False always, with check=True never. What the export had to set on the module, such
    as use_cache=False, is undone and listed on stderr. Raises ExportError, or MismatchError; with check=True also what compile raises.
    """
    inputs = named_inputs(model, example_inputs)
    tensors = {name for name, _ in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]}
    for name in inputs:
        if name in tensors:
            raise ExportError(f"forward takes '{name}', which is a tensor of the module too; a file has one tensor of a name, so rename the argument")
    with draws_undone(), settled(model) as settings, quantized(model, quantize_base):
        def write(file: Path) -> str:
            return _write(model, inputs, file, loss, dtype, dynamic_dims(inputs, dynamic_shapes), external_data, opset, settings)

        draw = write(Path(path))
        if settings.listed:
            print(f"fsdpc.export has set {', '.join(settings.listed)}", file=sys.stderr)
        if check is False:
            print("fsdpc.export has not compared the file with the module: check=False", file=sys.stderr)
        else:
            _check(model, inputs, Path(path), loss, tool, demanded=check is True, write=write if draw else None)
    return Path(path)


def _exported(model: torch.nn.Module, inputs: dict[str, Any], dims: dict[str, Any] | None, opset: int | None,
              settings: Settings) -> tuple[Any, dict[str, int], str]:
    """Returns the ONNX program, how many ops of each kind it must have, and what `draw_in` finds.

    If torch fails, other attentions are tried, and the first error counts.
    """
    first: Exception | None = None
    while True:
        try:
            with own_backwards_traced(), selections_traced(model), conversions_skipped(), ChecksPass() as checks:
                program = torch.export.export(model, (), inputs, dynamic_shapes=dims, strict=False)
            checks.tell()
            refuse_control_flow(program)
            drop_assertions(program)
            _check_loss(program)
            detach_no_grad_blocks(program)
            cast_integers(program)
            write_by_masks(program)
            # A dropout of probability 0 changes nothing, and the exporter leaves it out.
            expected = {"Dropout": _calls(program, "aten.dropout.default", lambda x, p, train: train and p > 0),
                        "BatchNormalization": _calls(program, "aten.batch_norm.default", lambda *arguments: arguments[5])}
            written = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False, opset_version=opset, dynamic_shapes=dims)
            assert written is not None
            return written, expected, draw_in(program)
        except ExportError:
            raise
        except Exception as error:  # torch's exporter raises exceptions of many kinds
            first = first or error
            if not settings.change_attention(model):
                raise refusal_of(first) from first


def _write(model: torch.nn.Module, inputs: dict[str, Any], path: Path, loss: Callable[..., Any] | None, dtype: torch.dtype | None,
           dims: dict[str, Any] | None, external_data: bool | None, opset: int | None, settings: Settings) -> str:
    """Writes the file. Returns what `draw_in` finds."""
    with kept(model), parameters_in(model, dtype), prepared(model, inputs, loss), warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")
        written, expected, draw = _exported(model, inputs, dims, opset, settings)
    if dtype is not None:
        masters_kept(model, written.model)
    _part_names(written.model)
    _check_survivors(model, expected, written.model)
    _annotate(model, written.model)
    _save(written, path, external_data)
    return draw


def _has_16_bits(path: Path) -> bool:
    import onnx_ir
    types = {value.dtype for node in onnx_ir.load(path).graph for value in node.outputs}
    return bool(types & {onnx_ir.DataType.BFLOAT16, onnx_ir.DataType.FLOAT16})


def _check(model: torch.nn.Module, inputs: dict[str, Any], path: Path, loss: Callable[..., Any] | None, tool: PathLike | None,
           demanded: bool, write: Callable[[Path], str] | None) -> None:
    """Compares the file with the module. Unless it is demanded, a check that cannot be made is a line on stderr.

    A module that draws random numbers is compared with another file, which `write` makes of it with fixed values in their place.
    """
    elements = sum(parameter.numel() for parameter in model.parameters())
    if elements > _CHECKED_ELEMENTS and not demanded:
        print(f"fsdpc.export has not compared the file with the module of {elements // 10**6} million elements; check=True does",
              file=sys.stderr)
        return
    types = sorted({str(parameter.dtype) for parameter in model.parameters() if parameter.dtype != torch.float32})
    if types and not demanded:
        print(f"fsdpc.export has not compared the file with the module, which has parameters of {types[0]}; check=True does",
              file=sys.stderr)
        return
    try:
        with contextlib.ExitStack() as stack:
            if write is not None:
                path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fsdpc-"))) / path.name
                stack.enter_context(FixedDraws())
                if draw := write(path):
                    raise Error(f"it draws random numbers by {draw}, for which the check has no fixed values; draw them by torch.rand or "
                                "torch.randn, or give them as an input")
            tolerance = _TOLERANCE_OF_16_BITS if _has_16_bits(path) else _TOLERANCE
            check_export(model, ragged_where_possible(model, inputs, loss), path, loss=loss, tolerance=tolerance, tool=tool)
    except MismatchError:
        raise
    except Error as error:
        if demanded:
            raise
        print(f"fsdpc.export has not compared the file with the module: {error}", file=sys.stderr)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides the log of torch's exporter, which names passes of its own."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Traces torch.autograd.Functions with the backward that the user wrote.

While a module is exported, `apply` of a Function calls its forward, and then its backward on stand-ins for the cotangents. Both become
nodes of the same graph. A node CustomGradient returns the outputs and names the gradient of each input; the importer stops all other
gradients (docs/onnx.md). torch.autograd.grad, which backwards use that compute their forward again, is a node Vjp, and
the importer builds the adjoints: torch's own engine runs below the level at which an export is traced.
"""
from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

import torch

from .errors import ExportError
from .refusals import at, calling_line
from .selections import selected


class Context(torch.autograd.function.FunctionCtx):
    """What forward and backward get as `ctx`."""

    def __init__(self, function: type, needs_input_grad: tuple[bool, ...]):
        self._function, self.needs_input_grad = function, needs_input_grad
        self._non_differentiable: set[int] = set()
        self.saved_tensors: tuple[Any, ...] = ()

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        return self.saved_tensors

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Is about forward-mode differentiation."""

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        self._non_differentiable = {id(tensor) for tensor in tensors}

    def set_materialize_grads(self, value: bool) -> None:
        """An output that nothing reads has a cotangent of zeros, which gives the gradients that None would."""

    def mark_dirty(self, *tensors: torch.Tensor) -> None:
        raise ExportError(f"{described(self._function, 'forward')} changes its inputs in place (mark_dirty), and what reads them later "
                          "would get another gradient; return new tensors")

    def differentiates(self, output: Any) -> bool:
        return _is_float(output) and id(output) not in self._non_differentiable


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def described(function: type, part: str) -> str:
    """Returns a Function's name, with the line of its method's source."""
    code = getattr(inspect.unwrap(getattr(function, part)), "__code__", None)
    return f"torch.autograd.Function '{function.__name__}'" + (f" at {code.co_filename}:{code.co_firstlineno}" if code else "")


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _sets_up_context(function: Any) -> bool:
    return function.setup_context is not torch.autograd.Function.setup_context


def _forward(function: Any, context: Context, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    # Functions have their context in forward, or set it up afterwards.
    if not _sets_up_context(function):
        return function.forward(context, *arguments, **keywords)
    output = function.forward(*arguments)
    function.setup_context(context, arguments, output)
    return output


def _backward_of(function: Any) -> Any:
    return function.backward if function.vjp is torch.autograd.Function.vjp else function.vjp


def _fitted(function: type, gradient: torch.Tensor, position: int, to: torch.Tensor) -> torch.Tensor:
    """Does what the autograd engine does with a gradient: sums what was broadcast, and casts."""
    if gradient.shape != to.shape:
        padded = (1,) * (gradient.ndim - to.ndim) + tuple(to.shape)
        if len(padded) != gradient.ndim or any(small not in (1, large) for small, large in zip(padded, gradient.shape)):
            raise ExportError(f"the backward of {described(function, 'backward')} returns a gradient of shape {list(gradient.shape)} for "
                              f"input {position}, which has the shape {list(to.shape)}")
        gradient = gradient.sum_to_size(to.shape)
    return gradient.to(to.dtype)


def _gradients(function: Any, context: Context, arguments: tuple[Any, ...],
               cotangents: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns the inputs that have a gradient, each with it."""
    backward = _backward_of(function)
    found = _as_tuple(backward(context, *cotangents))
    if len(found) < len(arguments) or any(extra is not None for extra in found[len(arguments):]):
        raise ExportError(f"the backward of {described(function, backward.__name__)} returns {len(found)} gradients for {len(arguments)} inputs")
    return [(argument, _fitted(function, gradient, i, argument)) for i, (argument, gradient) in enumerate(zip(arguments, found))
            if _is_float(argument) and isinstance(gradient, torch.Tensor)]


def traced(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Calls a Function such that the graph that is being traced gets its forward and its backward. Returns what `apply` would."""
    if _sets_up_context(function):
        bound = inspect.signature(function.forward).bind(*arguments, **keywords)
        bound.apply_defaults()
        arguments, keywords = bound.args, bound.kwargs
    inputs = (*arguments, *keywords.values())
    context = Context(function, tuple(_is_float(value) for value in inputs))
    # Also within the forward or the backward of another Function.
    if not torch.is_grad_enabled():
        return _forward(function, context, arguments, keywords)
    # As in a training step, neither is differentiated itself.
    with torch.no_grad():
        returned = _forward(function, context, arguments, keywords)
        outputs = list(_as_tuple(returned))
        values = [i for i, output in enumerate(outputs) if context.differentiates(output)]
        cotangents: list[Any] = [torch.zeros_like(output) if isinstance(output, torch.Tensor) else None for output in outputs]
        for index, i in enumerate(values):
            cotangents[i] = torch.onnx.ops.symbolic("fsdpc::Cotangent", (outputs[i],), {"index": index}, dtype=outputs[i].dtype,
                                                    shape=outputs[i].shape, version=1)
        pairs = _gradients(function, context, inputs, cotangents) if values else []
    if values:
        operands = [*(outputs[i] for i in values), *(cotangents[i] for i in values), *(x for x, _ in pairs), *(g for _, g in pairs)]
        results = torch.onnx.ops.symbolic_multi_out("fsdpc::CustomGradient", operands, {"values": len(values)},
                                                    dtypes=[outputs[i].dtype for i in values], shapes=[outputs[i].shape for i in values],
                                                    version=1)
    for i, output in enumerate(outputs):
        if i in values:
            outputs[i] = results[values.index(i)]
        elif _is_float(output):
            outputs[i] = output.detach()
    return tuple(outputs) if isinstance(returned, (tuple, list)) else outputs[0]


def _gradients_traced(outputs: Any, cotangents: Any, keeps_graph: bool, creates_graph: bool, inputs: Any, *_: Any,
                      accumulate_grad: bool, **__: Any) -> tuple[torch.Tensor, ...]:
    """Stands for the autograd engine: torch.autograd.grad by a node of the graph that is being traced."""
    line = at(calling_line(sys._getframe(1)))
    if accumulate_grad:
        raise ExportError(f"the module calls backward{line}, which adds to the gradients of parameters while forward or a backward runs; "
                          "use torch.autograd.grad, and return what it gives")
    values, targets = _as_tuple(outputs), _as_tuple(inputs)
    if not all(_is_float(value) for value in (*values, *targets)):
        raise ExportError(f"the module calls torch.autograd.grad{line} on what are not tensors of floats")
    seeds = [torch.ones_like(value) if seed is None else seed for value, seed in zip(values, cotangents)]
    found = torch.onnx.ops.symbolic_multi_out("fsdpc::Vjp", [*values, *seeds, *targets], {"values": len(values)},
                                              dtypes=[target.dtype for target in targets], shapes=[target.shape for target in targets],
                                              version=1)
    return tuple(found) if creates_graph else tuple(gradient.detach() for gradient in found)


@contextlib.contextmanager
def own_backwards_traced() -> Iterator[None]:
    """Traces Functions with their backward, and calls of torch.autograd.grad, for as long as the context lasts."""
    # The classmethod itself: what the attribute gives is bound to this class.
    apply = vars(torch.autograd.Function)["apply"]

    @classmethod  # type: ignore[misc]
    def trace(cls: type, *arguments: Any, **keywords: Any) -> Any:
        # Those of torch's machinery: its custom ops, and control flow, which is looked for in the graph.
        if cls.__module__.startswith("torch._"):
            return apply.__get__(None, cls)(*arguments, **keywords)
        return traced(cls, *selected(arguments), **selected(keywords))

    # What grad and backward call once they have checked their arguments, under whatever name a module knows them.
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
    torch.autograd.Function.apply = trace  # type: ignore[assignment,method-assign]
    torch.autograd._engine_run_backward = _gradients_traced  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply  # type: ignore[method-assign]
        torch.autograd._engine_run_backward = engine  # type: ignore[attr-defined]

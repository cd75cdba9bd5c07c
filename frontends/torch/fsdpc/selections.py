# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports what a module computes of the rows that a mask selects, such as `losses[mask].mean()`.

How many rows there are depends on the inputs, but a program has fixed shapes. While a module is traced, `x[mask]` is therefore a
Selection: all rows of x, with the mask. What treats each row alone is computed on all of them, and sums, means and losses leave the
others out. Any other use turns the Selection into the tensor that torch would give, which the importer takes if the mask is constant.
A change in place is refused: that tensor is a copy, which is made for each use.
"""
from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from .errors import ExportError
from .refusals import at, calling_line

# Functions of torch by their names in aten, where an operator has another.
_OPERATORS = {"truediv": "div", "rdiv": "div", "radd": "add", "rmul": "mul", "rpow": "pow", "invert": "bitwise_not", "and": "bitwise_and",
              "or": "bitwise_or", "xor": "bitwise_xor", "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor",
              "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift", "rlshift": "bitwise_left_shift", "rrshift": "bitwise_right_shift"}
# A divisor that is 0 in a row that does not count would end the program.
_DIVISIONS = ("floordiv", "floor_divide", "mod", "remainder", "fmod")
_CASTS = ("float", "double", "half", "bfloat16", "long", "int", "bool", "to", "type_as", "detach", "clone", "contiguous", "dropout")
# These work along the axes that they are given.
_ALONG = ("softmax", "log_softmax", "logsumexp", "sum", "mean", "amax", "amin", "argmax", "squeeze", "unsqueeze")
# These look up by the whole numbers of their last operand. A row that does not count may have none that is valid, such as -100.
_LOOKUPS = ("embedding", "one_hot", "gather")
# These treat the rows of their first operand alone.
_OF_ROWS = ("linear", "layer_norm", "rms_norm", "matmul", "mm")
_OF_CLASSES = (F.cross_entropy, F.nll_loss)
_OF_ELEMENTS = (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits,
                F.soft_margin_loss)
# Their mean is over the weights.
_OF_WEIGHTS = (F.mse_loss, F.l1_loss)
_index, _assign = torch.Tensor.__getitem__, torch.Tensor.__setitem__


class Selection:
    """The rows of a tensor for which a mask is true. The mask has the first axes of the tensor, which become one.

    isinstance(…, torch.Tensor) stays false: torch's C++ reads the memory of an object for which it is true, and crashes.
    """

    def __init__(self, tensor: torch.Tensor, mask: torch.Tensor):
        self.tensor, self.mask = tensor, mask
        self._versions = tensor._version, mask._version
        # What was computed of this Selection has the same object, as it may be a view of it.
        self._fate = SimpleNamespace(overwritten=False, is_tensor_elsewhere=False)

    def refuse_changed(self) -> None:
        """Raises ExportError if the tensor, the mask or this Selection has changed since the mask selected."""
        if self._fate.overwritten or self._versions != (self.tensor._version, self.mask._version):
            raise ExportError(f"a tensor or its mask is changed in place before what the mask has selected is used{at(calling_line(sys._getframe(1)))}; "
                              "change a copy")

    @functools.cached_property
    def rows(self) -> torch.Tensor:
        """All rows. Those that do not count have the values of one that does, so that nothing becomes NaN that is none in torch."""
        self.refuse_changed()
        rows = self.tensor.reshape(-1, *self.tensor.shape[self.mask.ndim:])
        if not rows.is_floating_point():
            return rows
        first = self.mask.flatten().int().argmax().reshape(1)
        return torch.where(self._along(rows), rows, rows.detach().index_select(0, first))

    def _along(self, rows: torch.Tensor) -> torch.Tensor:
        return self.mask.reshape(-1, *[1] * (rows.ndim - 1))

    def selected(self) -> torch.Tensor:
        """Returns the tensor that torch would give."""
        self.refuse_changed()
        self._fate.is_tensor_elsewhere = True
        # Not by Python's brackets, for which torch.export has a handler that comes back here.
        return torch.ops.aten.index.Tensor(self.tensor, [self.mask])

    @property
    def indices(self) -> torch.Tensor:
        """All rows, of whole numbers with 0 where they do not count."""
        return self.rows if self.rows.is_floating_point() else torch.where(self._along(self.rows), self.rows, 0)

    def with_rows(self, rows: torch.Tensor) -> "Selection":
        """Returns the Selection of other values by the same mask."""
        found = Selection(rows.reshape(*self.mask.shape, *rows.shape[1:]), self.mask)
        found.rows = rows
        found._fate = self._fate
        return found

    def overwritten(self, by: Any) -> "Selection | None":
        """Returns the Selection that an in-place operator leaves, with the values `by`. Returns None if `by` cannot stand for this Selection.

        `x[mask] += y` assigns it to x[mask]. Other names of this Selection would have the old values, so they are refused from now on;
        the tensor that torch would give may have other names already.
        """
        floats = isinstance(by, Selection) and by.rows.is_floating_point() and self.rows.is_floating_point()
        same = isinstance(by, Selection) and by.rows.shape == self.rows.shape and (floats or by.rows.dtype == self.rows.dtype)
        if not same or self._fate.is_tensor_elsewhere:
            return None
        found = Selection(by.tensor.to(self.rows.dtype), self.mask)
        found.rows = by.rows.to(self.rows.dtype)
        self._fate.overwritten = True
        return found

    def reduced(self, reduction: str) -> Any:
        """Returns the "sum" or the "mean" of all elements; with "none" the Selection itself."""
        if reduction == "none":
            return self
        # As in torch, 16 bits hold neither the sum on the way nor the count.
        rows = self.rows.float() if self.rows.dtype in (torch.float16, torch.bfloat16) else self.rows
        found = torch.where(self._along(rows), rows, torch.zeros((), dtype=rows.dtype)).sum()
        if reduction == "mean":
            found = found / (self.mask.sum() * rows[0].numel())
        return found if rows is self.rows else found.to(self.rows.dtype)

    def __getattr__(self, name: str) -> Any:
        if name in ("dtype", "device", "ndim"):
            return getattr(self.rows, name)
        method = getattr(torch.Tensor, name)
        if not callable(method):
            return getattr(self.selected(), name)
        return lambda *arguments, **keywords: Selection.__torch_function__(method, (), (self, *arguments), keywords)

    @classmethod
    def __torch_function__(cls, function: Callable[..., Any], types: Any, arguments: tuple[Any, ...] = (), keywords: Any = None) -> Any:
        keywords = {**(keywords or {}), **(_weight_of_l1_loss(sys._getframe(1)) if function is F.l1_loss else {})}
        found = _of_rows(function, arguments, keywords)
        return _called(function, arguments, keywords, Selection.selected) if found is None else found


def _weight_of_l1_loss(frame: FrameType | None) -> dict[str, Any]:
    """Returns the argument that torch 2.14 does not hand on to __torch_function__: it is in the frames of the call."""
    found: dict[str, Any] = {}
    while frame is not None:
        if frame.f_code is F.l1_loss.__code__ and frame.f_locals.get("weight") is not None:
            found = {"weight": frame.f_locals["weight"]}
        frame = frame.f_back
    return found


def _forward_operator(name: str) -> Callable[..., Any]:
    method = getattr(torch.Tensor, name)
    return lambda self, *arguments: Selection.__torch_function__(method, (), (self, *arguments))


def _in_place_operator(name: str) -> Callable[..., Any]:
    method, plain = getattr(torch.Tensor, f"__i{name}__"), getattr(torch.Tensor, f"__{name}__")

    def call(self: Selection, other: Any) -> Any:
        found = self.overwritten(_of_rows(plain, (self, other), {}))
        return Selection.__torch_function__(method, (), (self, other)) if found is None else found

    return call


# Python looks for operators in the class.
for _name in ("neg", "pos", "abs", "invert", "matmul", "eq", "ne", "lt", "le", "gt", "ge", "getitem", "setitem", "len", "iter", "contains", "bool"):
    setattr(Selection, f"__{_name}__", _forward_operator(f"__{_name}__"))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
    for _kind in ("", "r"):
        setattr(Selection, f"__{_kind}{_name}__", _forward_operator(f"__{_kind}{_name}__"))
    setattr(Selection, f"__i{_name}__", _in_place_operator(_name))
Selection.__hash__ = object.__hash__  # type: ignore[method-assign]


def selected(value: Any) -> Any:
    """Returns a value, which may be nested, with the tensor that torch would give for each Selection in it."""
    return tree_map_only(Selection, Selection.selected, value)


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any],
            tensor_of: Callable[[Selection], torch.Tensor]) -> Any:
    """Calls a function with a tensor in place of each Selection. Raises ExportError if it changes one in place."""
    given: list[tuple[torch.Tensor, int]] = []

    def tensor(of: Selection) -> torch.Tensor:
        found = tensor_of(of)
        given.append((found, found._version))
        return found

    arguments, keywords = tree_map_only(Selection, tensor, (arguments, keywords))
    found = function(*arguments, **keywords)
    if any(one._version != version for one, version in given):
        raise ExportError(f"what a mask has selected is changed in place{at(calling_line(sys._getframe(1)))}; "
                          "compute a new tensor, or choose by torch.where")
    return found


def _is_pointwise(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads())


def _of_rows(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Returns what `function` gives of selections with one mask, or None if it needs the tensors that torch would give."""
    operands = [*arguments, *keywords.values()]
    selections = [value for value in operands if isinstance(value, Selection)]
    for selection in selections:
        selection.refuse_changed()
    if not selections or any(not _same(value.mask, selections[0].mask) for value in selections):
        return None
    if function in _OF_CLASSES or function in _OF_ELEMENTS:
        return _loss(function, arguments, keywords)
    name = function.__name__
    name = name.strip("_") if name.startswith("__") else name
    name = _OPERATORS.get(name, name)
    first, others = selections[0], [value for value in operands if isinstance(value, torch.Tensor)]

    def mapped() -> Selection | None:
        found = _called(function, arguments, keywords, lambda of: of.indices if name in _LOOKUPS else of.rows)
        # max and frexp are pointwise in some of their forms only.
        keeps = isinstance(found, torch.Tensor) and found.ndim > 0 and found.shape[0] == first.rows.shape[0]
        return first.with_rows(found) if keeps else None

    alone = len(selections) == 1 and operands[0] is first
    if name in ("sum", "mean") and alone and len(arguments) <= 2 and _axes(first, arguments, keywords) in ([], [0]) and keywords.keys() <= {"dim"}:
        return first.reduced(name) if first.rows.ndim == 1 or not _axes(first, arguments, keywords) else None
    if name in _ALONG:
        axes = _axes(first, arguments, keywords, new=int(name == "unsqueeze"))
        return mapped() if alone and axes and 0 not in axes else None
    if name == "getitem":
        index = arguments[1] if isinstance(arguments[1], tuple) else ()
        keeps_rows = index[:1] == (slice(None),) and all(part is None or isinstance(part, (int, slice)) for part in index)
        return mapped() if alone and keeps_rows else None
    if name == "gather":
        axes = _axes(first, arguments, keywords)
        return mapped() if operands[0] is first and not others and axes and 0 not in axes else None
    if name in _LOOKUPS:
        return mapped() if alone else None
    if name in _CASTS or (name in _OF_ROWS and first.rows.ndim > 1):
        return mapped() if alone else None
    fits = all(value.rows.ndim == first.rows.ndim for value in selections) and all(value.ndim < first.rows.ndim for value in others)
    if name in _DIVISIONS or keywords.get("rounding_mode") is not None:
        return mapped() if fits and alone else None
    return mapped() if fits and _is_pointwise(name) else None


def _axes(of: Selection, arguments: tuple[Any, ...], keywords: dict[str, Any], new: int = 0) -> list[int]:
    """Returns the axes that a call names, counted from the first. A new one may be the last."""
    given = keywords.get("dim", arguments[1] if len(arguments) > 1 else None)
    named = [] if given is None else [given] if isinstance(given, int) else list(given)
    return [axis % (of.rows.ndim + new) for axis in named]


def _loss(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    call = inspect.signature(function).bind(*arguments, **keywords)
    call.apply_defaults()
    values = call.arguments
    scores, targets, reduction = values["input"], values["target"], values["reduction"]
    if any(values.get(name) is not None for name in ("reduce", "size_average")) or (function in _OF_WEIGHTS and values.get("weight") is not None):
        return None
    if not isinstance(scores, Selection) or not isinstance(targets, Selection) or reduction not in ("none", "sum", "mean"):
        return None
    if function in _OF_ELEMENTS:
        if scores.rows.shape != targets.rows.shape:
            return None
        values["reduction"] = "none"
        return scores.with_rows(_called(function, (), values, lambda of: of.rows)).reduced(reduction)
    if targets.rows.is_floating_point():
        return None
    values["input"] = scores.rows
    values["target"] = torch.where(scores.mask.reshape(-1, *[1] * (targets.rows.ndim - 1)), targets.rows, values["ignore_index"])
    found = function(**values)
    return scores.with_rows(found) if reduction == "none" else found


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Returns true if two masks are one tensor, or were computed by the same ops of the same tensors, as two `labels != -100` are."""
    mode = get_proxy_mode()
    if one is other or mode is None:
        return one is other
    nodes = [get_proxy_slot(mask, mode.tracer, None, lambda slot: slot.proxy.node) for mask in (one, other)]
    return None not in nodes and _same_node(*nodes)


def _same_node(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same_node, one, other))
    if not isinstance(one, torch.fx.Node) or not isinstance(other, torch.fx.Node):
        return type(one) is type(other) and one == other
    schema = getattr(one.target, "_schema", None)
    pure = schema is not None and not schema.is_mutable and torch.Tag.nondeterministic_seeded not in one.target.tags
    return one is other or (pure and one.target is other.target and one.kwargs == other.kwargs and _same_node(one.args, other.args))


def _masks_of_bytes(index: Any) -> Any:
    """Returns an index with booleans for masks of bytes, which torch's exporter has no op for."""
    if isinstance(index, tuple):
        return tuple(map(_masks_of_bytes, index))
    return index.bool() if isinstance(index, torch.Tensor) and index.dtype == torch.uint8 else index


@contextlib.contextmanager
def selections_traced(model: torch.nn.Module) -> Iterator[None]:
    """Makes a Selection of each `x[mask]` and `x.masked_select(mask)`, for as long as the context lasts. What `model` returns has none."""
    def selects(tensor: torch.Tensor, mask: Any) -> bool:
        return isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.ndim > 0 and mask.shape == tensor.shape[:mask.ndim]

    def item(tensor: torch.Tensor, index: Any) -> Any:
        index = _masks_of_bytes(index)
        return Selection(tensor, index) if selects(tensor, index) else _index(tensor, index)

    def masked_select(input: torch.Tensor, mask: torch.Tensor) -> Any:
        return item(*((input, mask) if input.shape == mask.shape else torch.broadcast_tensors(input, mask)))

    def assign(tensor: torch.Tensor, index: Any, value: Any) -> None:
        index = _masks_of_bytes(index)
        if isinstance(value, Selection) and selects(tensor, index) and _same(index, value.mask):
            rows = value.rows.reshape(*index.shape, *value.rows.shape[1:])
            tensor.copy_(torch.where(index.reshape(*index.shape, *[1] * (tensor.ndim - index.ndim)), rows, tensor))
        else:
            _assign(tensor, *selected((index, value)))

    def is_tensor(value: Any) -> bool:
        return isinstance(value, (torch.Tensor, Selection))

    before = torch.masked_select, torch.Tensor.masked_select, torch.is_tensor
    torch.is_tensor = is_tensor  # type: ignore[assignment]
    torch.Tensor.__getitem__ = item  # type: ignore[assignment,method-assign]
    torch.Tensor.__setitem__ = assign  # type: ignore[assignment,method-assign]
    torch.masked_select, torch.Tensor.masked_select = masked_select, masked_select  # type: ignore[assignment,method-assign]
    returned = model.register_forward_hook(lambda module, arguments, output: selected(output))
    try:
        yield
    finally:
        returned.remove()
        torch.Tensor.__getitem__ = _index  # type: ignore[method-assign]
        torch.Tensor.__setitem__ = _assign  # type: ignore[method-assign]
        torch.masked_select, torch.Tensor.masked_select, torch.is_tensor = before  # type: ignore[method-assign]

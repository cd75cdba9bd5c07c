# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Restores what an export changes in a module: attributes, parameters, buffers, hooks, and what lists and objects in it hold.

A forward that is traced runs the user's Python code. What it keeps, such as a cache of positions, would stay a FakeTensor, and a hook that
it registers on its first call would stay without the flag that says so. Needs no torch.
"""
from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_DICTIONARIES = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, deque)
_ATOMS = (str, bytes, int, float, complex, bool, type(None), type, FunctionType, MethodType, ModuleType)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _children(value: Any) -> Iterable[Any]:
    if type(value) in _DICTIONARIES:
        return value.values()
    if type(value) in (*_SEQUENCES, set, tuple):
        return value
    return [vars(value)] if type(getattr(value, "__dict__", None)) is dict else []


def remembered(values: Iterable[Any]) -> Callable[[], None]:
    """Returns a function that gives `values`, and the containers and objects that they hold, the contents of now. Tensors stay as they are."""
    before: list[tuple[Any, Any]] = []
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, _ATOMS) or id(value) in seen or _is_tensor(value):
            continue
        seen.add(id(value))
        # The copy also keeps what it holds alive, so no id is used twice.
        before.append((value, value.copy() if type(value) in (*_DICTIONARIES, *_SEQUENCES, set) else None))
        waiting.extend(_children(value))

    def restore() -> None:
        for value, contents in before:
            if contents is not None:
                value.clear()
                (value.extend if type(value) in _SEQUENCES else value.update)(contents)

    return restore


@contextlib.contextmanager
def kept(model: "torch.nn.Module") -> Iterator[None]:
    """Restores all modules in `model`, as far as forward assigns to them or to what they hold."""
    restore = remembered(model.modules())
    try:
        yield
    finally:
        restore()

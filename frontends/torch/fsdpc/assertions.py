# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a module checks of its own values: asserts, branches that raise or warn, tests for infinity and NaN, and torch._check.

A program runs the same ops in every step, so nothing in Python can depend on a value. These ask whether something has gone wrong; the
export goes on as if nothing had, as `python -O` leaves asserts out, and says so. A program with a loss that is not finite ends with an
error.
"""
from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from .refusals import at, calling_line, is_users

# What Python asks of a tensor's values, by the class or module that has it.
_QUESTIONS = ((torch.Tensor, "__bool__"), (torch.Tensor, "item"), (torch, "equal"), (torch.Tensor, "equal"), (torch, "allclose"),
              (torch.Tensor, "allclose"))
# What all elements of a result are if values are finite, by what all elements of the operands are then.
_IF_FINITE: dict[str, Callable[[list[bool]], bool]] = {
    "isfinite": lambda known: True, "isnan": lambda known: False, "isinf": lambda known: False,
    **dict.fromkeys(("all", "any", "max", "min"), lambda known: known[0]),
    **dict.fromkeys(("logical_not", "bitwise_not", "__invert__"), lambda known: not known[0]),
    **dict.fromkeys(("logical_and", "bitwise_and", "__and__"), all),
    **dict.fromkeys(("logical_or", "bitwise_or", "__or__"), any),
}
_TESTS = ("isfinite", "isnan", "isinf")
# The functions of warnings, logging, transformers' logging and Lightning that only tell something.
_TELLS = {"print", "warn", "warning", "warn_once", "warning_once", "warning_advice", "info", "info_once", "debug", "error", "critical", "exception",
          "log", "log_once"}


@functools.lru_cache(maxsize=16)
def _checks_of(file: str) -> list[ast.Assert | ast.If]:
    """Returns the asserts of a source file, and the branches that only raise or tell something."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree)
            if isinstance(node, ast.Assert) or (isinstance(node, ast.If) and not node.orelse and all(map(_only_tells, node.body)))]


def _only_tells(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        return True
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    # A tensor's own method `log` is an expression without effect.
    return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", None)) in _TELLS


def _passing(frame: FrameType | None) -> bool | None:
    """Returns the truth of a value with which the innermost check that a frame is in finds nothing wrong; None if there is none.

    The check is the user's, or torch's own, as that of a distribution's arguments.
    """
    while frame is not None:
        file, line = frame.f_code.co_filename, frame.f_lineno
        found = next((check for check in _checks_of(file) if check.test.lineno <= line <= (check.test.end_lineno or 0)), None)
        if found is not None or is_users(file):
            return None if found is None else _passing_truth(found)
        frame = frame.f_back
    return None


def _passing_truth(check: ast.Assert | ast.If) -> bool | None:
    test, truth = check.test, isinstance(check, ast.Assert)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, truth = test.operand, not truth
    # Of a test with parts that have to be true and parts that have to be false, this would not be all that is needed.
    return None if any(isinstance(part, ast.Not) for part in ast.walk(test)) else truth


class ChecksPass(contextlib.AbstractContextManager["ChecksPass"]):
    """Answers what a module asks of its values in checks, as long as the context lasts. `tell` prints which.

    Functions in the place of torch's answer, and note the results that follow from all values being finite. A mode of torch would not
    see what torch's own Python asks, and would stop the tracing of its control flow.
    """

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._known = WeakTensorKeyDictionary()
        self._before: list[tuple[Any, str, Callable[..., Any]]] = []

    def __enter__(self) -> "ChecksPass":
        for owner, name in _QUESTIONS:
            self._replace(owner, name, self._answering)
        for name in _IF_FINITE:
            for owner in (torch, torch.Tensor):
                if hasattr(owner, name):
                    self._replace(owner, name, self._noting)
        return self

    def __exit__(self, *exception: Any) -> None:
        for owner, name, before in self._before:
            setattr(owner, name, before)

    def _replace(self, owner: Any, name: str, wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> None:
        before = getattr(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, functools.wraps(before)(wrap(name, before)))

    def _answering(self, name: str, before: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **keywords: Any) -> Any:
            frame = sys._getframe(1)
            answer = self._if_finite(arguments[0]) if len(arguments) == 1 else None
            if answer is None and (name != "item" or arguments[0].dtype == torch.bool):
                answer = _passing(frame)
            if answer is None:
                return before(*arguments, **keywords)
            self._lines[calling_line(frame)] = None
            return answer
        return asked

    def _noting(self, name: str, before: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any, **keywords: Any) -> Any:
            result = before(*arguments, **keywords)
            known = [self._if_finite(value) for value in arguments]
            if isinstance(result, torch.Tensor) and not result.is_inference() and (name in _TESTS or (known and None not in known)):
                self._known[result] = _IF_FINITE[name](known), result._version
            return result
        return noted

    def _if_finite(self, value: Any) -> bool | None:
        """Returns what all elements of a value are if values are finite; None if that is not known, or if it has been written to since."""
        if not isinstance(value, torch.Tensor) or value not in self._known:
            return None
        answer, version = self._known[value]
        return answer if version == value._version else None

    def tell(self) -> None:
        """Prints what has been taken for granted."""
        for line in self._lines:
            print(f"fsdpc.export has left out the check of values{at(line)}", file=sys.stderr)


def drop_assertions(program: "torch.export.ExportedProgram") -> None:
    """Removes torch._check of values, and what is computed for it alone. A program does not check its values."""
    asserts = (torch.ops.aten._assert_scalar.default, torch.ops.aten._assert_async.msg, torch.ops.aten._assert_async.default)
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        found = [node for node in part.graph.nodes if node.op == "call_function" and node.target in asserts]
        for node in found:
            part.graph.erase_node(node)
        if found:
            part.graph.eliminate_dead_code()
            part.recompile()

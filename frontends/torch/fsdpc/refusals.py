# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What an export cannot keep: finds it while torch traces a module, and says what to write instead.

A refusal names the line of the module's source, where torch's own message would name a part of torch.
"""
from __future__ import annotations

import linecache
import os
import re
import traceback
from pathlib import Path
from types import FrameType

import torch

from .errors import ExportError

_TORCH = str(Path(torch.__file__).parent) + os.sep
# Sources that are not the module's: Python's own, torch's with its exporter's, and these.
_PYTHON = str(Path(os.__file__).parent) + os.sep
_OTHERS = re.compile(r"[\\/](site|dist)-packages[\\/](torch|onnxscript|onnx_ir)[\\/]")
_CHOICE = "a program runs the same ops in every step; compute both sides and choose by torch.where"
_LOOP = "a program runs the same ops in every step; write a loop in Python, which the export unrolls"
# Higher-order ops by name: how the user calls them, and the cure.
_CONTROL_FLOW = {
    "cond": ("torch.cond", _CHOICE),
    "while_loop": ("while_loop", _LOOP),
    "scan": ("scan", _LOOP),
    "associative_scan": ("associative_scan", _LOOP),
    "map_impl": ("map", _LOOP),
}
# What torch raises where Python needs the value of a tensor.
_VALUE_NEEDED = ("GuardOnDataDependentSymNode", "DataDependentOutputException", "DynamicOutputShapeException")


def is_users(file: str) -> bool:
    """Returns true for sources that are not torch's, Python's or this package's."""
    if file.startswith((_TORCH, str(Path(__file__).parent) + os.sep, "<")) or _OTHERS.search(file):
        return False
    return "-packages" in file or not file.startswith(_PYTHON)


def calling_line(frame: FrameType | None) -> str:
    """Returns FILE:LINE of the innermost frame that runs source of the user's, or ""."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


def _failing_line(error: BaseException) -> str:
    """Returns FILE:LINE of the innermost line of the module's source that an exception has passed, or ""."""
    steps = traceback.extract_tb(error.__traceback__)
    entered = next((i for i, step in enumerate(steps) if step.filename.startswith(_TORCH)), len(steps))
    lines = [f"{step.filename}:{step.lineno}" for step in steps[entered:] if is_users(step.filename)]
    return lines[-1] if lines else ""


def line_of_node(node: torch.fx.Node) -> str:
    """Returns FILE:LINE of the user's source that made a node, or ""."""
    lines = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    users = [f"{file}:{line}" for file, line in lines if is_users(file)]
    return users[-1] if users else ""


def at(line: str) -> str:
    """Returns " at LINE", or "" where the line is not known."""
    return f" at {line}" if line else ""


def refuse_control_flow(program: "torch.export.ExportedProgram") -> None:
    """Refuses branches and loops that are decided on while a program runs. Raises ExportError with the line of the call."""
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in _CONTROL_FLOW:
                name, cure = _CONTROL_FLOW[node.target.name()]
                raise ExportError(f"the module calls {name}{at(line_of_node(node))}, but {cure}")


def _cure_of(line: str) -> str:
    """Returns what to do about a line that needs the value of a tensor."""
    file, _, number = line.rpartition(":")
    if linecache.getline(file, int(number or 0)).strip().startswith("assert "):
        return "a program does not check its values; leave the assert out, as python -O does"
    return _CHOICE


def refusal_of(error: BaseException) -> ExportError:
    """Returns the refusal for what torch has raised: its innermost cause, which names the module's fault, and the module's line."""
    line = _failing_line(error)
    while error.__cause__ is not None:
        error = error.__cause__
        line = _failing_line(error) or line
    if type(error).__name__ in _VALUE_NEEDED:
        return ExportError(f"forward needs the value of a tensor in Python{at(line)}, but {_cure_of(line)}")
    fixes = re.search(r"Constraints violated \((.*)\)!(?:.|\n)*Suggested fixes:\n((?:  .+\n?)+)", str(error))
    if fixes:
        return ExportError(f"'dynamic_shapes' cannot leave {fixes[1]} open, since the module needs "
                           f"{', '.join(fix.strip() for fix in fixes[2].splitlines())}")
    words = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ExportError(f"torch cannot export the module: {words}{f' ({line})' if line else ''}")

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls of the tool fsdpc: finding it, its flags, compile and check."""
from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Union

from .command import packed_tool
from .errors import ToolNotFound, ToolRemark, ToolWarning, error_of, messages
from .programs import environment_for_programs, find_program

PathLike = Union[str, "os.PathLike[str]"]
# None and False leave a flag out, True gives it without a value, a list repeats it, and a dict repeats it with NAME=VALUE.
FlagValue = Union[None, bool, int, float, str, "os.PathLike[str]", Iterable[Union[int, float, str]],
                  Mapping[str, Union[int, float, str, Iterable[Union[int, float, str]]]]]


def find_tool(tool: PathLike | None = None) -> str:
    """Returns the fsdpc to call: `tool`, else $FSDPC, else the one in the wheel, else the one on PATH. Raises ToolNotFound, which says where it has looked."""
    for place, given in (("the argument 'tool'", tool), ("the environment variable FSDPC", os.environ.get("FSDPC"))):
        if given:
            found = find_program(os.fspath(given))
            if found is None:
                raise ToolNotFound(f"'{os.fspath(given)}', from {place}, is no program")
            return found
    packed = packed_tool()
    if packed is not None:
        if not os.access(packed, os.X_OK):
            raise ToolNotFound(f"'{packed}' is missing or cannot be run; install fsdpc again ('pip install --force-reinstall')")
        return packed
    found = find_program("fsdpc")
    if found is None:
        raise ToolNotFound("no 'fsdpc' on PATH; give its path as the argument 'tool' or in the environment variable FSDPC")
    return found


def flags_of(flags: Mapping[str, FlagValue]) -> list[str]:
    """Returns the words of a command line: param_dtype="bf16" is --param-dtype=bf16, dim={"T": [128, 256]} is --dim=T=128,256."""
    words: list[str] = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (str, int, float, os.PathLike)):
            words.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        elif isinstance(value, Mapping):
            for key, item in value.items():
                several = isinstance(item, Iterable) and not isinstance(item, str)
                words.append(f"{flag}={key}={','.join(map(str, item)) if several else item}")  # type: ignore[arg-type]
        else:
            words.extend(f"{flag}={item}" for item in value)
    return words


def call(words: list[str]) -> str:
    """Runs the tool and returns what it prints on stdout. Its warnings and remarks become Python's warnings, its errors exceptions."""
    environment = environment_for_programs()
    # The tool looks for NVIDIA's packages in this Python's environment, which may run without having been activated.
    if sys.prefix != sys.base_prefix:
        environment["VIRTUAL_ENV"] = sys.prefix
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
    for kind, category in (("warning", ToolWarning), ("remark", ToolRemark)):
        for text in messages(done.stderr, kind):
            warnings.warn(text, category, stacklevel=3)
    if done.returncode != 0:
        raise error_of(done.returncode, done.stderr)
    return done.stdout


def compile(model: PathLike, output: PathLike, *, tool: PathLike | None = None, **flags: FlagValue) -> str:
    """Compiles an ONNX model (or a dump) to the program `output`, and returns the summary that the tool prints.

    Flags are those of `fsdpc --help-all`, with underscores: lr=1e-3, param_dtype="bf16", frozen=["^wte"].
    """
    return call([find_tool(tool), os.fspath(model), "-o", os.fspath(output), *flags_of(flags)])


def check(model: PathLike, *, tool: PathLike | None = None, **flags: FlagValue) -> str:
    """Returns what a compile would find: composites, units, memory per rank. Nothing is compiled.

    Raises InputError with all that is refused: op, opset, node, module, types of the inputs, and what would help.
    """
    return call([find_tool(tool), "check", os.fspath(model), *flags_of(flags)])

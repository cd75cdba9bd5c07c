# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The exceptions of this package, and how the tool's messages become them."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Error(Exception):
    """An error of this package. The text is the tool's own, without "error: ".

    `code` is the exit code of the command that failed, and `output` all that it has printed on stderr; None and "" if none ran.
    """

    def __init__(self, message: str, code: int | None = None, output: str = ""):
        super().__init__(message)
        self.code, self.output = code, output


class InputError(Error):
    """The model, its data or another input file is at fault (exit code 1)."""


class CommandLineError(Error):
    """A flag is at fault (exit code 2)."""


class RunError(Error):
    """The run has failed (exit code 3, or the program was killed)."""


class InterruptedRun(Error):
    """A signal or --time-limit has ended the run after a whole step (exit code 4). It can be resumed from its checkpoint."""


class MachineError(Error):
    """A machine, another rank or a link has failed (exit code 5). The run can be started again from its checkpoint."""


class ToolNotFound(Error):
    """There is no fsdpc to call."""


class ExportError(Error):
    """The module cannot be exported such that the program would train as the module does."""


class MismatchError(Error):
    """The loss or the gradients of the compiled program are not those of the module."""


class ToolWarning(UserWarning):
    """A warning of the tool."""


class ToolRemark(ToolWarning):
    """A remark of the tool: what it has decided, and a user may not expect. quiet=True of `compile` leaves remarks out."""


_BY_CODE: dict[int, type[Error]] = {1: InputError, 2: CommandLineError, 3: RunError, 4: InterruptedRun,
                                    5: MachineError}


def messages(output: str, kind: str) -> list[str]:
    """Returns the messages of a kind ("error", "warning", "remark"), each with the notes that follow it."""
    found: list[str] = []
    inside = False
    for line in output.splitlines():
        if line.startswith(f"{kind}: "):
            found.append(line[len(kind) + 2:])
            inside = True
        elif inside and line.startswith(" "):
            found[-1] += "\n" + line
        else:
            inside = False
    return found


def error_of(code: int, output: str) -> Error:
    """Returns the exception for a command that has ended with `code`, not 0. Killed by signal S, it is -S."""
    errors = messages(output, "error")
    lines = output.strip().splitlines()
    if errors:
        text = "\n".join(errors)
    elif code < 0:
        text = f"killed by signal {-code}"
    else:
        text = lines[-1] if lines else f"exit code {code} without a message"
    return _BY_CODE.get(code, RunError)(text, code, output)


def only_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Makes each exception of `function`, whatever library it comes from, an Error: what is not one becomes an ExportError."""
    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except Error:
            raise
        except Exception as error:
            text = (str(error).strip().splitlines() or [""])[0]
            raise ExportError(f"{type(error).__name__}: {text}" if text else type(error).__name__) from error
    return call

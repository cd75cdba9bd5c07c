# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sharded training of torch modules with fsdpc: export, compile, run, load.

    import fsdpc
    fsdpc.export(model, dict(x=x, y=y), "model.onnx")
    fsdpc.compile("model.onnx", "train", optimizer="adamw", lr=1e-3)
    fsdpc.run("./train", ranks=2, data=dict(x="x.npy", y="y.npy"), steps=100, save="trained.safetensors")
    fsdpc.load(model, "trained.safetensors")

`compile`, `check` and `run` need the tool alone, not torch. Errors are exceptions of `fsdpc.Error`, with the tool's own words.
"""
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checking import check_export
    from .errors import CommandLineError, Error, ExportError, InputError, InterruptedRun, MachineError, MismatchError, RunError, ToolNotFound, ToolRemark, ToolWarning
    from .exporting import export
    from .program import Run, Step, run
    from .tool import check, compile, find_tool
    from .trainer import Trainer
    from .weights import load, save_pretrained

__all__ = ["CommandLineError", "Error", "ExportError", "InputError", "InterruptedRun", "MachineError", "MismatchError", "Run", "RunError", "Step",
           "ToolNotFound", "ToolRemark", "ToolWarning", "Trainer", "check", "check_export", "compile", "export", "find_tool", "load", "run", "save_pretrained"]

# As CMakeLists.txt has it (tools/version.py).
__version__ = "0.2.0"

# The modules of names. Each is imported when one of its names is needed: the command needs none, compiling and running need no torch,
# and only Trainer needs transformers. Other names are errors.
_MODULES = {"Run": "program", "Step": "program", "run": "program", "check": "tool", "compile": "tool", "find_tool": "tool",
            "export": "exporting", "check_export": "checking", "load": "weights", "save_pretrained": "weights", "Trainer": "trainer"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fsdpc' has no attribute '{name}'")
    import importlib
    value = getattr(importlib.import_module(f".{_MODULES.get(name, 'errors')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

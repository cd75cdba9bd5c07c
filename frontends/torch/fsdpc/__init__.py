# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sharded training of torch modules with fsdpc: export, compile, run, load.

    import fsdpc
    fsdpc.export(model, dict(x=x, y=y), "model.onnx")
    fsdpc.compile("model.onnx", "train", optimizer="adamw", lr=1e-3)
    fsdpc.run("./train", ranks=2, data=dict(x="x.npy", y="y.npy"), steps=100, save="trained.safetensors")
    fsdpc.load(model, "trained.safetensors")

`compile`, `check` and `run` need the tool alone, not torch. Errors are exceptions of `fsdpc.Error`, with the tool's own words.
"""
from typing import Any

from .errors import CommandLineError, Error, ExportError, InputError, InterruptedRun, MachineError, MismatchError, RunError, ToolNotFound, ToolRemark, ToolWarning
from .program import Run, Step, run
from .tool import check, compile, find_tool

__all__ = ["CommandLineError", "Error", "ExportError", "InputError", "InterruptedRun", "MachineError", "MismatchError", "Run", "RunError", "Step",
           "ToolNotFound", "ToolRemark", "ToolWarning", "Trainer", "check", "check_export", "compile", "export", "find_tool", "load", "run", "save_pretrained"]

# As CMakeLists.txt has it (tools/version.py).
__version__ = "0.2.0"

# These import torch, and Trainer also transformers, which compiling and running do without.
_OF_TORCH = {"export": "exporting", "check_export": "checking", "load": "weights", "save_pretrained": "weights", "Trainer": "trainer"}


def __getattr__(name: str) -> Any:
    if name not in _OF_TORCH:
        raise AttributeError(f"module 'fsdpc' has no attribute '{name}'")
    import importlib
    return getattr(importlib.import_module(f".{_OF_TORCH[name]}", __name__), name)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dimensions that an export leaves symbolic: their names for torch.export, and their sizes in the example inputs."""
from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .errors import ExportError
from .tool import PathLike


def dynamic_dims(inputs: Mapping[str, Any], dynamic_shapes: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns what torch.export takes: an entry for every input, and a Dim for a name. Axes with the same name have the same size."""
    if dynamic_shapes is None:
        return None
    unknown = next((name for name in dynamic_shapes if name not in inputs), None)
    if unknown is not None:
        raise ExportError(f"'dynamic_shapes' names the input '{unknown}', but the example inputs are {', '.join(inputs)}")
    named: dict[str, Any] = {}

    def dim(of: Any) -> Any:
        return named.setdefault(of, torch.export.Dim(of)) if isinstance(of, str) else of

    found: dict[str, Any] = {}
    for name in inputs:
        axes = dynamic_shapes.get(name)
        if isinstance(axes, Mapping):
            found[name] = {axis: dim(size) for axis, size in axes.items()}
        elif isinstance(axes, Sequence) and not isinstance(axes, str):
            found[name] = {axis: dim(size) for axis, size in enumerate(axes) if size is not None}
        elif axes is None:
            found[name] = None
        else:
            raise ExportError(f"'dynamic_shapes' has {axes!r} for the input '{name}'; it must be a dict of axes, such as {{1: \"T\"}}, "
                              "or a list with an entry per axis")
    return found


def sizes_of_dims(model: PathLike, inputs: Mapping[str, Any]) -> list[str]:
    """Returns the values of --dim with which the inputs of an ONNX file have the shapes of `inputs`."""
    import onnx_ir
    sizes: dict[str, int] = {}
    derived: dict[str, int] = {}
    for value in onnx_ir.load(model).graph.inputs:
        given = getattr(inputs.get(value.name or ""), "shape", ())
        for dim, size in zip(value.shape or (), given):
            if isinstance(dim, onnx_ir.SymbolicDim) and dim.value is not None:
                (sizes if dim.value.isidentifier() else derived)[dim.value] = int(size)
    # An expression follows from its names, where the inputs have them.
    rest = {text: size for text, size in derived.items() if not set(re.findall(r"[A-Za-z_]\w*", text)) <= set(sizes)}
    return [f"{text}={size}" for text, size in {**sizes, **rest}.items()]

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports a module with its parameters in 16 bits, so that the file has the casts that the module makes, and keeps their f32 values."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .errors import ExportError
from .ties import under_all_names

_HALVES = (torch.bfloat16, torch.float16)


@contextlib.contextmanager
def parameters_in(model: torch.nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Rounds the parameters of float32 to `dtype` as long as the context lasts. None leaves them as they are.

    Buffers stay as they are, as under FSDP2's MixedPrecisionPolicy: frequencies of rotary embeddings and running statistics are float32.
    """
    if dtype is None:
        yield
        return
    if dtype not in _HALVES:
        raise ExportError(f"dtype is {dtype}, which is none of {', '.join(map(str, _HALVES))}")
    masters = {parameter: parameter.data for parameter in model.parameters() if parameter.dtype == torch.float32}
    try:
        for parameter, master in masters.items():
            parameter.data = master.to(dtype)
        yield
    finally:
        for parameter, master in masters.items():
            parameter.data = master


@contextlib.contextmanager
def conversions_skipped() -> Iterator[None]:
    """Makes `module.to` do nothing to a module that has the type and device already, as long as the context lasts.

    Torch cannot convert a module while it is traced, also where there is nothing to do.
    """
    before = torch.nn.Module.to

    def to(module: torch.nn.Module, *arguments: Any, **keywords: Any) -> torch.nn.Module:
        device, dtype, *_ = torch._C._nn._parse_to(*arguments, **keywords)
        tensors = [*module.parameters(), *module.buffers()]
        if all(tensor.device == (device or tensor.device) and (dtype is None or tensor.dtype == dtype or not tensor.is_floating_point())
               for tensor in tensors):
            return module
        return before(module, *arguments, **keywords)

    torch.nn.Module.to = to  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        torch.nn.Module.to = before  # type: ignore[method-assign]


def masters_kept(model: torch.nn.Module, onnx_model: Any) -> None:
    """Gives the weights that were exported in 16 bits their values of float32, which every node that reads them casts.

    Each node has a cast of its own, which belongs to its module: by that the compiler finds the names of tied weights.
    """
    import onnx_ir as ir
    values = under_all_names(model, onnx_model.graph.initializers)
    done: set[str] = set()
    for name, parameter in model.named_parameters():
        value = values.get(name)
        if value is None or value.name in done or value.dtype not in (ir.DataType.BFLOAT16, ir.DataType.FLOAT16):
            continue
        done.add(value.name)
        half = value.dtype
        for node, index in list(value.uses()):
            cast = ir.node("Cast", [value], {"to": half}, metadata_props=dict(node.metadata_props), name=f"{node.name}.{name}")
            cast.outputs[0].name = f"{node.name}.{name}.{index}"
            cast.outputs[0].dtype, cast.outputs[0].shape = half, value.shape
            node.graph.insert_before(node, cast)
            node.replace_input_with(index, cast.outputs[0])
        value.const_value = ir.tensor(parameter.detach(), name=value.name)
        value.dtype = ir.DataType.FLOAT

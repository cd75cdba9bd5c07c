# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantises the frozen linear layers of a module for an export, as QLoRA trains adapters on them (Dettmers et al., 2023).

A weight becomes codes and one float32 scale per 64 elements, its largest magnitude. The layer computes the weight from these in each
forward, with ops that the compiler keeps: the codes stay narrow in the file, in the program and in memory. Scales are not quantised
in their turn, as QLoRA's double quantisation does.
"""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import torch
from torch.nn import functional as F

from .errors import ExportError

BLOCK = 64
# The 4-bit NormalFloat: quantiles of the normal distribution, with an exact 0 (QLoRA, appendix E).
NF4 = (-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0)
# The largest code of each kind that has no codebook.
_LARGEST = {"int8": 127, "int4": 7}
KINDS = ("nf4", *_LARGEST)


class QuantizedLinear(torch.nn.Module):
    """A linear layer with its weight in codes. The bias stays the layer's own parameter.

    `weight_codes` has an int8 per element (int8), or a uint8 for two, the first in the high bits (nf4, int4). The last block of a
    weight is filled with zeros.
    """

    def __init__(self, linear: torch.nn.Module, kind: str) -> None:
        super().__init__()
        # The weight of a Conv1D is [in, out].
        self.kind, self.shape, self.is_transposed = kind, linear.weight.shape, _is_conv1d(linear)
        blocks = linear.weight.detach().float().reshape(-1)
        blocks = F.pad(blocks, (0, -blocks.numel() % BLOCK)).reshape(-1, BLOCK)
        largest = blocks.abs().amax(1, keepdim=True)
        relative = blocks / torch.where(largest == 0, 1, largest)
        if kind == "nf4":
            book = torch.tensor(NF4, device=blocks.device)
            codes = torch.bucketize(relative, (book[1:] + book[:-1]) / 2)
            self.register_buffer("codebook", book)
        else:
            largest = largest / _LARGEST[kind]
            codes = (relative * _LARGEST[kind]).round()
        if kind != "int8":
            pairs = (codes + (8 if kind == "int4" else 0)).to(torch.uint8).reshape(-1, 2)
            codes = pairs[:, 0] * 16 + pairs[:, 1]
        self.register_buffer("weight_codes", codes.to(torch.int8 if kind == "int8" else torch.uint8))
        self.register_buffer("weight_scales", largest)
        self.bias = linear.bias

    @property
    def weight(self) -> torch.Tensor:
        """The weight that the codes stand for, in float32."""
        codes = self.weight_codes
        if self.kind != "int8":
            # In uint8: the exporter writes a test of the sign for quotients of int32, and a tensor that is tested counts as a mask.
            codes = torch.stack([codes // 16, codes % 16], -1).reshape(-1, BLOCK).to(torch.int32)
        if self.kind == "nf4":
            values = self.codebook[codes]
        else:
            values = codes.to(torch.float32) - (8 if self.kind == "int4" else 0)
        return (values * self.weight_scales).reshape(-1)[:self.shape.numel()].reshape(self.shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.to(x.dtype)
        return F.linear(x, weight.T if self.is_transposed else weight, self.bias)


def _is_conv1d(layer: torch.nn.Module) -> bool:
    """Returns true for the linear layer of GPT-2 and its like in transformers, which is not an nn.Linear."""
    utilities = sys.modules.get("transformers.pytorch_utils")
    return utilities is not None and type(layer) is utilities.Conv1D


def _places(model: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, str, torch.nn.Module]]:
    """Yields the frozen linear layers with their places, but not those that share their weight with another module."""
    owners: dict[int, set[int]] = {}
    for part in model.modules():
        for parameter in part.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(id(part))
    for part in model.modules():
        for name, child in part.named_children():
            is_linear = type(child) is torch.nn.Linear or _is_conv1d(child)
            if is_linear and not child.weight.requires_grad and len(owners[id(child.weight)]) == 1:
                yield part, name, child


@contextlib.contextmanager
def quantized(model: torch.nn.Module, kind: str | None) -> Iterator[None]:
    """Puts QuantizedLinear in place of the frozen linear layers of `model`, as long as the context lasts. None leaves them."""
    if kind is None:
        yield
        return
    if kind not in KINDS:
        raise ExportError(f"quantize_base is {kind!r}, which is none of {', '.join(map(repr, KINDS))}")
    places = list(_places(model))
    if not places:
        raise ExportError("quantize_base has no effect: the module has no nn.Linear, and no Conv1D of transformers, whose weight has "
                          "requires_grad=False")
    made: dict[int, QuantizedLinear] = {}
    try:
        for part, name, linear in places:
            if id(linear) not in made:
                made[id(linear)] = QuantizedLinear(linear, kind).train(linear.training)
            setattr(part, name, made[id(linear)])
        yield
    finally:
        for part, name, linear in places:
            setattr(part, name, linear)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes casts where torch's exporter cannot: `1.0 - mask` and `mask // 2.0` of integers.

The exporter casts operands of several types itself, but finds no overload where the first operand is a number of Python, and has no
function for `//` by a number.
"""
from __future__ import annotations

import torch

_ROUNDED = torch.ops.aten.floor_divide.default
_OF_NUMBERS = (torch.ops.aten.rsub.Scalar, torch.ops.aten.pow.Scalar, _ROUNDED)


def cast_integers(program: "torch.export.ExportedProgram") -> None:
    """Casts the integers x of `1.0 - x`, `2.0 ** x` and `x // 2.0` to the type of the result."""
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in part.graph.nodes:
            if node.op != "call_function" or node.target not in _OF_NUMBERS:
                continue
            # The number is a node too where it is a size that stays open.
            operand = next(argument for argument in node.args
                           if isinstance(argument, torch.fx.Node) and isinstance(argument.meta["val"], torch.Tensor))
            value, dtype = operand.meta["val"], node.meta["val"].dtype
            if value.dtype == dtype or (node.target is _ROUNDED and isinstance(node.args[1], torch.fx.Node)):
                continue
            with part.graph.inserting_before(node):
                cast = part.graph.call_function(torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype})
            cast.meta = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
            cast.meta["val"] = value.to(dtype)
            node.replace_input_with(operand, cast)
            if node.target is _ROUNDED:
                with part.graph.inserting_before(node):
                    number = part.graph.call_function(torch.ops.aten.full.default, ([], node.args[1]), {"dtype": dtype})
                number.meta = {**cast.meta, "val": value.new_full((), float(node.args[1]), dtype=dtype)}
                node.args = (cast, number)
        part.recompile()

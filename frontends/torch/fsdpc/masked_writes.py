# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes `x[mask] = value` as a choice by torch.where.

torch's exporter looks up where the mask is true, and how many elements that are depends on the inputs. Where the value is the same for
all selected elements, or has as many axes as one of them, each element is the value or keeps what it had.
"""
from __future__ import annotations

import torch

_IN_PLACE = torch.ops.aten.index_put_.default
_WRITES = (torch.ops.aten.index_put.default, _IN_PLACE)


def _mask_of(indices: list[torch.fx.Node | None]) -> tuple[int, torch.fx.Node] | None:
    """Returns the only index with the axis at which it stands, if it is a mask."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].meta["val"].dtype != torch.bool:
        return None
    return given[0]


def _fits(value: torch.Tensor, target: torch.Tensor, axis: int, mask: torch.Tensor) -> bool:
    """Returns true if a value is the same for all that a mask at an axis selects. Its axis of selected elements may be 1."""
    behind = target.ndim - axis - mask.ndim
    return value.ndim <= behind or value.shape[value.ndim - behind - 1] == 1


def write_by_masks(program: "torch.export.ExportedProgram") -> None:
    """Replaces writes to what a mask selects by choices, where the value allows it. The exporter refuses the others."""
    for part in program.graph_module.modules():
        if not isinstance(part, torch.fx.GraphModule):
            continue
        for node in list(part.graph.nodes):
            if node.op != "call_function" or node.target not in _WRITES or not (found := _mask_of(node.args[1])):
                continue
            (axis, mask), (target, _, value), adds = found, node.args[:3], len(node.args) > 3 and node.args[3]
            if _fits(value.meta["val"], target.meta["val"], axis, mask.meta["val"]):
                _choose(part.graph, node, axis, mask, target, value, adds)
        part.graph.lint()
        part.recompile()


def _choose(graph: torch.fx.Graph, node: torch.fx.Node, axis: int, mask: torch.fx.Node, target: torch.fx.Node, value: torch.fx.Node,
            adds: bool) -> None:
    def call(function: torch._ops.OpOverload, *arguments: object) -> torch.fx.Node:
        values = torch.fx.node.map_arg(arguments, lambda argument: argument.meta["val"])
        with graph.inserting_before(node):
            made = graph.call_function(function, arguments)
        made.meta = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
        made.meta["val"] = function(*values)
        return made

    shape, selected, written = target.meta["val"].shape, mask.meta["val"], value.meta["val"]
    behind = len(shape) - axis - selected.ndim
    chosen = call(torch.ops.aten.view.default, mask, [*selected.shape, *[1] * behind])
    if written.ndim > behind + 1 or (written.ndim == behind + 1 and selected.ndim > 1):
        # The one axis of selected elements stands for all axes of the mask.
        front = list(written.shape[:written.ndim - behind - 1])
        value = call(torch.ops.aten.view.default, value, [*front, *[1] * selected.ndim, *written.shape[written.ndim - behind:]])
    if adds:
        value = call(torch.ops.aten.add.Tensor, target, value)
    choice = call(torch.ops.aten.where.self, chosen, value, target)
    if node.target is _IN_PLACE:
        choice = call(torch.ops.aten.copy_.default, target, choice)
    node.replace_all_uses_with(choice)
    graph.erase_node(node)

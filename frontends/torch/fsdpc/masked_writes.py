# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes `x[mask] = value` and `x.masked_scatter(mask, value)` as a choice by torch.where.

torch's exporter looks up where the mask is true, and how many elements that are depends on the inputs. Where the value is the same for
all selected elements, or has as many axes as one of them, each element is the value or keeps what it had. Where it has a row for each
selected element, as the features of an image have that take the places of its tokens, a running sum of the mask says which row that is.
"""
from __future__ import annotations

import math

import torch

_IN_PLACE = torch.ops.aten.index_put_.default
_WRITES = (torch.ops.aten.index_put.default, _IN_PLACE)
_SCATTER_IN_PLACE = torch.ops.aten.masked_scatter_.default
_SCATTERS = (torch.ops.aten.masked_scatter.default, _SCATTER_IN_PLACE)


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
            if node.op != "call_function":
                continue
            if node.target in _SCATTERS:
                _Write(part.graph, node).scatter(*node.args)
            elif node.target in _WRITES and (found := _mask_of(node.args[1])):
                _Write(part.graph, node).put(*found, *node.args[:1], *node.args[2:])
        part.graph.lint()
        part.recompile()


class _Write:
    """A node that writes, and the nodes that take its place."""

    def __init__(self, graph: torch.fx.Graph, node: torch.fx.Node):
        self.graph, self.node = graph, node

    def put(self, axis: int, mask: torch.fx.Node, target: torch.fx.Node, value: torch.fx.Node, adds: bool = False) -> None:
        shape, selected, written = target.meta["val"].shape, mask.meta["val"], value.meta["val"]
        behind = len(shape) - axis - selected.ndim
        if _fits(written, target.meta["val"], axis, selected):
            if written.ndim > behind + 1 or (written.ndim == behind + 1 and selected.ndim > 1):
                # The one axis of selected elements stands for all axes of the mask.
                front = list(written.shape[:written.ndim - behind - 1])
                value = self._view(value, [*front, *[1] * selected.ndim, *written.shape[written.ndim - behind:]])
        elif axis == 0 and written.ndim == behind + 1 and isinstance(written.shape[0], int):
            value = self._spread(mask, value)
        else:
            return
        if adds:
            value = self._call(torch.ops.aten.add.Tensor, target, value)
        self._choose(self._view(mask, [*selected.shape, *[1] * behind]), value, target)

    def scatter(self, target: torch.fx.Node, mask: torch.fx.Node, source: torch.fx.Node) -> None:
        shape = list(target.meta["val"].shape)
        if mask.target is torch.ops.aten.expand.default and mask.args[0].meta["val"].ndim == len(shape):
            mask = mask.args[0]
        given = [1] * (len(shape) - mask.meta["val"].ndim) + list(mask.meta["val"].shape)
        # Axes behind, along which the mask is the same: a row of the source fills them.
        behind = next((i for i, size in enumerate(reversed(given)) if size != 1), len(shape))
        front, row = shape[:len(shape) - behind], shape[len(shape) - behind:]
        width, elements = math.prod(row), source.meta["val"].numel()
        if not isinstance(elements, int) or elements % width:
            return
        mask = self._view(mask, given[:len(front)])
        if given[:len(front)] != front:
            mask = self._call(torch.ops.aten.expand.default, mask, front)
        rows = self._view(source, [elements // width, *row])
        self._choose(self._view(mask, [*front, *[1] * behind]), self._spread(mask, rows), target)

    def _spread(self, mask: torch.fx.Node, rows: torch.fx.Node) -> torch.fx.Node:
        """Returns, for each element of the mask, the row of as many as are selected up to it."""
        shape, of_rows = mask.meta["val"].shape, rows.meta["val"].shape
        counts = self._call(torch.ops.aten.cumsum.default, self._call(torch.ops.aten._to_copy.default, self._view(mask, [-1]),
                                                                      dtype=torch.int64), 0)
        places = self._call(torch.ops.aten.clamp.default, self._call(torch.ops.aten.sub.Tensor, counts, 1), 0, of_rows[0] - 1)
        return self._view(self._call(torch.ops.aten.index_select.default, rows, 0, places), [*shape, *of_rows[1:]])

    def _choose(self, chosen: torch.fx.Node, value: torch.fx.Node, target: torch.fx.Node) -> None:
        choice = self._call(torch.ops.aten.where.self, chosen, value, target)
        if self.node.target in (_IN_PLACE, _SCATTER_IN_PLACE):
            choice = self._call(torch.ops.aten.copy_.default, target, choice)
        self.node.replace_all_uses_with(choice)
        self.graph.erase_node(self.node)

    def _view(self, value: torch.fx.Node, shape: list[int]) -> torch.fx.Node:
        return self._call(torch.ops.aten.reshape.default, value, shape)

    def _call(self, function: torch._ops.OpOverload, *arguments: object, **keywords: object) -> torch.fx.Node:
        values = torch.fx.node.map_arg(arguments, lambda argument: argument.meta["val"])
        with self.graph.inserting_before(self.node):
            made = self.graph.call_function(function, arguments, keywords)
        made.meta = {key: self.node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in self.node.meta}
        made.meta["val"] = function(*values, **keywords)
        return made

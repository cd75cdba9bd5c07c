# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of random graphs that move elements.

A function chooses inputs among the tensors of the graph g (graph_generator.Graph) and adds a node, or raises NoChoice if the graph
has no fitting tensor. A node carries its meaning, a function from numpy arrays to arrays, written from ONNX's text and not from
the compiler. Attributes are drawn from the corners that the text allows: negative axes, steps other than one, uneven pads.
"""
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from numerics.graph_generator import op


@op(2)
def reshape(g):
    x = g.real()
    shape = g.factors(x.value.size)
    written = list(shape)
    if written and g.chance(0.5):
        written[g.integer(0, len(written) - 1)] = -1
    return g.node("Reshape", [x, g.constant(np.array(written, np.int64))], lambda v, _: v.reshape(shape))


@op(2)
def transpose(g):
    x = g.real()
    order = g.permutation(x.value.ndim)
    return g.node("Transpose", [x], lambda v: v.transpose(order), perm=order)


@op(1)
def flatten(g):
    x = g.real()
    axis = g.integer(-x.value.ndim, x.value.ndim)
    at = axis + x.value.ndim if axis < 0 else axis
    rows = math.prod(x.value.shape[:at])
    return g.node("Flatten", [x], lambda v: v.reshape(rows, -1), axis=axis)


@op(1)
def unsqueeze(g):
    x = g.real(lambda v: v.ndim < 4)
    axis = g.integer(-x.value.ndim - 1, x.value.ndim)
    return g.node("Unsqueeze", [x, g.constant(np.array([axis], np.int64))], lambda v, _: np.expand_dims(v, axis))


@op(1)
def squeeze(g):
    x = g.real(lambda v: 1 in v.shape)
    axis = g.signed(g.pick([i for i, n in enumerate(x.value.shape) if n == 1]), x.value.ndim)
    return g.node("Squeeze", [x, g.constant(np.array([axis], np.int64))], lambda v, _: np.squeeze(v, axis))


@op(1)
def expand(g):
    x = g.real(lambda v: v.size < 500)
    shape = [g.integer(2, 3) if n == 1 else n for n in x.value.shape]
    if len(shape) < 4 and g.chance(0.5):
        shape.insert(0, 2)
    return g.node("Expand", [x, g.constant(np.array(shape, np.int64))], lambda v, _: np.broadcast_to(v, shape))


@op(3)
def slicing(g):
    x = g.real(lambda v: v.ndim > 0 and max(v.shape) > 1)
    axis = g.pick([i for i, n in enumerate(x.value.shape) if n > 1])
    n, step = x.value.shape[axis], g.pick([1, 1, 2, -1, -2])
    start = g.integer(0, n - 1)
    end = g.pick([n, n + 7, -1] if step > 0 else [-n - 1, -(1 << 60), 0])
    cut = tuple([slice(None)] * axis + [slice(start, None if end < -n else end, step)])
    g.need(x.value[cut].size)
    words = [np.array([v], np.int64) for v in (start if g.chance(0.5) else start - n, end, g.signed(axis, x.value.ndim), step)]
    return g.node("Slice", [x, *map(g.constant, words)], lambda v, *_: v[cut])


@op(2)
def concat(g):
    x = g.real(lambda v: v.ndim > 0)
    axis = g.integer(0, x.value.ndim - 1)
    fits = lambda t: t.shape[:axis] + t.shape[axis + 1:] == x.value.shape[:axis] + x.value.shape[axis + 1:]
    others = [g.real(lambda v: v.ndim == x.value.ndim and fits(v)) for _ in range(g.integer(1, 2))]
    return g.node("Concat", [x, *others], lambda *v: np.concatenate(v, axis), axis=g.signed(axis, x.value.ndim))


@op(1)
def pad(g):
    x = g.real(lambda v: v.ndim > 0)
    pads = [(g.integer(0, 2), g.integer(0, 2)) for _ in x.value.shape]
    value = g.uniform(-1, 1)
    words = np.array([p for p, _ in pads] + [q for _, q in pads], np.int64)
    return g.node("Pad", [x, g.constant(words), g.constant(np.float32(value))],
                  lambda v, *_: np.pad(v, pads, constant_values=np.float32(value)))


@op(1)
def tile(g):
    x = g.real(lambda v: v.ndim > 0 and v.size < 500)
    counts = [g.integer(1, 2) for _ in x.value.shape]
    return g.node("Tile", [x, g.constant(np.array(counts, np.int64))], lambda v, _: np.tile(v, counts))


@op(2)
def gather(g):
    x = g.real(lambda v: v.ndim > 0)
    axis = g.integer(0, x.value.ndim - 1)
    n = x.value.shape[axis]
    indices = np.array([g.integer(-n, n - 1) for _ in range(g.integer(1, 4))], np.int64).reshape(g.pick([(-1,), (1, -1)]))
    return g.node("Gather", [x, g.constant(indices)], lambda v, i: np.take(v, i.astype(int), axis), axis=g.signed(axis, x.value.ndim))


@op(1)
def gather_elements(g):
    x = g.real(lambda v: 0 < v.ndim and v.size < 200)
    axis = g.integer(0, x.value.ndim - 1)
    shape = list(x.value.shape)
    shape[axis] = g.integer(1, 4)
    n = x.value.shape[axis]
    indices = g.random.integers(-n, n, shape)
    return g.node("GatherElements", [x, g.constant(indices)],
                  lambda v, i: np.take_along_axis(v, i.astype(int), axis), axis=g.signed(axis, x.value.ndim))


@op(1)
def trilu(g):
    x = g.real(lambda v: v.ndim >= 2)
    upper, k = g.integer(0, 1), g.integer(-2, 2)
    cut = np.triu if upper else np.tril
    return g.node("Trilu", [x, g.constant(np.int64(k))], lambda v, _: cut(v, k), upper=upper)

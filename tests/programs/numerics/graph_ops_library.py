# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of random graphs that combine elements: reductions, norms, products, windows.

A function chooses inputs among the tensors of the graph g (graph_generator.Graph) and adds a node, or raises NoChoice if the graph
has no fitting tensor. A node carries its meaning, a function from numpy arrays to arrays, written from ONNX's text and not from
the compiler. Attributes are drawn from the corners that the text allows: negative axes, steps other than one, uneven pads.
"""
import math
import sys
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from numerics.graph_generator import NoChoice, away, op


# ---- along axes ----
REDUCTIONS = {
    "ReduceSum": (np.sum, None), "ReduceMean": (np.mean, None),
    "ReduceMax": (np.max, "unique"), "ReduceMin": (np.min, "unique"), "ReduceProd": (np.prod, None),
    "ReduceL1": (lambda v, **k: np.sum(np.abs(v), **k), lambda v: away(v, 0)),
    "ReduceL2": (lambda v, **k: np.sqrt(np.sum(v * v, **k)), lambda v: np.all(np.abs(v) > 0.05)),
    "ReduceLogSum": (lambda v, **k: np.log(np.sum(v, **k)), lambda v: np.all(v > 0.05)),
    "ReduceLogSumExp": (lambda v, **k: np.log(np.sum(np.exp(v), **k)), None),
    "ReduceSumSquare": (lambda v, **k: np.sum(v * v, **k), None),
}


def distinct(v):
    flat = np.sort(v.ravel())
    return bool(np.all(np.diff(flat) > 1e-3))


@op(5)
def reduction(g):
    name = g.pick(sorted(REDUCTIONS))
    meaning, domain = REDUCTIONS[name]
    x = g.real(lambda v: v.ndim > 0 and (domain is None or (distinct(v) if domain == "unique" else domain(v))))
    axes = tuple(sorted(g.subset(range(x.value.ndim))))
    keep = g.integer(0, 1)
    written = np.array([g.signed(a, x.value.ndim) for a in axes], np.int64)
    compute = lambda v, *_: meaning(v, axis=axes, keepdims=bool(keep))
    if name == "ReduceSum" or g.opset >= 18:
        return g.node(name, [x, g.constant(written)], compute, keepdims=keep)
    return g.node(name, [x], compute, keepdims=keep, axes=[int(a) for a in written])


@op(1)
def cumsum(g):
    x = g.real(lambda v: v.ndim > 0)
    axis, exclusive, reverse = g.integer(0, x.value.ndim - 1), g.integer(0, 1), g.integer(0, 1)

    def compute(v, _):
        turned = np.flip(v, axis) if reverse else v
        total = np.cumsum(turned, axis) - (turned if exclusive else 0)
        return np.flip(total, axis) if reverse else total
    return g.node("CumSum", [x, g.constant(np.int64(g.signed(axis, x.value.ndim)))], compute, exclusive=exclusive, reverse=reverse)


def softmax_of(v, axis):
    e = np.exp(v - v.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@op(3)
def softmax(g):
    x = g.real(lambda v: v.ndim > 0)
    axis, log = g.integer(0, x.value.ndim - 1), g.chance(0.4)
    meaning = lambda v: np.log(softmax_of(v, axis)) if log else softmax_of(v, axis)
    return g.node("LogSoftmax" if log else "Softmax", [x], meaning, axis=g.signed(axis, x.value.ndim))


def normalised(v, axes, eps):
    centred = v - v.mean(axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axes, keepdims=True) + eps)


@op(3)
def layer_norm(g):
    x = g.real(lambda v: v.ndim > 0 and v.shape[-1] > 2 and v.std(-1).min() > 0.05)
    axis = g.integer(max(0, x.value.ndim - 2), x.value.ndim - 1)
    shape, axes = x.value.shape[axis:], tuple(range(axis, x.value.ndim))
    inputs = [x, g.parameter(shape, around=1)] + ([g.parameter(shape)] if g.chance(0.7) else [])
    meaning = lambda v, scale, bias=0: normalised(v, axes, 1e-4) * scale + bias
    return g.node("LayerNormalization", inputs, meaning, axis=g.signed(axis, x.value.ndim), epsilon=1e-4)


@op(1)
def rms_norm(g):
    x = g.real(lambda v: v.ndim > 0 and v.shape[-1] > 2)
    if g.opset < 23:
        raise NoChoice
    meaning = lambda v, scale: v / np.sqrt((v * v).mean(-1, keepdims=True) + 1e-3) * scale
    return g.node("RMSNormalization", [x, g.parameter(x.value.shape[-1:], around=1)], meaning, axis=-1, epsilon=1e-3)


@op(1)
def instance_norm(g):
    x = g.real(lambda v: v.ndim >= 3 and v[0, 0].size > 2 and v.std(tuple(range(2, v.ndim))).min() > 0.05)
    axes = tuple(range(2, x.value.ndim))
    channel = lambda p: p.reshape(-1, *[1] * len(axes))
    scale, bias = g.parameter(x.value.shape[1:2], around=1), g.parameter(x.value.shape[1:2])
    meaning = lambda v, s, b: normalised(v, axes, 1e-4) * channel(s) + channel(b)
    return g.node("InstanceNormalization", [x, scale, bias], meaning, epsilon=1e-4)


# ---- products and windows ----
@op(4)
def matmul(g):
    a = g.real(lambda v: v.ndim > 0 and v.size < 2000)
    k = a.value.shape[-1]
    if g.chance(0.6):
        b = g.parameter((*g.pick([(), (), a.value.shape[:-2]]), k, g.integer(1, 9)), scale=k ** -0.5)
    else:
        b = g.real(lambda v: v.ndim == 1 and v.shape == (k,) or v.ndim > 1 and v.shape[-2] == k)
    try:
        np.broadcast_shapes(a.value.shape[:-2], b.value.shape[:-2])
    except ValueError:
        raise NoChoice from None
    return g.node("MatMul", [a, b], np.matmul)


@op(3)
def gemm(g):
    a = g.real(lambda v: v.ndim == 2)
    ta, tb, alpha, beta = g.integer(0, 1), g.integer(0, 1), g.uniform(0.3, 1.5), g.uniform(0.3, 1.5)
    m, k = a.value.shape[::-1] if ta else a.value.shape
    n = g.integer(1, 9)
    b = g.parameter((n, k) if tb else (k, n), scale=k ** -0.5)
    c = [g.parameter(g.pick([(n,), (1, n), (m, 1), (m, n), (), (1,)]))] if g.chance(0.7) else []
    turn = lambda v, t: v.T if t else v
    meaning = lambda x, y, z=0: alpha * (turn(x, ta) @ turn(y, tb)) + beta * z
    return g.node("Gemm", [a, b, *c], meaning, transA=ta, transB=tb, alpha=alpha, beta=beta)


@op(1)
def einsum(g):
    a = g.real(lambda v: v.ndim == 3)
    i, j, k = a.value.shape
    equation, shape = g.pick([("ijk,kl->ijl", (k, 3)), ("ijk,ijk->ij", (i, j, k)), ("ijk,jl->ikl", (j, 2)), ("bij,bkj->bik", (i, 2, k)),
                              ("...k,kl", (k, 3)), ("ijk,...->k...", (2, 3)), ("a...,b...->...ab", (2, j, k)), ("ijk,ll->kji", (3, 3))])
    return g.node("Einsum", [a, g.parameter(shape, scale=k ** -0.5)], lambda x, y: np.einsum(equation, x, y), equation=equation)


@op(1)
def det(g):
    matrix = g.parameter((g.integer(3, 6), g.integer(1, 3)), scale=0.5)
    square = g.node("Gemm", [matrix, matrix], lambda a, b: a.T @ b, transA=1)
    return g.node("Det", [square], np.linalg.det)


def windows(v, kernel, strides, dilations):
    """Returns the windows of the last axes: batch, channel, outputs…, kernel…."""
    spread = [(n - 1) * d + 1 for n, d in zip(kernel, dilations)]
    seen = sliding_window_view(v, spread, tuple(range(2, v.ndim)))
    outs = tuple(slice(None, None, s) for s in strides)
    return seen[(slice(None), slice(None), *outs, *(slice(None, None, d) for d in dilations))]


def window_shape(g, x):
    space = x.value.ndim - 2
    kernel = [g.integer(1, 3) for _ in range(space)]
    strides, dilations = [g.integer(1, 2) for _ in kernel], [g.integer(1, 2) for _ in kernel]
    pads = [(g.integer(0, (n - 1) // 2 + (n > 1)), g.integer(0, n - 1)) for n in kernel]
    sizes = [n + p + q - (w - 1) * d for n, (p, q), w, d in zip(x.value.shape[2:], pads, kernel, dilations)]
    g.need(min(sizes) >= 1)
    return kernel, strides, dilations, pads


def flat(pads):
    return [p for p, _ in pads] + [q for _, q in pads]


@op(3)
def conv(g):
    x = g.real(lambda v: v.ndim in (3, 4) and v.size < 2000)
    kernel, strides, dilations, pads = window_shape(g, x)
    channels = x.value.shape[1]
    group = g.pick([n for n in range(1, channels + 1) if channels % n == 0])
    out, depth = group * g.integer(1, 3), channels // group
    weight = g.parameter((out, depth, *kernel), scale=(depth * math.prod(kernel)) ** -0.5)
    bias = [g.parameter((out,))] if g.chance(0.5) else []

    def meaning(v, w, b=None):
        space = len(kernel)
        seen = windows(np.pad(v, [(0, 0), (0, 0), *pads]), kernel, strides, dilations)
        parts = []
        for i in range(group):
            inputs, filters = seen[:, i * depth:(i + 1) * depth], w[i * (out // group):(i + 1) * (out // group)]
            axes = [1, *range(2 + space, 2 + 2 * space)], [1, *range(2, 2 + space)]
            parts.append(np.moveaxis(np.tensordot(inputs, filters, axes), -1, 1))
        y = np.concatenate(parts, 1)
        return y if b is None else y + b.reshape(-1, *[1] * space)
    return g.node("Conv", [x, weight, *bias], meaning, kernel_shape=kernel, strides=strides, dilations=dilations, pads=flat(pads),
                  group=group)


@op(2)
def pool(g):
    x = g.real(lambda v: v.ndim == 4 and v.size < 2000)
    name = g.pick(["MaxPool", "AveragePool", "GlobalAveragePool"])
    if name == "GlobalAveragePool":
        return g.node(name, [x], lambda v: v.mean((2, 3), keepdims=True))
    kernel, strides, _, pads = window_shape(g, x)
    ones = [1] * len(kernel)
    g.need(all(n + p + q >= k for n, (p, q), k in zip(x.value.shape[2:], pads, kernel)))
    axes = (-2, -1)
    if name == "MaxPool":
        g.every(distinct, x)
        meaning = lambda v: windows(np.pad(v, [(0, 0), (0, 0), *pads], constant_values=-np.inf), kernel, strides, ones).max(axes)
        return g.node(name, [x], meaning, kernel_shape=kernel, strides=strides, pads=flat(pads))
    include = g.integer(0, 1)

    def average(v):
        total = windows(np.pad(v, [(0, 0), (0, 0), *pads]), kernel, strides, ones).sum(axes)
        if include:
            return total / math.prod(kernel)
        return total / windows(np.pad(np.ones_like(v), [(0, 0), (0, 0), *pads]), kernel, strides, ones).sum(axes)
    return g.node(name, [x], average, kernel_shape=kernel, strides=strides, pads=flat(pads), count_include_pad=include)


@op(1)
def pool_of_powers(g):
    x = g.real(lambda v: v.ndim in (3, 4) and np.all(np.abs(v) > 0.05))
    kernel, strides, dilations, pads = window_shape(g, x)
    axes, p = tuple(range(-len(kernel), 0)), g.integer(1, 3)
    around = [(0, 0), (0, 0), *pads]
    counts = windows(np.pad(np.ones_like(x.value), around), kernel, strides, dilations).sum(axes)
    g.need(counts.min() >= 1)

    def norm(v):
        return windows(np.pad(np.abs(v) ** p, around), kernel, strides, dilations).sum(axes) ** (1 / p)
    return g.node("LpPool", [x], norm, kernel_shape=kernel, strides=strides, dilations=dilations, pads=flat(pads), p=p)


@op(1)
def dilated_pool(g):
    x = g.real(lambda v: v.ndim in (3, 4) and distinct(v))
    kernel, strides, dilations, pads = window_shape(g, x)
    axes, around = tuple(range(-len(kernel), 0)), [(0, 0), (0, 0), *pads]
    seen = lambda v, fill: windows(np.pad(v, around, constant_values=fill), kernel, strides, dilations)
    counts = seen(np.ones_like(x.value), 0).sum(axes)
    g.need(counts.min() >= 1 and all(max(pad) < n for pad, n in zip(pads, kernel)))
    given = dict(kernel_shape=kernel, strides=strides, dilations=dilations, pads=flat(pads))
    if g.chance(0.5):
        return g.node("MaxPool", [x], lambda v: seen(v, -np.inf).max(axes), **given)
    return g.node("AveragePool", [x], lambda v: seen(v, 0).sum(axes) / counts, **given)


@op(1)
def response_norm(g):
    x = g.real(lambda v: v.ndim in (3, 4))
    size, alpha, beta, bias = g.integer(1, 4), 0.5, 0.75, 2.0

    def compute(v):
        squares = np.pad(v * v, [(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (v.ndim - 2)])
        total = sum(squares[:, k:k + v.shape[1]] for k in range(size))
        return v / (bias + alpha / size * total) ** beta
    return g.node("LRN", [x], compute, size=size, alpha=alpha, beta=beta, bias=bias)


@op(1)
def embedding(g):
    table = g.parameter((7, g.integer(1, 8)))
    return g.node("Gather", [table, g.indices(7)], lambda t, i: np.take(t, i.astype(int), 0), axis=0)


@op(1)
def attention(g):
    x = g.real(lambda v: v.ndim == 4 and v.shape[-1] > 1 and v.size < 1000)
    if g.opset < 23:
        raise NoChoice
    scale, causal = x.value.shape[-1] ** -0.5, g.integer(0, 1)

    def meaning(q, k, v):
        scores = q @ np.swapaxes(k, -1, -2) * scale
        if causal:
            scores = np.where(np.tri(scores.shape[-2], dtype=bool), scores, -1e30)
        return softmax_of(scores, -1) @ v
    return g.node("Attention", [x, x, g.real(lambda v: v.shape == x.value.shape)], meaning, is_causal=causal)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of random graphs that choose, scatter and interpolate elements, and recurrent networks.

As in graph_ops_library, a node carries its meaning in numpy, written from ONNX's text. Elements that are ordered must differ, since
a gradient has no direction at ties; indices that are scattered do not repeat, which ONNX demands.
"""
import numpy as np
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from numerics.graph_generator import op


def distinct_rows(v, axis):
    return bool(np.all(np.diff(np.sort(v, axis), axis=axis) > 1e-3))


@op(1)
def top_k(g):
    axis = g.integer(0, 2)
    x = g.real(lambda v: v.ndim > axis and distinct_rows(v, axis))
    count, largest = g.integer(1, x.value.shape[axis]), g.integer(0, 1)

    def compute(v, _):
        ordered = np.sort(v, axis)
        ordered = np.flip(ordered, axis) if largest else ordered
        return np.take(ordered, range(count), axis)
    return g.node("TopK", [x, g.constant(np.array([count], np.int64))], compute, axis=g.signed(axis, x.value.ndim), largest=largest)


def scattered(v, at, rows, add):
    """Puts or adds each row at its place, where `at` indexes rows of v."""
    v = v.copy()
    if add:
        np.add.at(v, at, rows)
    else:
        v[at] = rows
    return v


@op(1)
def scatter_elements(g):
    x = g.real(lambda v: 0 < v.ndim and v.size < 200)
    axis, add = g.integer(0, x.value.ndim - 1), g.chance(0.5)
    n = x.value.shape[axis]
    count = g.integer(1, n)
    shape = list(x.value.shape)
    shape[axis] = count
    updates = g.real(lambda v: list(v.shape) == shape)
    draw = (lambda: g.random.integers(0, n, count)) if add else (lambda: g.random.permutation(n)[:count])
    indices = np.apply_along_axis(lambda _: draw(), axis, np.zeros(shape, np.int64))
    at = list(np.ogrid[tuple(slice(0, s) for s in shape)])
    at[axis] = indices
    written = np.where(g.random.random(shape) < 0.3, indices - n, indices)
    return g.node("ScatterElements", [x, g.constant(written), updates], lambda v, _, u: scattered(v, tuple(at), u, add),
                  axis=g.signed(axis, x.value.ndim), reduction="add" if add else "none")


@op(1)
def scatter_nd(g):
    x = g.real(lambda v: 0 < v.ndim and v.size < 200)
    add, n = g.chance(0.5), x.value.shape[0]
    updates = g.real(lambda v: v.ndim == x.value.ndim and v.shape[1:] == x.value.shape[1:] and (add or v.shape[0] <= n))
    count = updates.value.shape[0]
    rows = g.random.integers(0, n, count) if add else g.random.permutation(n)[:count]
    return g.node("ScatterND", [x, g.constant(np.array(rows, np.int64).reshape(-1, 1)), updates],
                  lambda v, _, u: scattered(v, rows, u, add), reduction="add" if add else "none")


def interpolate(v, axis, size, mode, coordinates):
    n = v.shape[axis]
    i = np.arange(size)
    scale = size / n
    x = {"half_pixel": (i + 0.5) / scale - 0.5, "asymmetric": i / scale,
         "align_corners": i * (n - 1) / max(size - 1, 1)}[coordinates]
    take = lambda at: np.take(v, np.clip(at, 0, n - 1).astype(int), axis)
    if mode == "nearest":
        return take(np.ceil(x - 0.5))  # the lower of two that are equally near
    low = np.floor(x)
    part = (x - low).reshape([-1 if a == axis else 1 for a in range(v.ndim)])
    if mode == "linear":
        return take(low) * (1 - part) + take(low + 1) * part
    a = -0.75
    near = lambda t: ((a + 2) * t - (a + 3)) * t * t + 1
    far = lambda t: ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    return take(low - 1) * far(part + 1) + take(low) * near(part) + take(low + 1) * near(1 - part) + take(low + 2) * far(2 - part)


@op(1)
def resize(g):
    x = g.real(lambda v: v.ndim >= 2 and v.size < 300)
    mode, coordinates = g.pick(["nearest", "linear", "cubic"]), g.pick(["half_pixel", "asymmetric", "align_corners"])
    sizes = list(x.value.shape)
    axes = g.subset(range(x.value.ndim))[:2]
    for axis in axes:
        sizes[axis] = g.integer(1, 2 * sizes[axis] + 1)

    def compute(v, *_):
        for axis in axes:
            if sizes[axis] != v.shape[axis]:
                v = interpolate(v, axis, sizes[axis], mode, coordinates)
        return v
    empty = [g.constant(np.zeros(0, np.float32)) for _ in ("roi", "scales")]
    return g.node("Resize", [x, *empty, g.constant(np.array(sizes, np.int64))], compute, mode=mode,
                  coordinate_transformation_mode=coordinates)


@op(1)
def pad_by_elements(g):
    mode = g.pick(["edge", "reflect", "wrap"])
    g.need(mode != "wrap" or g.opset >= 19)
    x = g.real(lambda v: v.ndim > 0 and min(v.shape) > 2 and v.size < 300)
    pads = [(g.integer(0, 2), g.integer(0, 2)) for _ in x.value.shape]
    words = np.array([p for p, _ in pads] + [q for _, q in pads], np.int64)
    return g.node("Pad", [x, g.constant(words)], lambda v, _: np.pad(v, pads, mode=mode), mode=mode)


@op(1)
def blocks(g):
    block = 2
    if g.chance(0.5):
        x = g.real(lambda v: v.ndim == 4 and v.shape[2] % block == 0 and v.shape[3] % block == 0)

        def compute(v):
            n, c, h, w = v.shape
            return v.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * 4, h // 2, w // 2)
        return g.node("SpaceToDepth", [x], compute, blocksize=block)
    x = g.real(lambda v: v.ndim == 4 and v.shape[1] % (block * block) == 0)
    is_dcr = g.chance(0.5)

    def compute(v):
        n, c, h, w = v.shape
        if is_dcr:
            return v.reshape(n, 2, 2, c // 4, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // 4, h * 2, w * 2)
        return v.reshape(n, c // 4, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // 4, h * 2, w * 2)
    return g.node("DepthToSpace", [x], compute, blocksize=block, mode="DCR" if is_dcr else "CRD")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks whole programs on numbers at the edges: losses as exporters write them, computed indices, integer divisions.

usage: edges.py --build DIR

Each loss is a sum over elements of a parameter from -1e4 to 1e4. Its gradient is compared with the derivative in f64. The
largest errors are printed. edges_test covers single functions; this test covers what the importer makes of graphs.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from compare import read_safetensors
from harness import Failure

POINTS = np.unique(np.concatenate([s * p for s in (-1, 1) for p in (
    np.geomspace(1e-30, 1e4, 200), np.linspace(16, 18, 9), np.linspace(87, 89, 9), np.linspace(103, 105, 9), [0.0])])).astype("f4")
# The squares of smaller numbers are 0.
ROWS = POINTS[np.abs(POINTS) > 1e-15]
ROWS = np.append(ROWS[:ROWS.size // 4 * 4], [0, 0, 0, 0]).astype("f4").reshape(-1, 4) * np.float32([1, -0.5, 0, 0.1])
TARGET = np.float32(0.3)


def sigmoid(x):
    return np.exp(-np.logaddexp(0, -x))


def log_of(*sum_of):
    """Returns the nodes of y = log(sum of two)."""
    return [("Add", list(sum_of), "s"), ("Log", ["s"], "y")]


TAIL = [("Abs", ["p"], "a"), ("Neg", ["a"], "n"), ("Exp", ["n"], "e"), ("Add", ["one", "e"], "u"), ("Log", ["u"], "l")]
# Name: (nodes from p to y, the derivative, its limit as a multiple of 2^-24). "one", "zero" and "t" are constants.
FORMS = {
    "Softplus": ([("Softplus", ["p"], "y")], sigmoid, 8),
    "log(1 + exp)": ([("Exp", ["p"], "e"), *log_of("e", "one")], sigmoid, 8),
    "log1p": ([("Mul", ["p", "p"], "q"), *log_of("one", "q")], lambda x: 2 * x / (1 + x * x), 16),
    "log(sigmoid)": ([("Sigmoid", ["p"], "s"), ("Log", ["s"], "y")], lambda x: sigmoid(-x), 8),
    "max, log(1 + exp)": ([*TAIL, ("Max", ["p", "zero"], "m"), ("Mul", ["p", "t"], "d"), ("Sub", ["m", "d"], "f"),
                           ("Add", ["f", "l"], "y")], lambda x: sigmoid(x) - TARGET, 8),
    "two logs": ([("Sigmoid", ["p"], "s"), ("Log", ["s"], "g"), ("Sub", ["one", "s"], "c"), ("Log", ["c"], "h"),
                  ("Sub", ["one", "t"], "o"), ("Mul", ["t", "g"], "v"), ("Mul", ["o", "h"], "w"), ("Add", ["v", "w"], "z"),
                  ("Neg", ["z"], "y")], lambda x: sigmoid(x) - TARGET, 8),
    "min, log(1 + exp)": ([*TAIL, ("Min", ["p", "zero"], "m"), ("Sub", ["m", "l"], "y")], lambda x: sigmoid(-x), 8),
    "Elu": ([("Elu", ["p"], "y")], lambda x: np.where(x > 0, 1, np.exp(np.minimum(x, 0))), 8),
    "Mish": ([("Mish", ["p"], "y")], lambda x: np.tanh(np.logaddexp(0, x)) + x * sigmoid(x) * (1 - np.tanh(
        np.logaddexp(0, x)) ** 2), 16),
    "exp - 1": ([("Min", ["p", "zero"], "m"), ("Exp", ["m"], "e"), ("Sub", ["e", "one"], "y")],
                lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)), 0.5 * (x == 0)), 8),
    "log(exp + exp)": ([("Exp", ["p"], "e"), ("Neg", ["p"], "n"), ("Exp", ["n"], "f"), *log_of("e", "f")],
                       np.tanh, 8),
}


def norm_slope(x):
    size = np.sqrt((x * x).sum(1, keepdims=True))
    return np.divide(x, size, out=np.zeros_like(x), where=size > 0)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


ROW_FORMS = {
    "ReduceL2": ([("ReduceL2", ["p", "axes"], "y")], norm_slope, 16),
    "ReduceLogSumExp": ([("ReduceLogSumExp", ["p", "axes"], "y")], softmax, 8),
}


# What torch differentiates as one op. Its gradients at the edges are not those of the graph that it exports.
PROBABILITIES = np.concatenate([np.geomspace(1e-40, 0.5, 60), 1 - np.geomspace(2e-7, 0.4, 30), [0, 1]]).astype("f4")
EXPONENTS = np.linspace(-3, 3, 13).astype("f4")


def cross_entropy(target: str) -> list:
    """Returns the nodes of torch's export of binary_cross_entropy."""
    return [("Sub", [target, "one"], "b"), ("Neg", ["p"], "n"), ("Add", ["n", "one"], "c"), ("Log", ["c"], "l"),
            ("Max", ["l", "floor"], "m"), ("Mul", ["b", "m"], "u"), ("Log", ["p"], "h"), ("Max", ["h", "floor"], "i"),
            ("Mul", [target, "i"], "v"), ("Sub", ["u", "v"], "y")]


def cross_entropy_slope(t):
    # 1 - p and p · (1 - p) are rounded to f32, as in torch.
    def slope(p):
        rest = (np.float32(1) - p.astype("f4")).astype("f4")
        return (p - t) / np.maximum((p.astype("f4") * rest).astype("f8"), 1e-12)
    return slope


def power_slope(x):
    """The slope of x^p, which counts as 0 at x = 0 unless p is negative."""
    def slope(p):
        if x == 0:
            return np.where(p < 0, -np.inf, 0)
        return np.power(x, p) * np.log(x)
    return slope


# As FORMS, with the values of p. "one_of_data" is 1, and not a constant.
EDGE_FORMS = {
    "cross-entropy, t = 0.3": (cross_entropy("t"), cross_entropy_slope(float(TARGET)), 8, PROBABILITIES),
    "cross-entropy, t = 0": (cross_entropy("zero"), cross_entropy_slope(0), 8, PROBABILITIES),
    "cross-entropy, t = 1": (cross_entropy("one"), cross_entropy_slope(1), 8, PROBABILITIES),
    "cross-entropy, t of data": (cross_entropy("one_of_data"), cross_entropy_slope(1), 8, PROBABILITIES),
    "0 ** p": ([("Pow", ["zero", "p"], "y")], power_slope(0), 0, EXPONENTS[EXPONENTS >= 0]),
    "2.5 ** p": ([("Pow", ["two_and_half", "p"], "y")], power_slope(2.5), 8, EXPONENTS),
    "1 ** p": ([("Pow", ["one_of_data", "p"], "y")], power_slope(1), 0, EXPONENTS),
}
ALL_FORMS = {name: (*form, POINTS) for name, form in FORMS.items()} | EDGE_FORMS | {
    name: (*form, ROWS) for name, form in ROW_FORMS.items()}


def scalar(name, value):
    return onnx.tensor(name, (), np.float32(value).tobytes())


def losses_model() -> bytes:
    """Returns the model loss = mean(x) · Σ over forms and their elements of y, with x: 2 x 1."""
    nodes, weights, totals = [], [], []
    keep = onnx.integer("keepdims", 0)
    constants = [("one", 1), ("zero", 0), ("t", TARGET), ("floor", -100), ("two_and_half", 2.5)]
    nodes += [onnx.node("Constant", [], [n], onnx.field(1, "value") + onnx.field(5, scalar(n, v)) + onnx.field(20, 4), name=n)
              for n, v in constants]
    axes = onnx.tensor("axes", (1,), np.int64([1]).tobytes(), onnx.INT64)
    nodes.append(onnx.node("Constant", [], ["axes"], onnx.field(1, "value") + onnx.field(5, axes) + onnx.field(20, 4), name="axes"))
    nodes.append(onnx.node("ReduceMean", ["x"], ["one_of_data"], keep))
    shared = {name for name, _ in constants} | {"axes", "one_of_data"}
    for k, (steps, _, _, data) in enumerate(ALL_FORMS.values()):
        weights.append(onnx.tensor(f"p{k}", data.shape, data.tobytes()))
        for op, inputs, output in steps:
            more = (keep,) if op.startswith("Reduce") else ()
            nodes.append(onnx.node(op, [i if i in shared else f"{i}{k}" for i in inputs], [f"{output}{k}"], *more))
        nodes.append(onnx.node("ReduceSum", [f"y{k}"], [f"total{k}"], keep))
        totals.append(f"total{k}")
    nodes += [onnx.node("Sum", totals, ["total"]), onnx.node("Mul", ["x", "total"], ["z"]),
              onnx.node("ReduceMean", ["z"], ["loss"], keep)]
    return onnx.model(nodes, [onnx.value("x", (2, 1))], [onnx.value("loss", ())], weights)


def check_losses(bench, target: str) -> None:
    model = bench.path("losses.onnx")
    model.write_bytes(losses_model())
    np.save(bench.path("ones.npy"), np.ones((2, 1), "f4"))
    program = bench.compile(model, f"losses-{target}", "--optimizer=sgd", "--lr=0", f"--target={target}")
    gradients = bench.path(f"{target}.safetensors")
    harness.run([program, f"--data=x={bench.path('ones.npy')}", "--steps=1", "--save-gradients", gradients])
    found = read_safetensors(gradients)
    wrong = []
    for k, (name, (_, slope, limit, data)) in enumerate(ALL_FORMS.items()):
        x = data.astype("f8")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            expected = slope(x)
        # Slopes of logarithms are large, and their errors relative to them.
        scale = np.maximum(np.abs(expected), 1) if name in EDGE_FORMS else 1
        error = np.abs(found[f"p{k}"].reshape(x.shape) - expected) / scale * 2.0**24
        error[np.isnan(error)] = np.inf
        worst = np.unravel_index(error.argmax(), error.shape)
        print(f"{target:16} {name:24} {error[worst]:10.2f} of {limit} · 2^-24 at {x[worst]:.6g}", flush=True)
        if error[worst] > limit:
            wrong.append(f"the derivative of {name} at {x[worst]} is {found[f'p{k}'].reshape(x.shape)[worst]}, not {expected[worst]}")
    if wrong:
        raise Failure("\n".join(wrong))


def check_indices(bench, target: str) -> None:
    """The rows of w that the model computes from x, times the quotient and the remainder of the smallest integer and x."""
    def constant(name, values):
        tensor = onnx.tensor(name, np.shape(values), np.int64(values).tobytes(), onnx.INT64)
        return onnx.node("Constant", [], [name], onnx.field(1, "value") + onnx.field(5, tensor) + onnx.field(20, 4), name=name)

    to = onnx.integer("to", 7), onnx.integer("to", 1)
    keep = onnx.integer("keepdims", 0)
    nodes = [constant("low", [-2**63]), onnx.node("Cast", ["x"], ["i"], to[0]), onnx.node("Gather", ["w", "i"], ["r"]),
             onnx.node("Div", ["low", "i"], ["q"]), onnx.node("Mod", ["low", "i"], ["m"]), onnx.node("Add", ["q", "m"], ["s"]),
             onnx.node("Cast", ["s"], ["f"], to[1]), onnx.node("Sign", ["f"], ["g"]), onnx.node("Mul", ["r", "g"], ["z"]),
             onnx.node("ReduceMean", ["z"], ["loss"], keep)]
    weight = onnx.tensor("w", (4,), np.float32([1, 2, 3, 4]).tobytes())
    model = bench.path("indices.onnx")
    model.write_bytes(onnx.model(nodes, [onnx.value("x", (2,))], [onnx.value("loss", ())], [weight]))
    program = bench.compile(model, f"indices-{target}", "--optimizer=sgd", "--lr=0", f"--target={target}")
    # A zero divisor gives 0. The program ends at an index outside of w, since the loss is NaN.
    for x, loss in [((-1, -1), -4), ((-1, 0), -2), ((3, -4), -1.5), ((0, 4), None), ((-5, 0), None), ((1e19, 0), None)]:
        np.save(bench.path("x.npy"), np.float32(x))
        log = bench.path("log.jsonl")
        done = harness.run([program, f"--data=x={bench.path('x.npy')}", "--steps=1", "--log", log], 0 if loss else 3)
        found = [line["loss"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line] if loss else None
        if found != (loss and [loss]) or not loss and "the loss is" not in done.stdout + done.stderr:
            raise Failure(f"indices {x}: loss {found}, not {loss}\n{done.stdout + done.stderr}")
        print(f"{target:16} indices {x}: loss {loss or 'refused'}", flush=True)


def test(bench, _) -> None:
    for target in ("host", "cuda-emulation"):
        check_losses(bench, target)
        check_indices(bench, target)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

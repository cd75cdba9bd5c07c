# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise ops of random graphs.

A function chooses inputs among the tensors of the graph g (graph_generator.Graph) and adds a node, or raises NoChoice if the graph
has no fitting tensor. A node carries its meaning, a function from numpy arrays to arrays, written from ONNX's text and not from
the compiler. Attributes are drawn from the corners that the text allows: negative axes, steps other than one, uneven pads.
"""
import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from numerics.graph_generator import NoChoice, away, away_or_zero, op

erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


SELU = 1.67326319217681884765625, 1.05070102214813232421875
UNARY = {  # name -> (meaning, domain)
    "Abs": (np.abs, lambda x: away(x, 0)), "Neg": (np.negative, None), "Exp": (np.exp, lambda x: np.all(x < 4)),
    "Log": (np.log, lambda x: np.all(x > 0.05)), "Sqrt": (np.sqrt, lambda x: np.all(x > 0.05)),
    "Reciprocal": (np.reciprocal, lambda x: np.all(np.abs(x) > 0.1)), "Tanh": (np.tanh, None), "Sigmoid": (sigmoid, None),
    "Relu": (lambda x: np.maximum(x, 0), away_or_zero), "Sin": (np.sin, None), "Cos": (np.cos, None),
    "Atan": (np.arctan, None), "Asinh": (np.arcsinh, lambda x: away(x, 0)), "Sinh": (np.sinh, lambda x: np.all(np.abs(x) < 4)),
    "Cosh": (np.cosh, lambda x: np.all(np.abs(x) < 4)), "Atanh": (np.arctanh, lambda x: np.all(np.abs(x) < 0.9)),
    "Asin": (np.arcsin, lambda x: np.all(np.abs(x) < 0.9)), "Acos": (np.arccos, lambda x: np.all(np.abs(x) < 0.9)),
    "Acosh": (np.arccosh, lambda x: np.all(x > 1.1)),
    "Tan": (np.tan, lambda x: np.all(np.abs(np.cos(x)) > 0.2)), "Erf": (erf, None),
    "Floor": (np.floor, lambda x: away(x, *np.unique(np.round(x)))), "Ceil": (np.ceil, lambda x: away(x, *np.unique(np.round(x)))),
    "Round": (np.round, lambda x: away(x, *np.unique(np.floor(x) + 0.5))), "Sign": (np.sign, away_or_zero),
    "Softplus": (softplus, None), "Softsign": (lambda x: x / (1 + np.abs(x)), None),
    "Selu": (lambda x: SELU[1] * np.where(x > 0, x, SELU[0] * np.expm1(np.minimum(x, 0))), lambda x: away(x, 0)),
    "HardSwish": (lambda x: x * np.clip(x / 6 + 0.5, 0, 1), lambda x: away(x, -3, 3)),
    "Mish": (lambda x: x * np.tanh(softplus(x)), None), "Identity": (lambda x: x, None),
}
PARAMETRIC = {  # name -> (attributes, meaning, domain)
    "Elu": (("alpha",), lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), (0,)),
    "Celu": (("alpha",), lambda x, a: np.maximum(x, 0) + np.minimum(0, a * np.expm1(np.minimum(x, 0) / a)), (0,)),
    "LeakyRelu": (("alpha",), lambda x, a: np.where(x > 0, x, a * x), (0,)),
}


@op(6)
def unary(g):
    name = g.pick(sorted(UNARY))
    meaning, domain = UNARY[name]
    x = g.real(domain)
    return g.node(name, [x], meaning)


@op(1)
def parametric(g):
    name = g.pick(sorted(PARAMETRIC))
    keys, meaning, kinks = PARAMETRIC[name]
    x = g.real(lambda v: away(v, *kinks))
    values = {key: g.uniform(0.2, 1.5) for key in keys}
    return g.node(name, [x], lambda v: meaning(v, *values.values()), **values)


@op(1)
def hard_sigmoid(g):
    a, b = g.uniform(0.1, 0.5), g.uniform(0.2, 0.8)
    x = g.real(lambda v: away(a * v + b, 0, 1))
    return g.node("HardSigmoid", [x], lambda v: np.clip(a * v + b, 0, 1), alpha=a, beta=b)


@op(1)
def gelu(g):
    x, how = g.real(), g.pick(["none", "tanh"])
    if g.opset < 20:
        raise NoChoice
    exact = lambda v: 0.5 * v * (1 + erf(v / math.sqrt(2)))
    near = lambda v: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))
    return g.node("Gelu", [x], exact if how == "none" else near, approximate=how)


@op(1)
def clip(g):
    low, high = sorted((g.uniform(-2, 0), g.uniform(0, 2)))
    x = g.real(lambda v: away(v, low, high))
    return g.node("Clip", [x, g.constant(np.float32(low)), g.constant(np.float32(high))], np.clip)


BINARY = {
    "Add": (np.add, None), "Sub": (np.subtract, None), "Mul": (np.multiply, None),
    "Div": (np.divide, lambda a, b: np.all(np.abs(b) > 0.1)),
    "Pow": (np.power, lambda a, b: np.all(a > 0.05) and np.all(np.abs(b) < 3)),
    "Max": (np.maximum, lambda a, b: away(a - b, 0)), "Min": (np.minimum, lambda a, b: away(a - b, 0)),
    "PRelu": (lambda a, b: np.where(a < 0, a * b, a), lambda a, b: away(a, 0)),
    "Mean": (lambda a, b: (a + b) / 2, None), "Sum": (np.add, None),
}


@op(6)
def binary(g):
    name = g.pick(sorted(BINARY))
    meaning, domain = BINARY[name]
    a, b = g.broadcasting()
    if name == "Pow":                         # exponents are not differentiated
        b = g.constant(np.asarray(g.random.uniform(-2, 2, b.value.shape), np.float32))
    if name == "PRelu" and np.broadcast(a.value, b.value).shape != a.value.shape:
        raise NoChoice
    g.every(domain or (lambda *_: True), a, b)
    return g.node(name, [a, b], meaning)


@op(2)
def where(g):
    a, b = g.broadcasting()
    name = g.pick(["Greater", "Less", "GreaterOrEqual", "LessOrEqual"])
    compare = {"Greater": np.greater, "Less": np.less, "GreaterOrEqual": np.greater_equal, "LessOrEqual": np.less_equal}[name]
    g.every(lambda v, w: away(v - w, 0), a, b)
    condition = g.node(name, [a, b], compare)
    if g.chance(0.3):
        condition = g.node("Not", [condition], np.logical_not)
    x, y = g.broadcasting()
    try:
        np.broadcast(condition.value, x.value, y.value)
    except ValueError:
        raise NoChoice from None
    return g.node("Where", [condition, x, y], np.where)

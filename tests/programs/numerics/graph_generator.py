# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes random training graphs that are valid by construction, in the style of NNSmith, and says what they compute.

A graph grows op by op (graph_ops_*.py). Every tensor carries its values on all microbatches, so an op is added only where it is
defined, far from jumps and kinks, and not so steep that f32 could not be told from a wrong result. The loss is a weighted mean
of every tensor that nobody reads, or a cross entropy. `evaluate` computes it in f64 from ONNX's definitions; with `noise` each
result is also rounded at random, which shows how far rounding alone may move the loss and its derivatives.
"""
import copy
import itertools
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import onnx_wire as wire

MICROBATCHES = 2
LARGEST, ELEMENTS = 30.0, 4000
CLOSINGS = 50                                 # draws of the terms of a loss; a graph that needs more has nothing to take a mean of


class NoChoice(Exception):
    """No tensor of the graph fits, or the result would be of no use."""


OPS: dict = {}                               # name -> (weight, function that adds the op to a graph)


def op(weight: float = 1.0):
    """Registers a function that chooses inputs and attributes and adds a node, or raises NoChoice."""
    def register(make):
        OPS[make.__name__] = (weight, make)
        return make
    return register


def away(x, *points, by=1e-3):
    """True if no element is so near a jump or a kink that rounding could move it to the other side."""
    return all(np.all(np.abs(x - p) > by) for p in points)


def away_or_zero(x):
    """Like away(x, 0), but takes exact zeros, which rounding keeps: what a pad or a Relu left."""
    return bool(np.all((np.abs(x) > 1e-3) | (x == 0)))


@dataclass
class Node:
    op: str
    inputs: list[str]
    output: str
    meaning: object
    attributes: dict


@dataclass
class Tensor:
    name: str
    values: list = field(repr=False)          # one array for each microbatch

    @property
    def value(self):
        return self.values[0]


class Graph:
    """Nodes in order, with the inputs, parameters and constants that they read. Inputs have one array for each microbatch."""

    def __init__(self, seed: int, random):
        self.seed, self.random = seed, random
        self.opset = self.pick([18, 18, 20, 21, 23])
        self.batch = self.integer(2, 4)
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.inputs: dict[str, list] = {}
        self.parameters: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.loss = ""

    # ---- random choices ----
    def integer(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def uniform(self, low: float, high: float) -> float:
        return float(np.float32(self.random.uniform(low, high)))

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def pick(self, choices):
        if not choices:
            raise NoChoice
        return choices[self.integer(0, len(choices) - 1)]

    def permutation(self, n: int) -> list[int]:
        return [int(i) for i in self.random.permutation(n)]

    def subset(self, of) -> list[int]:
        of = list(of)
        return [int(i) for i in self.random.choice(of, self.integer(1, len(of)), replace=False)]

    def signed(self, axis: int, rank: int) -> int:
        return axis - rank if self.chance(0.4) else axis

    def factors(self, size: int) -> list[int]:
        shape = []
        for _ in range(self.integer(0, 3)):
            n = self.pick([d for d in range(1, size + 1) if size % d == 0])
            shape.append(n)
            size //= n
        return shape + [size] if size != 1 or self.chance(0.5) or not shape else shape

    @staticmethod
    def need(condition) -> None:
        if not condition:
            raise NoChoice

    # ---- tensors to read ----
    def real(self, domain=None) -> Tensor:
        """Chooses a tensor of reals of which every microbatch lies in the domain. Prefers those that no node reads yet, so that
        graphs become deep rather than wide."""
        read = {name for node in self.nodes for name in node.inputs}
        found = [t for t in self.tensors.values() if t.value.dtype == np.float64 and t.name not in self.constants and
                 (domain is None or all(domain(v) for v in t.values))]
        unread = [t for t in found if t.name not in read]
        return self.pick(unread if unread and self.chance(0.75) else found)

    def broadcasting(self) -> tuple[Tensor, Tensor]:
        a = self.real()
        if self.chance(0.5):
            shape = [n if self.chance(0.6) else 1 for n in a.value.shape][self.integer(0, a.value.ndim):]
            b = self.parameter(tuple(shape))
        else:
            b = self.real(lambda v: can_broadcast(a.value.shape, v.shape))
        return (a, b) if self.chance(0.7) else (b, a)

    def every(self, condition, *tensors: Tensor) -> None:
        self.need(all(condition(*values) for values in zip(*(t.values for t in tensors))))

    def parameter(self, shape: tuple, around: float = 0, scale: float = 0.5) -> Tensor:
        same = [self.tensors[name] for name, p in self.parameters.items() if p.shape == tuple(shape)]
        if same and self.chance(0.15):
            return self.pick(same)
        name = f"p{len(self.parameters)}"
        self.parameters[name] = np.asarray(around + scale * self.random.standard_normal(shape), np.float32)
        return self.add(name, [self.parameters[name].astype(float)] * MICROBATCHES)

    def constant(self, value) -> Tensor:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return self.add(name, [self.constants[name].astype(float)] * MICROBATCHES)

    def input(self, shape: tuple) -> Tensor:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = [self.random.standard_normal((self.batch, *shape)).astype(np.float32) for _ in range(MICROBATCHES)]
        return self.add(name, [v.astype(float) for v in self.inputs[name]])

    def indices(self, limit: int) -> Tensor:
        name = f"x{len(self.inputs)}"
        shape = (self.batch, *([self.integer(1, 4)] if self.chance(0.6) else []))
        self.inputs[name] = [self.random.integers(0, limit, shape) for _ in range(MICROBATCHES)]
        return self.add(name, self.inputs[name])

    def add(self, name: str, values: list) -> Tensor:
        self.tensors[name] = Tensor(name, values)
        return self.tensors[name]

    # ---- nodes ----
    def fresh(self) -> str:
        return f"t{1 + max((int(name[1:]) for name in self.tensors if name[0] == 't'), default=-1)}"

    def node(self, op: str, inputs: list[Tensor], meaning, **attributes) -> Tensor:
        with np.errstate(all="ignore"):
            values = [np.asarray(meaning(*arrays)) for arrays in zip(*(t.values for t in inputs))]
        for v in values:
            self.need(v.dtype == bool or 0 < v.size <= ELEMENTS and v.ndim <= 5 and np.all(np.abs(v) <= LARGEST))
        self.nodes.append(Node(op, [t.name for t in inputs], self.fresh(), meaning, attributes))
        return self.add(self.nodes[-1].output, values)

    def close(self) -> None:
        """Adds the loss over every tensor of reals that no node reads."""
        read = {name for node in self.nodes for name in node.inputs}
        sinks = [t for t in self.tensors.values() if t.name not in read and t.name.startswith("t") and t.value.dtype == np.float64]
        terms = [self.term(t) for t in sinks]
        self.need(terms)
        total = terms[0] if len(terms) == 1 else self.node("Sum", terms, lambda *v: sum(v))
        self.loss = self.node("Identity", [total], lambda v: v).name

    def term(self, t: Tensor) -> Tensor:
        if t.value.ndim == 2 and t.value.shape[0] == self.batch and t.value.shape[1] > 1 and self.chance(0.7):
            labels = self.labels(t.value.shape[1])
            rows = np.arange(self.batch)
            meaning = lambda v, y: np.mean(np.log(np.exp(v - v.max(1, keepdims=True)).sum(1)) + v.max(1) - v[rows, y.astype(int)])
            return self.node("SoftmaxCrossEntropyLoss", [t, labels], meaning)
        weights = self.constant(np.asarray(self.random.standard_normal(t.value.shape), np.float32))
        weighed = self.node("Mul", [t, weights], np.multiply)
        return self.node("ReduceMean", [weighed], lambda v: v.mean(), keepdims=0)

    def labels(self, classes: int) -> Tensor:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = [self.random.integers(0, classes, self.batch) for _ in range(MICROBATCHES)]
        return self.add(name, self.inputs[name])

    def prune(self) -> None:
        """Removes what the loss does not read."""
        live, kept = {self.loss}, []
        for node in reversed(self.nodes):
            if node.output in live:
                live.update(node.inputs)
                kept.append(node)
        self.nodes = kept[::-1]
        for of in (self.inputs, self.parameters, self.constants):
            for name in [n for n in of if n not in live]:
                del of[name]

    # ---- simpler graphs ----
    def copy(self) -> "Graph":
        other = copy.copy(self)
        other.nodes, other.tensors, other.inputs = list(self.nodes), dict(self.tensors), dict(self.inputs)
        other.parameters, other.constants, other.random = dict(self.parameters), dict(self.constants), copy.deepcopy(self.random)
        return other

    def only(self, name: str):
        """Returns the graph whose loss is the weighted mean of one tensor, or None."""
        other = self.copy()
        last = next(i for i, node in enumerate(other.nodes) if node.output == name)
        del other.nodes[last + 1:]
        try:
            other.loss = other.node("Identity", [other.term(other.tensors[name])], lambda v: v).name
        except NoChoice:
            return None
        other.prune()
        return other if other.trained() else None

    def cut(self, name: str) -> "Graph":
        """Returns the graph in which a tensor is a parameter with the values that the first microbatch gave it."""
        other = self.copy()
        other.nodes = [node for node in other.nodes if node.output != name]
        other.parameters[name] = other.tensors[name].value.astype(np.float32)
        other.prune()
        return other

    # ---- what it computes ----
    def evaluate(self, parameters: dict | None = None, noise: float = 0, seed: int = 0) -> float:
        """Returns the mean loss of all microbatches in f64. With noise, each result is scaled by 1 + noise * (a normal number
        that depends on the seed, the node and the element alone)."""
        losses = []
        for i in range(MICROBATCHES):
            values = {name: np.asarray(v, float) for name, v in {**self.parameters, **self.constants, **(parameters or {})}.items()}
            values |= {name: v[i].astype(float) for name, v in self.inputs.items()}
            for n, node in enumerate(self.nodes):
                with np.errstate(all="ignore"):
                    value = np.asarray(node.meaning(*(values[name] for name in node.inputs)))
                if noise and value.dtype == np.float64:
                    value = value * (1 + noise * np.random.default_rng((seed, i, n)).standard_normal(value.shape))
                values[node.output] = value
            losses.append(float(values[self.loss]))
        return float(np.mean(losses))

    def trained(self) -> dict[str, np.ndarray]:
        """Returns the parameters that have gradients: a scalar counts as a constant of the model."""
        return {name: p for name, p in self.parameters.items() if p.ndim}

    def learns(self) -> bool:
        """Returns true if the loss moves with the parameters: reading them in a comparison alone does not count."""
        moved = {name: p + 1e-6 * np.random.default_rng(1).standard_normal(p.shape) for name, p in self.trained().items()}
        return self.evaluate(moved) != self.evaluate()

    def model(self) -> bytes:
        """Returns the graph as ONNX. Constants of reals are nodes, because a real initializer is a parameter."""
        nodes, initializers = [], []
        for name, value in self.constants.items():
            if value.dtype == np.int64:
                initializers.append(wire.tensor(name, value.shape, value.tobytes(), wire.INT64))
            else:
                constant = wire.attribute("value", wire.tensor("", value.shape, value.tobytes()))
                nodes.append(wire.node("Constant", [], [name], constant))
        initializers += [wire.tensor(name, value.shape, value.tobytes()) for name, value in self.parameters.items()]
        nodes += [wire.node(n.op, n.inputs, [n.output], *(wire.attribute(*a) for a in n.attributes.items())) for n in self.nodes]
        inputs = [wire.value(name, v[0].shape, wire.INT64 if v[0].dtype == np.int64 else wire.FLOAT)
                  for name, v in self.inputs.items()]
        return wire.model(nodes, inputs, [wire.value(self.loss, ())], initializers, self.opset)

    def text(self) -> str:
        """Returns the nodes, one a line, with the shapes of their operands."""
        def operand(name):
            return f"{name}{list(self.tensors[name].value.shape)}"
        return "\n".join(f"  {operand(n.output)} = {n.op}({', '.join(map(operand, n.inputs))}) " +
                         " ".join(f"{k}={v}" for k, v in n.attributes.items()) for n in self.nodes)


def can_broadcast(a: tuple, b: tuple) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a[::-1], b[::-1]))


def generate(seed: int) -> Graph:
    """Returns the graph of a seed: 3 to 24 ops on one to two inputs, with a parameter at least."""
    attempts = (attempt(np.random.default_rng((seed, i)), seed) for i in itertools.count())
    return next(g for g in attempts if g.loss and g.learns())


def attempt(random, seed: int) -> Graph:
    """Returns a graph, without a loss if no tensor of reals is left that can be one: no other draw changes that."""
    names, weights = list(OPS), np.array([w for w, _ in OPS.values()])
    g = Graph(seed, random)
    for _ in range(g.integer(1, 2)):
        g.input(tuple(g.integer(1, 6) for _ in range(g.integer(1, 3))))
    g.parameter(tuple(g.integer(1, 6) for _ in range(g.integer(0, 2))))
    wanted, tried = g.integer(3, 24), 0
    while len(g.nodes) < wanted and tried < 400:
        tried += 1
        try:
            OPS[names[int(g.random.choice(len(names), p=weights / weights.sum()))]][1](g)
        except NoChoice:
            continue
    for _ in range(CLOSINGS):
        try:
            g.close()
            break
        except NoChoice:                      # a term was too large; the nodes made so far stay, unread
            continue
    g.prune()
    return g

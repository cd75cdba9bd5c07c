#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains models that carry their own optimizer in `training_info`, as ONNX defines it.

usage: model_training.py --build DIR

Each model is loss = mean((x · w + b - t)²) with an algorithm graph that holds the loss, a Gradient node and an update. The reference
is ONNX's formula in numpy, in f64.

  exact       Adam, Adagrad, Momentum and updates of ordinary nodes, on one rank and on two: within the limit after each of four steps
  wrong       each formula with one of its numbers changed: beyond the limit
  emulated    one of them on the emulated GPU
  given       --lr in place of the model's rate, and --optimizer in place of its update
  initial     constants and random numbers of the initialization graph
  refused     updates that no pointwise program says
"""
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
import onnx_wire as onnx
from small_models import Models, demand

LIMIT = 1e-6  # of a parameter's norm
STEPS, ROWS, INPUTS, OUTPUTS = 4, 4, 3, 2
DOMAIN = "ai.onnx.preview.training"
random = np.random.default_rng(11)
START = {"w": random.normal(size=(INPUTS, OUTPUTS)).astype(np.float32), "b": random.normal(size=OUTPUTS).astype(np.float32)}
SAMPLES = {"x": random.normal(size=(2 * STEPS * ROWS, INPUTS)).astype(np.float32),
           "t": random.normal(size=(2 * STEPS * ROWS, OUTPUTS)).astype(np.float32)}


# ---- models ----

def number(name: str, value, element: int = onnx.FLOAT) -> bytes:
    return onnx.tensor(name, (), np.array(value, "<f4" if element == onnx.FLOAT else "<i8").tobytes(), element)


def zeros(name: str, like: str, value: float = 0) -> bytes:
    return onnx.tensor(name, START[like].shape, np.full(START[like].shape, value, "<f4").tobytes())


def optimizer(op: str, states: list[str], *attributes: bytes, step: str = "T", rate: str = "R") -> bytes:
    """A node for both parameters, whose states are called w.STATE and b.STATE."""
    groups = ["{}", "g{}", *("{}." + state for state in states)]
    changed = ["{}", *("{}." + state for state in states)]
    return onnx.node(op, [rate, step, *(g.format(p) for g in groups for p in START)],
                     [g.format(p) + "_new" for g in changed for p in START], *attributes, domain=DOMAIN)


@dataclass
class Update:
    """An update of both parameters, and its formula."""
    nodes: list[bytes]
    states: dict[str, float]  # with their initial values
    formula: Callable  # of parameter, gradient, states and steps so far, changes the first and the third
    numbers: list[bytes] = field(default_factory=lambda: [number("R", 0.1), number("T", 0, onnx.INT64)])
    bindings: dict[str, str] = field(default_factory=lambda: {"T": "T_new"})
    counts: bool = True  # adds the node that counts T
    constants: list[bytes] = field(default_factory=list)

    def algorithm(self) -> bytes:
        nodes = [onnx.node("Sub", ["y", "t"], ["d"]), onnx.node("Mul", ["d", "d"], ["s"]),
                 onnx.node("ReduceMean", ["s"], ["loss"], onnx.integer("keepdims", 0)),
                 onnx.node("Gradient", ["w", "b", "x", "t"], ["gw", "gb"], onnx.strings("xs", ["w", "b"]),
                           onnx.strings("zs", ["x", "t"]), onnx.attribute("y", "loss"), domain=DOMAIN)]
        if self.counts:
            nodes.append(onnx.node("Add", ["T", "one"], ["T_new"]))
        states = [zeros(f"{p}.{state}", p, value) for state, value in self.states.items() for p in START]
        numbers = [*self.numbers, number("one", 1, onnx.INT64), *self.constants]
        return onnx.graph([*nodes, *self.nodes], [onnx.value("t", (ROWS, OUTPUTS))], [onnx.value("loss", ())], states + numbers)

    def updates(self) -> dict[str, str]:
        changing = [p + suffix for p in START for suffix in ["", *("." + s for s in self.states)]]
        return {name: f"{name}_new" for name in changing} | self.bindings


def model(update: Update, initialization: bytes = b"", initial: dict | None = None) -> bytes:
    nodes = [onnx.node("MatMul", ["x", "w"], ["p"]), onnx.node("Add", ["p", "b"], ["y"])]
    weights = [onnx.tensor(name, value.shape, value.tobytes()) for name, value in START.items()]
    return onnx.model(nodes, [onnx.value("x", (ROWS, INPUTS))], [onnx.value("y", (ROWS, OUTPUTS))], weights) + \
        onnx.training(update.algorithm(), update.updates(), initialization, initial or {})


# ---- formulas ----

def adam(p, g, s, t, rate=0.1, alpha=0.8, beta=0.95, epsilon=1e-3, norm=0.0, post=0.0):
    g = norm * p + g
    s["v"] = alpha * s["v"] + (1 - alpha) * g
    s["h"] = beta * s["h"] + (1 - beta) * g * g
    rate = rate * np.sqrt(1 - beta ** t) / (1 - alpha ** t) if t > 0 else rate
    return (1 - post) * (p - rate * s["v"] / (np.sqrt(s["h"]) + epsilon))


def adagrad(p, g, s, t, rate=0.1, decay=0.5, epsilon=1e-3, norm=0.2):
    g = norm * p + g
    s["h"] = s["h"] + g * g
    return p - rate / (1 + t * decay) * g / (np.sqrt(s["h"]) + epsilon)


def momentum(p, g, s, t, rate=0.1, alpha=0.7, beta=0.4, norm=0.1, nesterov=False):
    g = norm * p + g
    s["m"] = alpha * s["m"] + (beta if t > 0 else 1) * g
    return p - rate * (g + alpha * s["m"] if nesterov else s["m"])


def lion(p, g, s, t, rate=0.1):
    change = np.sign(0.9 * s["m"] + 0.1 * g)
    s["m"] = 0.99 * s["m"] + 0.01 * g
    return p - rate * 0.5 ** t * change


def real(value: float) -> float:
    """The number that a f32 attribute holds."""
    return float(np.float32(value))


def adam_nodes(alpha=0.8, beta=0.95, epsilon=1e-3, **more) -> list[bytes]:
    names = {"norm": "norm_coefficient", "post": "norm_coefficient_post"}
    attributes = {"alpha": alpha, "beta": beta, "epsilon": epsilon} | {names[k]: v for k, v in more.items()}
    return [optimizer("Adam", ["v", "h"], *(onnx.attribute(k, v) for k, v in attributes.items()))]


def lion_nodes() -> list[bytes]:
    """Written out, with a rate that is halved in each step."""
    nodes = [onnx.node("Mul", ["lr", "half"], ["lr_new"])]
    for p in START:
        def op(kind, left, right, result):
            nodes.append(onnx.node(kind, [left.format(p), *([right.format(p)] if right else [])], [result.format(p)]))
        op("Mul", "{}.m", "c9", "{}1")
        op("Mul", "g{}", "c1", "{}2")
        op("Add", "{}1", "{}2", "{}3")
        op("Sign", "{}3", "", "{}4")
        op("Mul", "{}4", "lr", "{}5")
        op("Sub", "{}", "{}5", "{}_new")
        op("Mul", "{}.m", "c99", "{}6")
        op("Mul", "g{}", "c01", "{}7")
        op("Add", "{}6", "{}7", "{}.m_new")
    return nodes


MOMENTUM = {"alpha": 0.7, "beta": 0.4, "norm_coefficient": 0.1}
UPDATES = {
    "adam": Update(adam_nodes(), {"v": 0, "h": 0}, adam),
    # A node per parameter, with a rate of its own.
    "adam-rates": Update([onnx.node("Adam", [rate, "T", p, f"g{p}", f"{p}.v", f"{p}.h"], [f"{p}_new", f"{p}.v_new", f"{p}.h_new"],
                                    *(onnx.attribute(k, v) for k, v in {"alpha": 0.8, "beta": 0.95, "epsilon": 1e-3}.items()), domain=DOMAIN)
                          for p, rate in (("w", "R"), ("b", "R2"))], {"v": 0, "h": 0},
                         lambda p, g, s, t: adam(p, g, s, t, rate=0.1 if p.ndim == 2 else 0.02),
                         [number("R", 0.1), number("R2", 0.02), number("T", 0, onnx.INT64)]),
    # From 1, as torch counts, with averages that do not begin at zero.
    "adam-norms": Update(adam_nodes(norm=0.3, post=0.02), {"v": 0.5, "h": 0.25},
                         lambda p, g, s, t: adam(p, g, s, t + 1, norm=real(0.3), post=real(0.02)),
                         [number("R", 0.1), number("T", 1, onnx.INT64)]),
    "adagrad": Update([optimizer("Adagrad", ["h"], onnx.attribute("decay_factor", 0.5), onnx.attribute("epsilon", 1e-3),
                                 onnx.attribute("norm_coefficient", 0.2))], {"h": 0.125}, adagrad),
    "momentum": Update([optimizer("Momentum", ["m"], *(onnx.attribute(k, v) for k, v in MOMENTUM.items()),
                                  onnx.attribute("mode", "standard"))], {"m": 0}, momentum),
    "nesterov": Update([optimizer("Momentum", ["m"], *(onnx.attribute(k, v) for k, v in MOMENTUM.items()),
                                  onnx.attribute("mode", "nesterov"))], {"m": 0},
                       lambda p, g, s, t: momentum(p, g, s, t, nesterov=True)),
    "lion": Update(lion_nodes(), {"m": 0}, lion, [number("lr", 0.1)], {"lr": "lr_new"}, False,
                   [number("half", 0.5), number("c9", 0.9), number("c1", 0.1), number("c99", 0.99), number("c01", 0.01)]),
}


def reference(formula, states: dict[str, float], ranks: int, start=START) -> list[dict]:
    """Returns the parameters after each step, whose gradient is the mean of one microbatch per rank."""
    p = {name: value.astype(np.float64) for name, value in start.items()}
    s = {name: {state: np.full(value.shape, float(begin)) for state, begin in states.items()} for name, value in p.items()}
    found = []
    for step in range(STEPS):
        g = {name: np.zeros_like(value) for name, value in p.items()}
        for rank in range(ranks):
            rows = slice((step * ranks + rank) * ROWS, (step * ranks + rank + 1) * ROWS)
            x, t = (SAMPLES[name][rows].astype(np.float64) for name in ("x", "t"))
            d = 2 * (x @ p["w"] + p["b"] - t) / t.size / ranks
            g = {"w": g["w"] + x.T @ d, "b": g["b"] + d.sum(axis=0)}
        p = {name: formula(value, g[name], s[name], step) for name, value in p.items()}
        found.append(p)
    return found


# ---- checks ----

def error(found: dict, expected: dict) -> float:
    return max(np.linalg.norm(found[name] - value) / np.linalg.norm(value) for name, value in expected.items())


def exact(models: Models) -> None:
    for name, update in UPDATES.items():
        program = models.compile(name, model(update), "-q")
        for ranks in (1, 2):
            expected = reference(update.formula, update.states, ranks)
            errors = [error(models.train(program, step + 1, ranks), expected[step]) for step in range(STEPS)]
            print("  ".join(f"{e:7.1e}" for e in errors) + f"  {name} on {ranks}", flush=True)
            demand(max(errors) <= LIMIT, f"{name} on {ranks} ranks: over the limit of {LIMIT:.0e}")


def wrong(models: Models) -> None:
    changed = {"adam": dict(alpha=0.81), "adagrad": dict(decay=0.51), "momentum": dict(beta=0.41), "lion": dict(rate=0.101)}
    for name, arguments in changed.items():
        found = models.train(models.bench.path(name), STEPS, 1)
        formula = UPDATES[name].formula
        expected = reference(lambda p, g, s, t: formula(p, g, s, t, **arguments), UPDATES[name].states, 1)[-1]
        demand(error(found, expected) > LIMIT, f"the limit does not detect {name} with {arguments}")
    print("another number in each formula is detected")


def emulated(models: Models) -> None:
    program = models.compile("emulated", model(UPDATES["adam"]), "-q", "--target=cuda-emulation")
    found = error(models.train(program, STEPS, 2), reference(adam, UPDATES["adam"].states, 2)[-1])
    demand(found <= LIMIT, f"on the emulated GPU: {found:.1e}, over the limit of {LIMIT:.0e}")
    print(f"{found:7.1e}  adam on 2 emulated GPUs", flush=True)


def given(models: Models) -> None:
    told = harness.run([models.bench.build / "bin" / "fsdpc", models.write("given", model(UPDATES["adam"])), "-o",
                        models.bench.path("given"), "--lr=0.05"]).stdout
    demand("optimizer: of the model's training_info (Adam), lr 0.05\n" in told, f"the summary has another optimizer:\n{told}")
    expected = reference(lambda *a: adam(*a, rate=0.05), UPDATES["adam"].states, 1)[-1]
    demand(error(models.train(models.bench.path("given"), STEPS, 1), expected) <= LIMIT, "--lr is not the rate")
    told = harness.run([models.bench.build / "bin" / "fsdpc", models.write("given", model(UPDATES["adam"])), "-o",
                        models.bench.path("given"), "--optimizer=sgd", "--lr=0.05"]).stdout
    demand("optimizer: sgd of --optimizer, not that of the model's training_info\n" in told, f"the summary is silent:\n{told}")
    expected = reference(lambda p, g, s, t: p - 0.05 * g, {}, 1)[-1]
    demand(error(models.train(models.bench.path("given"), STEPS, 1), expected) <= LIMIT, "--optimizer is not the optimizer")
    print("--lr and --optimizer take the place of the model's")


def initial(models: Models) -> None:
    nodes = [onnx.node("RandomUniform", [], ["w0"], onnx.attribute("shape", [INPUTS, OUTPUTS]), onnx.attribute("low", 2.0),
                       onnx.attribute("high", 3.0)),
             onnx.node("ConstantOfShape", ["two"], ["b0"], onnx.attribute("value", onnx.tensor("v", (1,), np.float32(0.5).tobytes()))),
             onnx.node("Identity", ["zero"], ["t0"])]
    two = onnx.tensor("two", (1,), np.array([OUTPUTS], "<i8").tobytes(), onnx.INT64)
    graph = onnx.graph(nodes, [], [], [two, number("zero", 7, onnx.INT64)])
    adam7 = Update(adam_nodes(), {"v": 0, "h": 0}, lambda p, g, s, t: adam(p, g, s, t + 7))
    program = models.compile("initial", model(adam7, graph, {"w": "w0", "b": "b0", "T": "t0"}), "-q")
    still = models.train(program, 1, 1, "--lr", 0)
    demand(np.all((still["w"] >= 2) & (still["w"] < 3)) and len(np.unique(still["w"])) == still["w"].size, "w is not from [2, 3)")
    demand(np.array_equal(still["b"], np.full(OUTPUTS, 0.5)), "b is not the constant")
    found = error(models.train(program, STEPS, 2), reference(adam7.formula, adam7.states, 2, still)[-1])
    demand(found <= LIMIT, f"another training than from the initial values: {found:.1e}")
    print("parameters and the step begin as the initialization graph says")


def refused(models: Models) -> None:
    def refuse(name, bytes_, *mentions, flags=()):
        models.refused(models.write(name, bytes_), *mentions, flags=flags)

    def with_nodes(nodes, states=None, **more):
        return model(Update(nodes, states or {}, adam, **more))

    def descend(change: str) -> list[bytes]:
        return [onnx.node("Sub", [p, change.format(p)], [f"{p}_new"]) for p in START]
    norms = [onnx.node("ReduceL2", ["gw"], ["n"], onnx.integer("keepdims", 0)), onnx.node("Div", ["gw", "n"], ["cw"]),
             onnx.node("Identity", ["gb"], ["cb"])]
    refuse("norm", with_nodes(norms + descend("c{}")), "'w' is not pointwise", "--optimizer")
    other = [onnx.node("Mul", ["gb", "gb"], ["cb"]), onnx.node("Identity", ["gw"], ["cw"])]
    refuse("differ", with_nodes(other + descend("c{}")), "updates 'b' in another way than 'w'")
    data = [onnx.node("ReduceMean", ["x"], ["m"], onnx.integer("keepdims", 0)), onnx.node("Mul", ["gw", "m"], ["cw"]),
            onnx.node("Mul", ["gb", "m"], ["cb"])]
    # The rate that the second parameter has is none of the first one's.
    rate = [onnx.node("Sub", ["w", "gw"], ["w_new"]), onnx.node("Mul", ["gb", "R"], ["cb"]), onnx.node("Sub", ["b", "cb"], ["b_new"])]
    refuse("second", with_nodes(rate), "updates 'b' in another way than 'w'")
    refuse("data", with_nodes(data + descend("c{}")), "of a microbatch")
    count = [onnx.node("Mul", ["T", "T"], ["T_new"])]
    refuse("count", with_nodes(count + descend("g{}"), counts=False), "'T'", "T + c")
    refuse("decay", model(UPDATES["adam"]), "--weight-decay has no effect", flags=["--weight-decay=0.1"])
    refuse("rate", with_nodes(descend("g{}")), "no learning rate", flags=["--lr=0.1"])
    refuse("group", model(UPDATES["adam"]), "--weight-decay has no effect", flags=["--group=w: weight_decay=0.1"])
    random = onnx.node("RandomNormal", [], ["w0"], onnx.attribute("shape", [OUTPUTS, INPUTS]))
    refuse("shape", model(UPDATES["adam"], onnx.graph([random], [], [], []), {"w": "w0"}), "[2, 3]", "tensor<3x2xf32>")
    refuse("start", model(Update(adam_nodes(), {"v": 0, "h": 0}, adam,
                                         [number("R", 0.1), onnx.tensor("T", (2,), np.arange(2, dtype="<i8").tobytes(), onnx.INT64)])),
                   "the step must be scalars")
    refuse("key", model(Update(descend("g{}"), {}, adam, bindings={"nothing": "w_new"})), "'nothing'", "no initializer")


def test(bench, options):
    models = Models(bench, SAMPLES)
    for check in (exact, wrong, emulated, given, initial, refused):
        check(models)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

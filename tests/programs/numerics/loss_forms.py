# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws small losses and compares their gradient over ragged microbatches with that of what the user wrote.

usage: loss_forms.py --build DIR [--seed S] [--count N]

A loss is one or two terms of sums, means, masks, counts, guards, casts and products. Unless the compile remarks on it, a term that
divides by a count must give the gradient of one batch of all samples, in f64, and any other term the mean of the microbatches'
gradients. With a remark each term may give either. A form that fails is printed as the expression that it is.
"""
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
import onnx_wire as wire
from compare import read_safetensors
from harness import Failure

SAMPLES, LENGTH, MICROBATCHES = 2, 3, 3
COUNTED = [[3, 1], [1, 0], [2, 3]]            # targets of each sample
TOLERANCE = 2e-5


class Writer:
    """Computes an expression in f64, or writes its ONNX nodes."""

    def __init__(self, values: dict | None = None):
        self.values, self.nodes, self.constants = values, [], []

    def call(self, op: str, compute, *operands, **attributes):
        operands = [self.number(x) if isinstance(x, float) else x for x in operands]
        if self.values is not None:
            return compute(*operands)
        name = f"v{len(self.nodes)}"
        self.nodes.append(wire.node(op, operands, [name], *(wire.attribute(key, value) for key, value in attributes.items())))
        return name

    def number(self, x: float):
        if self.values is not None:
            return np.float64(x)
        name = f"c{len(self.constants)}"
        self.constants.append(wire.tensor(name, (), np.float32(x).tobytes()))
        return name

    def read(self, name: str):
        return name if self.values is None else self.values[name]

    def size(self) -> float:
        """The number of elements of the mask."""
        return float(SAMPLES * LENGTH if self.values is None else self.values["m"].size)

    def mul(self, a, b):
        return self.call("Mul", np.multiply, a, b)

    def div(self, a, b):
        return self.call("Div", np.divide, a, b)

    def add(self, a, b):
        return self.call("Add", np.add, a, b)

    def sub(self, a, b):
        return self.call("Sub", np.subtract, a, b)

    def sum(self, a, axis: int | None = None):
        if axis is None:
            return self.call("ReduceSum", np.sum, a, keepdims=0)
        axes = f"a{len(self.constants)}"
        self.constants.append(wire.tensor(axes, (1,), np.int64([axis]).tobytes(), wire.INT64))
        if self.values is not None:
            return np.sum(a, axis)
        return self.call("ReduceSum", None, a, axes, keepdims=0)

    def mean(self, a):
        return self.call("ReduceMean", np.mean, a, keepdims=0)

    def unary(self, op: str, compute, a):
        return self.call(op, compute, a)

    def where(self, test, a, b):
        return self.call("Where", np.where, test, a, b)

    def positive(self, a):
        return self.call("Greater", np.greater, a, 0.0)


# Weights of the elements; each is a count when summed.
WEIGHTS = {
    "m": lambda w: w.read("m"),
    "m * (1 + x²)": lambda w: w.mul(w.read("m"), w.add(w.mul(w.read("x"), w.read("x")), 1.0)),
    "where(m > 0, 2, 0)": lambda w: w.where(w.positive(w.read("m")), 2.0, 0.0),
    "m * sign": lambda w: w.mul(w.read("m"), w.read("s")),
}
# Divisors, of an array of weights.
COUNTS = {
    "sum": lambda w, c: w.sum(c),
    "2 * sum": lambda w, c: w.mul(w.sum(c), 2.0),
    "sum(0).sum": lambda w, c: w.sum(w.sum(c, 0)),
    "max(sum, 1)": lambda w, c: w.call("Max", np.maximum, w.sum(c), 1.0),
    "sum + 1": lambda w, c: w.add(w.sum(c), 1.0),
    "numel - (1 - c).sum": lambda w, c: w.sub(w.size(), w.sum(w.sub(1.0, c))),
    "100 - sum": lambda w, c: w.sub(100.0, w.sum(c)),
    "sqrt(sum)": lambda w, c: w.unary("Sqrt", np.sqrt, w.mul(w.sum(c), w.sum(c))),
    "sum²": lambda w, c: w.mul(w.sum(c), w.sum(c)),
    "exp(log(sum))": lambda w, c: w.unary("Exp", np.exp, w.unary("Log", np.log, w.add(w.mul(w.sum(c), w.sum(c)), 1.0))),
    "max": lambda w, c: w.call("ReduceMax", np.max, c, keepdims=0),
}
# Numerators, of losses and weights.
SUMS = {
    "(l * c).sum": lambda w, l, c: w.sum(w.mul(l, c)),
    "l.sum * 0.5": lambda w, l, c: w.mul(w.sum(l), 0.5),
    "(l * c).sum(1).sum": lambda w, l, c: w.sum(w.sum(w.mul(l, c), 1)),
    "(l * c).sum ** 2": lambda w, l, c: w.mul(w.sum(w.mul(l, c)), w.sum(w.mul(l, c))),
    "(l * c).sum * l.mean": lambda w, l, c: w.mul(w.sum(w.mul(l, c)), w.mean(l)),
    "exp(l.mean)": lambda w, l, c: w.unary("Exp", np.exp, w.mean(l)),
    "((l - l.mean) * c).sum": lambda w, l, c: w.sum(w.mul(w.sub(l, w.mean(l)), c)),
    "max(l)": lambda w, l, c: w.call("ReduceMax", np.max, l, keepdims=0),
    "sum(l * c) - 1": lambda w, l, c: w.sub(w.sum(w.mul(l, c)), 1.0),
    "max((l * c).sum, 1)": lambda w, l, c: w.call("Max", np.maximum, w.sum(w.mul(l, c)), 1.0),
}
# What becomes of numerator and divisor; the last one is of means without a count.
FORMS = {
    "n / d": lambda w, n, d: w.div(n, d),
    "n * (1 / d)": lambda w, n, d: w.mul(n, w.div(1.0, d)),
    "where(d > 0, n / d, 0)": lambda w, n, d: w.where(w.positive(d), w.div(n, d), 0.0),
    "(n / d)²": lambda w, n, d: w.mul(w.div(n, d), w.div(n, d)),
    "log(1 + (n / d)²)": lambda w, n, d: w.unary("Log", np.log, w.add(w.mul(w.div(n, d), w.div(n, d)), 1.0)),
    "(n / d * x).mean": lambda w, n, d: w.mean(w.mul(w.div(n, d), w.read("x"))),
    "0.5 * (n / d + 1)": lambda w, n, d: w.mul(w.add(w.div(n, d), 1.0), 0.5),
}


class Form:
    def __init__(self, seed: int):
        random = np.random.default_rng(seed)
        self.seed = seed
        pick = lambda of: list(of)[random.integers(len(of))]
        self.terms = [tuple(pick(of) for of in (WEIGHTS, COUNTS, SUMS, FORMS)) for _ in range(random.integers(1, 3))]
        if random.random() < 0.2:
            self.terms.append(None)           # a mean over samples
        shape = (SAMPLES * MICROBATCHES, LENGTH)
        self.start = random.normal(size=(1, LENGTH)).astype(np.float32)
        lengths = np.array(COUNTED).reshape(-1, 1)
        signs = np.where(random.random(shape) < 0.3, -1.0, 1.0)
        self.inputs = {"x": random.normal(size=shape), "m": (np.arange(LENGTH) < lengths) * 1.0, "s": signs}
        self.inputs = {name: value.astype(np.float32) for name, value in self.inputs.items()}

    def __str__(self) -> str:
        return " + ".join("(x * p)².mean" if term is None else "{3}, n = {2}, d = {1}, c = {0}".format(*term) for term in self.terms)

    def term(self, w: Writer, term):
        y = w.mul(w.read("x"), w.read("p"))
        l = w.mul(y, y)
        if term is None:
            return w.mean(l)
        weights, count, total, form = term
        c = WEIGHTS[weights](w)
        return FORMS[form](w, SUMS[total](w, l, c), COUNTS[count](w, c))

    def model(self) -> bytes:
        w = Writer()
        total = w.number(0.0)
        for term in self.terms:
            total = w.add(total, self.term(w, term))
        w.nodes.append(wire.node("Identity", [total], ["loss"]))
        inputs = [wire.value(name, (SAMPLES, LENGTH)) for name in self.inputs]
        return wire.model(w.nodes, inputs, [wire.value("loss", ())], [wire.tensor("p", (1, LENGTH), self.start.tobytes()), *w.constants])

    def gradient(self, term, rows: slice) -> np.ndarray:
        """The central difference in f64."""
        start, found = self.start.astype(np.float64), np.zeros(LENGTH)
        for i, sign in itertools.product(range(LENGTH), (1, -1)):
            moved = start.copy()
            moved[0, i] += sign * 1e-6
            values = {name: value[rows].astype(np.float64) for name, value in self.inputs.items()} | {"p": moved}
            found[i] += sign * float(self.term(Writer(values), term)) / 2e-6
        return found

    def allowed(self, remarked: bool) -> list[np.ndarray]:
        choices = []
        for term in self.terms:
            parts = [slice(SAMPLES * j, SAMPLES * (j + 1)) for j in range(MICROBATCHES)]
            own = sum(self.gradient(term, part) for part in parts) / MICROBATCHES
            whole = self.gradient(term, slice(None))
            choices.append([own, whole] if remarked else [own if term is None else whole])
        return [sum(of) for of in itertools.product(*choices)]


def complaint(bench: harness.Bench, form: Form) -> str:
    """Returns what is wrong with a form's program, or nothing."""
    name = f"form-{form.seed}"
    model, gradients = bench.path(f"{name}.onnx"), bench.path(f"{name}.gradients")
    model.write_bytes(form.model())
    made = harness.run([*bench.compiler(model), "-o", bench.path(name), "--optimizer=sgd", "--lr=1e-3"])
    read = harness.run([bench.path(name), "--info"]).stdout.split("\ninputs\n")[1].split("\n\n")[0].split()
    data = []
    for input, value in form.inputs.items():
        if input in read:
            np.save(bench.path(f"{name}-{input}.npy"), value)
            data += ["--data", f"{input}={bench.path(f'{name}-{input}.npy')}"]
    done = subprocess.run([str(word) for word in (bench.path(name), *data, "--steps", 1, "--accumulate", MICROBATCHES, "--threads", 1,
                                                  "--save-gradients", gradients)], capture_output=True, text=True)
    remarked = "('--loss-mean=microbatch')" in made.stdout + made.stderr
    with np.errstate(all="ignore"):
        allowed = form.allowed(remarked)
    if done.returncode != 0:                  # a loss that is not finite ends the run
        return "" if not all(np.isfinite(each).all() for each in allowed) else done.stderr
    found = read_safetensors(gradients)["p"].reshape(-1)
    off = [np.linalg.norm(found - each) / (np.linalg.norm(each) + 1e-6) for each in allowed]
    return "" if min(off, default=1) < TOLERANCE else f"the gradient is off by {min(off):.2e}, {'with' if remarked else 'without'} a remark"


def test(bench: harness.Bench, options) -> None:
    failed = []
    with ThreadPoolExecutor(2) as pool:
        forms = [Form(seed) for seed in range(options.seed, options.seed + options.count)]
        for form, wrong in zip(forms, pool.map(lambda form: complaint(bench, form), forms)):
            if wrong:
                failed.append(form.seed)
                print(f"seed {form.seed}: {form}\n  {wrong}", flush=True)
    if failed:
        raise Failure(f"{len(failed)} of {options.count} forms fail; run loss_forms.py again with --count 1 and --seed {failed[0]}")


def arguments(parser):
    parser.add_argument("--seed", type=int, default=0, help="of the first form")
    parser.add_argument("--count", type=int, default=40)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

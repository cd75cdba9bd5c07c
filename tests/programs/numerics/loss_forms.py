# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Draws small losses and compares their gradient over ragged microbatches with that of what the user wrote.

usage: loss_forms.py --build DIR [--seed S] [--count N] [--all]

A loss is one or two terms of sums, means, masks, counts, guards, casts, products and cross-entropies, and a microbatch has two
or three samples. Unless the compile remarks on it, a term that divides by a count must give the gradient of one batch of all samples, in f64,
and any other term the mean of the microbatches' gradients. With a remark each term may give either. Every second loss has terms
that must compile without a remark. What is not finite, as with a divisor of 0, is not compared. A form that fails is printed as
the expression that it is.
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

LENGTH, MICROBATCHES = 3, 3
IGNORED = -100                                # of the labels
TOLERANCE = 2e-5


class Writer:
    """Computes an expression in f64, or writes its ONNX nodes."""

    def __init__(self, samples: int, values: dict | None = None):
        self.samples, self.values, self.nodes, self.constants = samples, values, [], []

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
        return float(self.samples * LENGTH)

    def mul(self, a, b):
        return self.call("Mul", np.multiply, a, b)

    def div(self, a, b):
        return self.call("Div", np.divide, a, b)

    def add(self, a, b):
        return self.call("Add", np.add, a, b)

    def sub(self, a, b):
        return self.call("Sub", np.subtract, a, b)

    def integers(self, *numbers: int) -> str:
        name = f"i{len(self.constants)}"
        self.constants.append(wire.tensor(name, (len(numbers),), np.int64(numbers).tobytes(), wire.INT64))
        return name

    def sum(self, a, axis: int | None = None):
        if self.values is not None:
            return np.sum(a, axis)
        axes = [] if axis is None else [self.integers(axis)]
        return self.call("ReduceSum", None, a, *axes, keepdims=0)

    def reshape(self, a, *shape: int):
        if self.values is not None:
            return np.reshape(a, shape)
        return self.call("Reshape", None, a, self.integers(*shape))

    def concat(self, a, b, axis: int):
        return self.call("Concat", lambda *parts: np.concatenate(parts, axis), a, b, axis=axis)

    def cast(self, a, to: int):
        computed = {wire.INT64: np.int64, wire.FLOAT: np.float64}[to]
        return self.call("Cast", lambda value: np.asarray(value).astype(computed), a, to=to)

    def entropy(self, scores, labels, weights: list[int]):
        """Returns the mean cross-entropy over the labels that are not ignored, or 0 if all are."""
        if self.values is None:
            table = self.cast(self.integers(*weights), wire.FLOAT)
            return self.call("SoftmaxCrossEntropyLoss", None, scores, labels, table, ignore_index=IGNORED, reduction="mean")
        own = np.where(labels == IGNORED, 0, np.array(weights)[np.maximum(labels, 0)])
        logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        return -np.sum(own * logs[np.arange(len(labels)), np.maximum(labels, 0)]) / (np.sum(own) or 1)

    def mean(self, a):
        return self.call("ReduceMean", np.mean, a, keepdims=0)

    def unary(self, op: str, compute, a):
        return self.call(op, compute, a)

    def where(self, test, a, b):
        # The gradient of what is not chosen is 0 times its own.
        return self.call("Where", lambda test, a, b: np.where(test, a, b) + 0 * (a + b), test, a, b)

    def positive(self, a):
        return self.call("Greater", np.greater, a, 0.0)


# Weights of the elements; each is a count when summed.
WEIGHTS = {
    "m": lambda w: w.read("m"),
    "m * (1 + x²)": lambda w: w.mul(w.read("m"), w.add(w.mul(w.read("x"), w.read("x")), 1.0)),
    "where(m > 0, 2, 0)": lambda w: w.where(w.positive(w.read("m")), 2.0, 0.0),
    "m * sign": lambda w: w.mul(w.read("m"), w.read("s")),
    "float(m > 0)": lambda w: w.cast(w.positive(w.read("m")), wire.FLOAT),
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
    "sqrt(sum²)": lambda w, c: w.unary("Sqrt", np.sqrt, w.mul(w.sum(c), w.sum(c))),
    "sum²": lambda w, c: w.mul(w.sum(c), w.sum(c)),
    "exp(log(sum))": lambda w, c: w.unary("Exp", np.exp, w.unary("Log", np.log, w.add(w.mul(w.sum(c), w.sum(c)), 1.0))),
    "max": lambda w, c: w.call("ReduceMax", np.max, c, keepdims=0),
    "mean": lambda w, c: w.mean(c),
    "mean + 1": lambda w, c: w.add(w.mean(c), 1.0),
    "max(mean, 0.5)": lambda w, c: w.call("Max", np.maximum, w.mean(c), 0.5),
    "max(mean, 0.5) + 0.1": lambda w, c: w.add(w.call("Max", np.maximum, w.mean(c), 0.5), 0.1),
    "numel * mean": lambda w, c: w.mul(w.mean(c), w.size()),
    "reshape(c).sum(1).sum": lambda w, c: w.sum(w.sum(w.reshape(c, LENGTH, -1), 1)),
    "concat(c, 2 * c).sum": lambda w, c: w.sum(w.concat(c, w.mul(c, 2.0), 0)),
    "float(int(c > 0).sum)": lambda w, c: w.cast(w.sum(w.cast(w.positive(c), wire.INT64)), wire.FLOAT),
    "float(int(0.4 * sum))": lambda w, c: w.cast(w.cast(w.mul(w.sum(c), 0.4), wire.INT64), wire.FLOAT),
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
    "reshape(l * c).sum": lambda w, l, c: w.sum(w.reshape(w.mul(l, c), -1)),
    "concat(l * c, l).sum": lambda w, l, c: w.sum(w.concat(w.mul(l, c), l, 1)),
    "(l * c).mean": lambda w, l, c: w.mean(w.mul(l, c)),
    "(l * c).mean + 1": lambda w, l, c: w.add(w.mean(w.mul(l, c)), 1.0),
    "(l * c).sum / numel": lambda w, l, c: w.div(w.sum(w.mul(l, c)), w.size()),
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

# Quotients that must have no remark: of these sums, means, and forms. A guard is of a plain count.
PLAIN = [
    (["sum", "2 * sum", "sum(0).sum", "max(sum, 1)", "sum + 1", "numel - (1 - c).sum", "numel * mean", "reshape(c).sum(1).sum",
      "concat(c, 2 * c).sum", "float(int(c > 0).sum)"],
     ["(l * c).sum", "l.sum * 0.5", "(l * c).sum(1).sum", "reshape(l * c).sum", "concat(l * c, l).sum"],
     ["n / d", "n * (1 / d)", "0.5 * (n / d + 1)"]),
    (["mean", "mean + 1", "max(mean, 0.5)", "max(mean, 0.5) + 0.1"], ["(l * c).mean", "(l * c).sum / numel"],
     ["n / d", "n * (1 / d)", "0.5 * (n / d + 1)"]),
    (["sum", "2 * sum", "sum(0).sum"], ["(l * c).sum", "(l * c).sum(1).sum"], ["where(d > 0, n / d, 0)"]),
]

# Other terms, of losses and weights.
COLUMNS = {
    "((l * c).sum(0) / (c.sum(0) + 1)).sum": lambda w, l, c: w.sum(w.div(w.sum(w.mul(l, c), 0), w.add(w.sum(c, 0), 1.0))),
    "(l * c * (c.sum(0) + 1)).mean": lambda w, l, c: w.mean(w.mul(w.mul(l, c), w.add(w.sum(c, 0), 1.0))),
}
ENTROPIES = {
    "e": lambda w, e: e,
    "e²": lambda w, e: w.mul(e, e),
    "0.5 * e": lambda w, e: w.mul(e, 0.5),
    "where(count > 0, e, 0)": lambda w, e: w.where(w.positive(w.sum(w.read("k"))), e, 0.0),
}


class Term:
    """A quotient, or a term with counts in other ways."""

    def __init__(self, random: np.random.Generator, plain: bool):
        pick = lambda of: list(of)[random.integers(len(of))]
        weights, kind, self.of_samples = pick(WEIGHTS), random.random(), False
        c, l = WEIGHTS[weights], lambda w: w.mul(self.scores(w), self.scores(w))
        if kind < 0.75 or (plain and kind < 0.85):
            count, total, form = map(pick, pick(PLAIN) if plain else (COUNTS, SUMS, FORMS))
            self.text = f"{form}, n = {total}, d = {count}, c = {weights}"
            self.compute = lambda w: FORMS[form](w, SUMS[total](w, l(w), c(w)), COUNTS[count](w, c(w)))
        elif kind < 0.85:
            form = pick(COLUMNS)
            self.text = f"{form}, c = {weights}"
            self.compute = lambda w: COLUMNS[form](w, l(w), c(w))
        else:
            form, classes = pick(["e", "0.5 * e"] if plain else ENTROPIES), pick([[1, 1, 1], [1, 2, 5]])
            self.text = f"{form}, e = cross-entropy(x * p), classes = {classes}"
            self.compute = lambda w: ENTROPIES[form](w, w.entropy(self.scores(w), w.read("t"), classes))

    @staticmethod
    def scores(w: Writer):
        return w.mul(w.read("x"), w.read("p"))


class MeanOfSamples:
    text, of_samples = "(x * p)².mean", True

    @staticmethod
    def compute(w: Writer):
        return w.mean(w.mul(Term.scores(w), Term.scores(w)))


class Form:
    def __init__(self, seed: int):
        random = np.random.default_rng(seed)
        self.seed, self.samples, self.is_plain = seed, int(random.integers(2, 4)), seed % 2 == 0
        self.terms = [Term(random, self.is_plain) for _ in range(random.integers(1, 3))]
        if random.random() < 0.2:
            self.terms.append(MeanOfSamples)
        rows = self.samples * MICROBATCHES
        self.start = random.normal(size=(1, LENGTH)).astype(np.float32)
        lengths = random.integers(0, LENGTH + 1, size=(rows, 1))
        lengths[0] = LENGTH
        labels = random.integers(LENGTH, size=rows)
        kept = np.arange(rows) % 3 != 1
        self.inputs = {
            "x": random.normal(size=(rows, LENGTH)),
            "m": np.arange(LENGTH) < lengths,
            "s": np.where(random.random((rows, LENGTH)) < 0.3, -1, 1),
            "k": kept,
        }
        self.inputs = {name: value.astype(np.float32) for name, value in self.inputs.items()}
        self.inputs["t"] = np.where(kept, labels, IGNORED).astype(np.int64)

    def __str__(self) -> str:
        return f"{self.samples} per microbatch: " + " + ".join(term.text for term in self.terms)

    def model(self) -> bytes:
        w = Writer(self.samples)
        total = w.number(0.0)
        for term in self.terms:
            total = w.add(total, term.compute(w))
        w.nodes.append(wire.node("Identity", [total], ["loss"]))
        inputs = [wire.value(name, (self.samples, *value.shape[1:]), *([wire.INT64] if name == "t" else []))
                  for name, value in self.inputs.items()]
        return wire.model(w.nodes, inputs, [wire.value("loss", ())], [wire.tensor("p", (1, LENGTH), self.start.tobytes()), *w.constants])

    def gradient(self, term, rows: slice) -> np.ndarray:
        """The central difference in f64."""
        start, found = self.start.astype(np.float64), np.zeros(LENGTH)
        for i, sign in itertools.product(range(LENGTH), (1, -1)):
            moved = start.copy()
            moved[0, i] += sign * 1e-6
            values = {name: value[rows].astype(np.int64 if name == "t" else np.float64) for name, value in self.inputs.items()}
            found[i] += sign * float(term.compute(Writer(len(values["x"]), values | {"p": moved}))) / 2e-6
        return found

    def allowed(self, remarked: bool) -> list[np.ndarray]:
        choices = []
        for term in self.terms:
            parts = [slice(self.samples * j, self.samples * (j + 1)) for j in range(MICROBATCHES)]
            own = sum(self.gradient(term, part) for part in parts) / MICROBATCHES
            whole = self.gradient(term, slice(None))
            choices.append([own, whole] if remarked else [own if term.of_samples else whole])
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
    if remarked and form.is_plain:
        return made.stderr
    with np.errstate(all="ignore"):
        allowed = form.allowed(remarked)
        any_infinite = not all(np.isfinite(each).all() for each in form.allowed(True))
    finite = [each for each in allowed if np.isfinite(each).all()]
    if done.returncode != 0:                  # a loss that is not finite in a microbatch ends the run
        return "" if any_infinite else done.stderr
    found = read_safetensors(gradients)["p"].reshape(-1)
    off = [np.linalg.norm(found - each) / (np.linalg.norm(each) + 1e-6) for each in finite]
    return "" if min(off, default=0) < TOLERANCE else f"the gradient is off by {min(off):.2e}, {'with' if remarked else 'without'} a remark"


def test(bench: harness.Bench, options) -> None:
    failed, count = [], options.count or (3000 if options.all else 40)
    with ThreadPoolExecutor(2) as pool:
        first = harness.seed_of_commit() if options.seed is None else options.seed
        forms = [Form(seed) for seed in range(first, first + count)]
        for form, wrong in zip(forms, pool.map(lambda form: complaint(bench, form), forms)):
            if wrong:
                failed.append(form.seed)
                print(f"seed {form.seed}: {form}\n  {wrong}", flush=True)
    if failed:
        raise Failure(f"{len(failed)} of {count} forms fail; run loss_forms.py again with --count 1 and --seed {failed[0]}")


def arguments(parser):
    parser.add_argument("--seed", type=int, help="of the first form (default: from the commit)")
    parser.add_argument("--count", type=int, help="default: 40")
    parser.add_argument("--all", action="store_true", help="3000 forms")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

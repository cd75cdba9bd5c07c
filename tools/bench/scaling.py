#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how compile time and memory grow with the size of a model.

Generates models of n ops in the shapes in which graphs grow (chains, fans, ladders, wide joins,
many parameters, inputs or units), compiles each for growing n, and fits the exponent e of seconds =
c * n^e to the largest sizes. Every compiler pass is meant to take time proportional to its input,
so an exponent above the limit names a pass to mend; --passes shows which. Seconds are those of the
processor, so that a busy machine changes little. Those that a model of one op takes are subtracted,
since start-up would hide the growth of small models. Other work on the machine still slows a
compile, through caches that it shares, so a family over the limit is measured again, three times at
most, and the fastest compile of each size counts.

A compile that exceeds the time limit, crashes or is refused ends its family: larger sizes are not
tried, and the family counts as wrong. Sizes over the importer's budget of nodes are left out. The
models are written with tests/programs/onnx_wire.py, so no package is needed.
"""
import argparse
import math
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "programs"))
import onnx_wire as onnx  # noqa: E402

SIZES = [1000, 2000, 4000, 8000, 16000, 32000, 64000, 100000]
SAMPLE = [1000, 4000]
EXPONENT = 1.1           # of the whole sweep
SAMPLE_EXPONENT = 1.5    # of small models; a quadratic pass exceeds it
NOISE = 0.15             # seconds above the empty model, below which no exponent is fitted
ATTEMPTS = 4             # of a family whose exponent is over the limit
ROWS, WIDTH = 4, 8       # of every value
BUDGET = 1 << 18         # nodes that the importer accepts (frontends/onnx/Budgets.h)


class Graph:
    """A model under construction: x (ROWS x WIDTH) times the weight w, then what a family adds, then a mean of squares."""

    def __init__(self, width: int = WIDTH):
        self.constants = {}  # names by shape and value, since nodes are counted
        self.nodes, self.inputs, self.initializers, self.flags = [], [onnx.value("x", (ROWS, WIDTH))], [], []
        self.parameter("w", (WIDTH, width))
        self.base = self.op("MatMul", "x", "w")

    def parameter(self, name: str, shape: tuple) -> str:
        data = b"\0\0\0\x3c" * math.prod(shape)  # 2^-7
        self.initializers.append(onnx.tensor(name, shape, data))
        return name

    def constant(self, shape: tuple, value: float) -> str:
        """A tensor that no trainable pattern takes for a parameter: the output of a Constant node, one per value."""
        return self.constant_node(shape, onnx.FLOAT, struct.pack("<f", value) * math.prod(shape))

    def integers(self, values: list[int]) -> str:
        return self.constant_node((len(values),), onnx.INT64, struct.pack(f"<{len(values)}q", *values))

    def constant_node(self, shape: tuple, element_type: int, data: bytes) -> str:
        key = shape, element_type, data
        if key not in self.constants:
            self.constants[key] = f"c{len(self.nodes)}"
            body = b"".join(onnx.field(1, d) for d in shape) + onnx.field(2, element_type) + onnx.field(9, data)
            attribute = onnx.field(1, "value") + onnx.field(5, body) + onnx.field(20, 4)
            self.nodes.append(onnx.node("Constant", [], [self.constants[key]], attribute))
        return self.constants[key]

    def op(self, kind: str, *inputs: str, attributes: tuple = (), name: str = "") -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(onnx.node(kind, list(inputs), [output], *attributes, name=name))
        return output

    def scaled(self, value: str, i: int) -> str:
        """One of many different ops on a value, which no pass can merge. Three share a constant, to stay within BUDGET."""
        return self.op(("Mul", "Add", "Div")[i % 3], value, self.constant((), 1 + i // 3 / 1024))

    def added(self, values: list[str]) -> str:
        total = values[0]
        for value in values[1:]:
            total = self.op("Add", total, value)
        return total

    def model(self, result: str) -> bytes:
        self.op("Mul", result, result)
        self.nodes.append(onnx.node("ReduceMean", [f"v{len(self.nodes) - 1}"], ["loss"], onnx.integer("keepdims", 0)))
        return onnx.model(self.nodes, self.inputs, [onnx.value("loss", ())], self.initializers)


# ---- families: each adds n ops, or n of what it is named for, and returns the result ----

def chain(g: Graph, n: int) -> str:
    """n elementwise ops in a row"""
    value = g.base
    for i in range(n):
        value = g.op("Tanh" if i % 2 else "Sigmoid", value)
    return value


def products(g: Graph, n: int) -> str:
    """n matrix products in a row, with one weight"""
    g.parameter("square", (WIDTH, WIDTH))
    value = g.base
    for _ in range(n):
        value = g.op("MatMul", value, "square")
    return value


def fan(g: Graph, n: int) -> str:
    """one value read by n ops, added up one by one"""
    return g.added([g.scaled(g.base, i) for i in range(n)])


def wide_sum(g: Graph, n: int) -> str:
    """one value read by n ops, added up by nodes of up to 1000 inputs (the importer allows 1024)"""
    values = [g.scaled(g.base, i) for i in range(n)]
    return g.added([g.op("Sum", *values[i:i + 1000]) for i in range(0, n, 1000)])


def tree(g: Graph, n: int) -> str:
    """one value read by n ops, added up in pairs"""
    values = [g.scaled(g.base, i) for i in range(n)]
    while len(values) > 1:
        values = [g.added(values[i:i + 2]) for i in range(0, len(values), 2)]
    return values[0]


def ladder(g: Graph, n: int) -> str:
    """n elementwise residual blocks"""
    value = g.base
    for _ in range(n):
        value = g.op("Add", value, g.op("Tanh", value))
    return value


def blocks(g: Graph, n: int) -> str:
    """n residual blocks with a product"""
    g.parameter("square", (WIDTH, WIDTH))
    value = g.base
    for _ in range(n):
        value = g.op("Add", value, g.op("Tanh", g.op("MatMul", value, "square")))
    return value


def long_skips(g: Graph, n: int) -> str:
    """a chain of n ops whose values are all read again, in reverse order"""
    values = [g.base]
    for i in range(n):
        values.append(g.op("Tanh" if i % 2 else "Sigmoid", values[-1]))
    return g.added(values[::-1])


def concat(g: Graph, n: int) -> str:
    """one concat of n inputs, along columns"""
    return g.op("Concat", *[g.scaled(g.base, i) for i in range(n)], attributes=(onnx.integer("axis", 1),))


def stack(g: Graph, n: int) -> str:
    """one concat of n inputs, along rows"""
    return g.op("Concat", *[g.scaled(g.base, i) for i in range(n)], attributes=(onnx.integer("axis", 0),))


def slices(g: Graph, n: int) -> str:
    """n slices of one tensor, added up"""
    parts = []
    for i in range(n):
        part = g.op("Slice", g.base, g.integers([i]), g.integers([i + 1]), g.integers([1]))
        parts.append(g.op("Tanh", part))
    return g.added(parts)


def split(g: Graph, n: int) -> str:
    """one Split with n outputs, joined again"""
    names = [f"part{i}" for i in range(n)]
    g.nodes.append(onnx.node("Split", [g.base], names, onnx.integer("axis", 1), onnx.integer("num_outputs", n)))
    return g.op("Concat", *[g.op("Tanh", name) for name in names], attributes=(onnx.integer("axis", 1),))


def sequence(g: Graph, n: int) -> str:
    """one SplitToSequence, of which n ops read an element each"""
    g.nodes.append(onnx.node("SplitToSequence", [g.base], ["pieces"], onnx.integer("axis", 1)))
    places = [g.constant_node((), onnx.INT64, struct.pack("<q", i)) for i in range(n)]
    return g.op("Concat", *[g.op("SequenceAt", "pieces", place) for place in places], attributes=(onnx.integer("axis", 1),))


def parameters(g: Graph, n: int) -> str:
    """n biases, added one by one"""
    return g.added([g.base] + [g.parameter(f"bias{i}", (WIDTH,)) for i in range(n)])


def layers(g: Graph, n: int) -> str:
    """n linear layers in one unit"""
    value = g.base
    for i in range(n):
        value = g.op("Tanh", g.op("MatMul", value, g.parameter(f"weight{i}", (WIDTH, WIDTH))))
    return value


def units(g: Graph, n: int) -> str:
    """n linear layers, each a unit"""
    g.flags = [f"--unit-size={WIDTH * WIDTH}"]
    return layers(g, n)


def inputs(g: Graph, n: int) -> str:
    """n inputs of the model, added up"""
    names = [f"input{i}" for i in range(n)]
    g.inputs += [onnx.value(name, (ROWS, WIDTH)) for name in names]
    return g.added([g.base] + names)


def moves(g: Graph, n: int) -> str:
    """n transposes and reshapes in a row"""
    value, flat = g.base, g.integers([ROWS, WIDTH])
    for _ in range(n):
        value = g.op("Reshape", g.op("Transpose", value), flat)
    return value


def softmaxes(g: Graph, n: int) -> str:
    """n reductions along rows, in a row"""
    value = g.base
    for _ in range(n):
        value = g.op("Softmax", value, attributes=(onnx.integer("axis", -1),))
    return value


def lookups(g: Graph, n: int) -> str:
    """n lookups of rows of one table"""
    g.inputs.append(onnx.value("ids", (ROWS,), onnx.INT64))
    g.parameter("table", (16, WIDTH))
    values = [g.op("Gather", "table", g.op("Add", "ids", g.integers([0]))) for _ in range(n)]
    return g.added([g.base] + [g.scaled(value, i) for i, value in enumerate(values)])


def folded(g: Graph, n: int) -> str:
    """n ops on constants, which the importer computes"""
    value = g.constant((WIDTH,), 0.5)
    for i in range(n):
        value = g.op("Add" if i % 2 else "Mul", value, g.constant((WIDTH,), 0.5))
    return g.op("Add", g.base, value)


FAMILIES = {f.__name__: f for f in (chain, products, fan, wide_sum, tree, ladder, blocks, long_skips, concat, stack, slices,
                                    split, sequence, parameters, layers, units, inputs, moves, softmaxes, lookups, folded)}
WIDE = {"slices", "split", "sequence"}  # x * w has n columns


def build(family: str, n: int) -> tuple[bytes, list[str], int]:
    """Returns a model, the flags to compile it with, and how many nodes it has."""
    g = Graph(n if family in WIDE else WIDTH)
    model = g.model(FAMILIES[family](g, n))
    return model, g.flags, len(g.nodes)


# ---- compiling ----

@dataclass
class Compile:
    seconds: float
    peak_bytes: int
    fault: str = ""                                        # why it did not end well
    passes: dict[str, float] = field(default_factory=dict)  # seconds


def compile_model(fsdpc: Path, model: bytes, flags: list[str], phase: str, limit: float) -> Compile:
    with tempfile.TemporaryDirectory() as folder:
        path, log = Path(folder) / "model.onnx", Path(folder) / "log"
        path.write_bytes(model)
        command = [str(fsdpc), str(path), "-o", f"{folder}/out", "--quiet", "--timing=passes", "--cache=none", *flags]
        if phase != "executable":
            command.append(f"--compile-to={phase}")
        with open(log, "wb") as output:
            child = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=lambda: limit_cpu(limit))
            _, status, usage = os.wait4(child.pid, 0)
        seconds = usage.ru_utime + usage.ru_stime
        text = log.read_text(errors="replace")
        done = Compile(seconds, usage.ru_maxrss * 1024)
        done.passes = {name: float(s) for name, s in re.findall(r"^timing: (\S+) ([\d.]+) s$", text, re.M)}
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            done.fault = f"over {limit:g} s" if name in ("SIGXCPU", "SIGKILL") else name
        elif status:
            done.fault = next((line for line in text.splitlines() if line.startswith("error:")), f"exit code {status >> 8}")
        return done


def limit_cpu(seconds: float) -> None:
    """Time of the processor, so that a busy machine changes nothing; the children of a compile (the linker) count anew."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds) + 1))


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of the line through (log size, log seconds), by least squares."""
    xs, ys = [math.log(s) for s in sizes], [math.log(s) for s in seconds]
    mx, my = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)


def fit(sizes: list[int], seconds: list[float], floor: float) -> float | None:
    """The exponent over the last three sizes that took longer than noise, or None if they are too few."""
    points = [(n, s) for n, s in zip(sizes, seconds) if s > floor][-3:]
    return exponent([n for n, _ in points], [s for _, s in points]) if len(points) >= 2 else None


def shown(value: float | None) -> str:
    return "   -" if value is None else f"{value:4.2f}"


def sweep(options, family: str) -> tuple[list[Compile], str]:
    """Compiles the family at each size. Returns the compiles that ended well, and the fault of the first that did not."""
    results = []
    for n in options.sizes:
        model, flags, nodes = build(family, n)
        if nodes > BUDGET:
            print(f"  n {n:7}  left out: {nodes} nodes, and the importer accepts {BUDGET}")
            break
        done = compile_model(options.fsdpc, model, flags + options.flag, options.to, options.limit)
        print(f"  n {n:7}  {done.seconds:8.2f} s  {done.peak_bytes / 2**20:8.0f} MiB  {done.fault}", flush=True)
        if done.fault:
            if options.passes and done.passes:
                print(f"    passes that ended: {' '.join(done.passes)}")
            return results, f" at n = {n}: {done.fault}"
        results.append(done)
    return results, ""


def measure(options, family: str, idle: float) -> bool:
    """Prints the family's table. Returns True if it stays under the limit."""
    print(f"{family}: {FAMILIES[family].__doc__}", flush=True)
    results, total = [], None
    for attempt in range(ATTEMPTS):
        again, fault = sweep(options, family)
        results = [min(pair, key=lambda done: done.seconds) for pair in zip(results, again)] if results else again
        sizes = options.sizes[:len(results)]
        total = fit(sizes, [max(done.seconds - idle, 1e-3) for done in results], NOISE)
        ok = not fault and (total is None or total <= options.exponent)
        if ok or fault:
            break
        if attempt + 1 < ATTEMPTS:
            print(f"  exponent {shown(total)}; measuring again", flush=True)
    if options.passes and results:
        for name, seconds in sorted(results[-1].passes.items(), key=lambda item: -item[1])[:options.passes]:
            growth = fit(sizes, [done.passes.get(name, 0) for done in results], NOISE / 10)
            print(f"    {name:32} {seconds:8.2f} s  exponent {shown(growth)}")
    print(f"  exponent {shown(total)}  {'ok' if ok else 'WRONG'}{fault}", flush=True)
    options.summary.append((family, sizes[-1] if sizes else 0, results[-1].seconds if results else 0,
                            results[-1].peak_bytes / 2**20 if results else 0, total, fault))
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="what to measure (default: all): " + ", ".join(FAMILIES))
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build folder (default: build)")
    parser.add_argument("--fsdpc", type=Path, help="the compiler (default: BUILD/bin/fsdpc)")
    parser.add_argument("--sizes", type=lambda text: [int(n) for n in text.split(",")], help="sizes n (default: 1000 to 100000)")
    parser.add_argument("--to", default="memory", metavar="PHASE", help="the phase to compile to, or executable (default: memory)")
    parser.add_argument("--limit", type=float, default=120, metavar="S", help="most processor seconds of a compile (default: 120)")
    parser.add_argument("--exponent", type=float, help=f"largest exponent (default: {EXPONENT})")
    parser.add_argument("--passes", type=int, default=0, metavar="K", help="also shows the K slowest passes, with their exponents")
    parser.add_argument("--flag", action="append", default=[], help="a flag for the compiler; may be repeated")
    parser.add_argument("--sample", action="store_true",
                        help=f"small sizes ({SAMPLE[0]} to {SAMPLE[-1]}), with an exponent of at most {SAMPLE_EXPONENT}")
    options = parser.parse_args()
    unknown = set(options.families) - set(FAMILIES)
    if unknown:
        parser.error(f"unknown family '{unknown.pop()}'; known: {', '.join(FAMILIES)}")
    options.fsdpc = options.fsdpc or options.build / "bin" / "fsdpc"
    options.sizes = options.sizes or (SAMPLE if options.sample else SIZES)
    options.exponent = options.exponent or (SAMPLE_EXPONENT if options.sample else EXPONENT)
    options.summary = []

    idle = compile_model(options.fsdpc, *build("chain", 1)[:2], options.to, options.limit)
    if idle.fault:
        print(f"WRONG: the model of one op does not compile: {idle.fault}")
        return 1
    wrong = [f for f in options.families or FAMILIES if not measure(options, f, idle.seconds)]
    print(f"\n{'family':12} {'largest n':>9} {'seconds':>8} {'MiB':>7} exponent")
    for family, n, seconds, mib, total, fault in options.summary:
        print(f"{family:12} {n:9} {seconds:8.2f} {mib:7.0f} {shown(total)}{fault}")
    print(f"wrong: {', '.join(wrong)}" if wrong else f"ok: all exponents are at most {options.exponent:g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

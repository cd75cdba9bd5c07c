#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles and trains random graphs and compares them with ONNX's definitions and with one another.

usage: graphs.py --build DIR [--seed S] [--count N] [--keep DIR]

For each of the seeds S, S+1, …, a graph of graph_generator.py is trained for one step:
  loss      on two ranks and on one, on the host and on the emulated GPU: as in f64, to within what rounding explains
  gradient  along a random direction of all parameters: as the central difference of the loss in f64
  bits      of the other strategies, prefetch and recompute settings: those of the first program on as many ranks
A graph that fails is made as small as it will go while it still fails, and is printed with the command that repeats it.
"""
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from numerics import graph_ops_elementwise  # noqa: F401  (each registers its ops)
from numerics import graph_ops_library  # noqa: F401
from numerics import graph_ops_select  # noqa: F401
from numerics import graph_ops_shape  # noqa: F401
import harness
import numpy as np
from compare import read_safetensors
from numerics.graph_generator import MICROBATCHES, generate
from harness import Failure

FIRST = "zero3"
# The programs of a graph: a name and the flags of its compile. All but the emulated one have the same bits.
PROGRAMS = {
    FIRST: [],
    "ddp": ["--strategy=ddp", "--prefetch=none", "--recompute=none"],
    "zero2": ["--strategy=zero2", "--prefetch=post", "--recompute=units"],
    "zero1": ["--strategy=zero1", "--prefetch=pre", "--reduce=step"],
    "emulated": ["--target=cuda-emulation"],
}
EPSILON = 1e-6                                # of the central difference, relative to parameters of size 1
ROUNDING = 1e-6                               # some 16 units in the last place of f32, per op
NOISES = 4
MINIMISING = 60                               # seconds at most for a graph that fails


class Graphs:
    def __init__(self, bench):
        self.bench = bench

    def run(self, graph, names: list[str]) -> dict:
        """Trains the graph with each of the programs. Returns name -> (losses, first gradients, bits)."""
        folder = self.bench.path(f"graph-{graph.seed}")
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes(graph.model())
        for name, values in graph.inputs.items():
            np.save(folder / f"{name}.npy", np.concatenate(values))
        found = {}
        for name in names:
            program = self.bench.compile(folder / "model.onnx", f"graph-{graph.seed}/{name}", "-q", "--optimizer=sgd", "--lr=1e-3",
                                         *PROGRAMS[name])
            # An input that does not change the loss is none of the program's.
            read = harness.run([program, "--info"]).stdout.split("\ninputs\n")[1].split("\n\n")[0].split()
            data = [word for name in graph.inputs if name in read for word in ("--data", f"{name}={folder}/{name}.npy")]
            for ranks in (2, 1) if name == FIRST else (2,):
                out = [folder / f"{name}-{ranks}.{suffix}" for suffix in ("jsonl", "gradients", "safetensors")]
                harness.run([program, "--ranks", ranks, *data, "--seed", 1, "--steps", 1, "--accumulate", MICROBATCHES // ranks,
                             "--threads", 1, "--log", out[0], "--save-gradients", out[1], "--save", out[2]])
                training = harness.Training(*out)
                found[f"{name} on {ranks}"] = (training.losses()[0], read_safetensors(out[1]), training.bits())
        shutil.rmtree(folder)
        return found


def derivative(graph, direction: dict, noise: float = 0, seed: int = 0) -> float:
    ends = [graph.evaluate({name: graph.parameters[name] + sign * EPSILON * d for name, d in direction.items()}, noise, seed)
            for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * EPSILON)


def explained(exact: float, noisy: list[float], least: float) -> float:
    """Returns how far a right result may be from the exact one."""
    return 4 * max(abs(n - exact) for n in noisy) + least


def problems(graph, graphs: Graphs, names: list[str]) -> list[str]:
    """Returns what is wrong with the graph's programs, a line each."""
    try:
        found = graphs.run(graph, names)
    except Failure as failure:
        return [str(failure)]
    random = np.random.default_rng(graph.seed)
    direction = {name: random.standard_normal(p.shape) for name, p in graph.trained().items()}
    loss, slope = graph.evaluate(), derivative(graph, direction)
    loss_limit = explained(loss, [graph.evaluate(None, ROUNDING, i + 1) for i in range(NOISES)], 1e-6)
    # A central difference in f64 is itself exact to some 1e-9; sums of many terms of both signs need a least limit.
    size = sum(float(np.abs(d).sum()) for d in direction.values())
    slope_limit = explained(slope, [derivative(graph, direction, ROUNDING, i + 1) for i in range(NOISES)], 2e-6 * (1 + size))
    lines = []
    for name, (got, gradients, bits) in found.items():
        if not abs(got - loss) <= loss_limit:
            lines.append(f"{name}: loss {got!r}, expected {loss!r} ± {loss_limit:.1e}")
        along = sum(float((gradients[p].astype(float) * d).sum()) for p, d in direction.items() if p in gradients)
        if not abs(along - slope) <= slope_limit:
            lines.append(f"{name}: derivative {along!r}, expected {slope!r} ± {slope_limit:.1e}")
        if not name.startswith("emulated") and name.endswith("on 2") and bits != found[f"{FIRST} on 2"][2]:
            lines.append(f"{name}: other bits than {FIRST}, losses {got!r} and {found[f'{FIRST} on 2'][0]!r}")
    return lines


def kind(lines: list[str]) -> str:
    """Returns what must stay the same while a graph is made smaller: the first complaint up to its numbers and names."""
    if "exit code" in lines[0]:
        error = next((line for line in lines[0].splitlines() if line.startswith("error:")), lines[0])
        return re.sub(r"'[^']*'|\d+", "", error)
    return " ".join(lines[0].split()[:4])


def smaller(graph):
    """Yields simpler graphs: the loss of one tensor alone, or a tensor turned into a parameter."""
    reals = [n.output for n in graph.nodes if graph.tensors[n.output].value.dtype == np.float64]
    for name in reals[:-4]:
        yield graph.only(name)
    for name in reversed(reals[:-4]):
        yield graph.cut(name)


def minimise(graph, graphs: Graphs, names: list[str], lines: list[str]):
    end = time.monotonic() + MINIMISING
    shrunk = True
    while shrunk:
        shrunk = False
        for candidate in smaller(graph):
            if time.monotonic() > end:
                return graph, lines
            if candidate is None or len(candidate.nodes) >= len(graph.nodes):
                continue
            now = problems(candidate, graphs, names)
            if now and kind(now) == kind(lines):
                graph, lines, shrunk = candidate, now, True
                break
    return graph, lines


def test(bench, options):
    graphs, failed = Graphs(bench), []
    others = [name for name in PROGRAMS if name != FIRST]
    first = harness.seed_of_commit() if options.seed is None else options.seed

    def attempt(seed):
        graph = generate(seed)
        names = [FIRST, *(others if options.all else [others[seed % len(others)]])]
        return graph, names, problems(graph, graphs, names)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for done, (graph, names, lines) in enumerate(pool.map(attempt, range(first, first + options.count)), 1):
            if lines:
                failed.append(graph.seed)
                # At once: making the graph smaller takes time, which a test that hangs does not have.
                print(f"seed {graph.seed} fails:", *lines, sep="\n", flush=True)
                graph, lines = minimise(graph, graphs, names, lines)
                print(f"seed {graph.seed}, {len(graph.nodes)} nodes:", *lines, graph.text(), sep="\n", flush=True)
            if done % 100 == 0 or done == options.count:
                print(f"{done} graphs from seed {first}: {len(failed)} fail", flush=True)
    if failed:
        raise Failure(f"run graphs.py again with --count 1 and --seed {' or '.join(map(str, failed))}")


def arguments(parser):
    parser.add_argument("--seed", type=int, help="of the first graph (default: from the commit)")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--all", action="store_true", help="compile each graph in all ways (default: two of them)")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

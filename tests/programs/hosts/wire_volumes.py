# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares what the log says of bytes between nodes with what the network of two hosts (cluster.py) has carried.

Two ranks on each of two hosts train with zero3, under mpirun and over TCP, with both values of --reduce-order. The bytes of a step on the
wire are the difference of runs of different length. Each shard enters a host once per gather, so a step takes the parameters' bytes for
its two gathers, and once more for the gradients, or half of that if hosts are summed first. Exits with 77 where namespaces cannot be made.
"""
import itertools
import json
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "sharding")]
import harness
import onnx_wire as onnx
from cluster import AGENT, Cluster, why_not
from harness import Failure
from volumes import scope

SKIPPED = 77
LAYERS, WIDTH, ROWS, RANKS = 4, 1024, 8, 4
FEW, MANY = 2, 12                             # steps of the two runs
# Times the parameters' bytes, by --reduce-order: what a host receives at most.
MOST = {"ranks": 2.0, "fast": 1.5}
HEADERS = 1.02                                # of packets, with which the wire may have more than the log says


def model() -> bytes:
    """Returns the model loss = mean(y^2), y = x · w_0 · w_1 …"""
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS):
        weight = np.eye(WIDTH, dtype="<f4")
        weights.append(onnx.tensor(f"w_{i}", weight.shape, weight.tobytes()))
        nodes.append(onnx.node("MatMul", [last, f"w_{i}"], [f"y_{i}"]) + scope(i))
        last = f"y_{i}"
    nodes += [onnx.node("Mul", [last, last], ["square"]), onnx.node("ReduceMean", ["square"], ["loss"], onnx.integer("keepdims", 0))]
    return onnx.model(nodes, [onnx.value("x", (ROWS, WIDTH))], [onnx.value("loss", ())], weights)


def received(cluster: Cluster, host: int) -> int:
    """Returns the bytes that a host's interface has received."""
    shown = json.loads(harness.run(cluster.words(host, "ip", "-s", "-j", "link", "show", "eth0")).stdout)
    return shown[0]["stats64"]["rx"]["bytes"]


def run(bench, cluster: Cluster, program, launcher: str, order: str, steps: int) -> tuple[int, list]:
    """Trains. Returns the bytes that the busier host has received, and the steps of the log."""
    before = [received(cluster, host) for host in (0, 1)]
    log = bench.path(f"{launcher}-{order}-{steps}.jsonl")
    words = [bench.build / "bin" / "fsdpc", "run", program, "--hosts", "h0:2,h1:2", "--launcher", launcher, "--rsh", AGENT,
             "--data", f"x={bench.path('x.npy')}", "--steps", steps, "--threads", 1, "--log", log, "--reduce-order", order]
    harness.run(cluster.words(0, *words))
    lines = map(json.loads, log.read_text().splitlines())
    return max(received(cluster, host) - was for host, was in zip((0, 1), before)), [line for line in lines if "sent_bytes" in line]


def test(bench, options) -> None:
    bench.path("model.onnx").write_bytes(model())
    np.save(bench.path("x.npy"), np.ones((ROWS * RANKS, WIDTH), "<f4"))
    program = bench.compile(bench.path("model.onnx"), "train", "--unit-class=Layer")
    parameters = LAYERS * WIDTH * WIDTH * 4
    wrong = []
    with Cluster(bench.folder, 2, [bench.build, harness.PROGRAMS.parents[1]]) as cluster:
        for launcher, order in itertools.product(("mpirun", "ssh"), MOST):
            (few, _), (many, steps) = (run(bench, cluster, program, launcher, order, count) for count in (FEW, MANY))
            wire = (many - few) / (MANY - FEW)
            # Of a rank on the mean; two ranks of a host send to the other one.
            said = 2 * steps[-1]["sent_bytes"]["between_nodes"]
            name = f"{launcher}, --reduce-order={order}"
            print(f"{name}: {wire / 1e6:.2f} MB per step on the wire, {said / 1e6:.2f} MB by the log, parameters {parameters / 1e6:.2f} MB",
                  flush=True)
            if not said <= wire <= HEADERS * said:
                wrong.append(f"{name}: a host receives {wire:.0f} bytes per step, and the log says {said:.0f}")
            if said > MOST[order] * parameters:
                wrong.append(f"{name}: {said:.0f} bytes per step between hosts are more than {MOST[order] * parameters:.0f}")
    if wrong:
        raise Failure("; ".join(wrong))


if __name__ == "__main__":
    if reason := why_not():
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    sys.exit(harness.main(__doc__, test))

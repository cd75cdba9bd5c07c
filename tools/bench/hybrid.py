#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times hybrid against zero3 with a slow link between two virtual nodes of two ranks, and compares with the cost model.

usage: hybrid.py --build DIR [--rate 0.005] [--steps 5] [--limit 0.15]

FSDPC_CROSS_NODE_GBS slows what crosses nodes (runtime/comm/slow_link.h). The cost model is told of the same link by
--plan-ranks-per-node and --plan-cross-node-gbs, and predicts the step in the compiler's summary. The fastest step counts: other
processes only add to the time. Exits with code 1 if the two speed-ups differ by more than the limit.
"""
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "programs"))
import harness
import onnx_wire as onnx

RANKS, NODE, LAYERS, WIDTH, SAMPLES = 4, 2, 4, 512, 4
STRATEGIES = ("zero3", "hybrid")


def model() -> bytes:
    """Returns loss = mean(y^2), y = x · w_0 · w_1 …, with a unit for each product."""
    def scope(layer):
        return b"".join(onnx.field(9, onnx.field(1, f"pkg.torch.onnx.{key}") + onnx.field(2, value)) for key, value in
                        (("name_scopes", f"['', 'layers.{layer}', 'op']"), ("class_hierarchy", "['Model', 'Layer', 'aten.op']")))

    weight = np.eye(WIDTH, dtype="<f4")
    weights = [onnx.tensor(f"w_{i}", weight.shape, weight.tobytes()) for i in range(LAYERS)]
    nodes = [onnx.node("MatMul", ["x" if i == 0 else f"y_{i - 1}", f"w_{i}"], [f"y_{i}"]) + scope(i) for i in range(LAYERS)]
    nodes += [onnx.node("Mul", [f"y_{LAYERS - 1}"] * 2, ["square"]),
              onnx.node("ReduceMean", ["square"], ["loss"], onnx.integer("keepdims", 0))]
    return onnx.model(nodes, [onnx.value("x", (SAMPLES, WIDTH))], [onnx.value("loss", ())], weights)


def predicted_ms(summary: str) -> float:
    """Returns the step that the compiler's summary predicts on RANKS ranks."""
    rows = {words[0]: words[1:] for words in map(str.split, summary[summary.index("predicted step in ms"):].splitlines()) if words}
    return float(rows["step"][rows["ranks"].index(str(RANKS))])


def test(bench, options):
    path, data = bench.path("layers.onnx"), bench.path("x.npy")
    path.write_bytes(model())
    np.save(data, np.ones((RANKS * SAMPLES, WIDTH), "<f4"))
    expected, measured = {}, {name: [] for name in STRATEGIES}
    for name in STRATEGIES:
        told = harness.run([bench.build / "bin" / "fsdpc", path, "-v", "-o", bench.path(name), f"--strategy={name}", "--unit-class=Layer",
                            f"--plan-ranks={RANKS}", f"--plan-ranks-per-node={NODE}", f"--plan-cross-node-gbs={options.rate}"])
        expected[name] = predicted_ms(told.stdout)
    for name in STRATEGIES * 2:
        log = bench.path("log.jsonl")
        flags = ["--shard-group", NODE] if name == "hybrid" else []
        harness.run([*harness.mpirun(RANKS), "-x", "FSDPC_CROSS_NODE_GBS", bench.path(name), "--ranks-per-node", NODE, *flags,
                     f"--data=x={data}", "--threads", 1, "--steps", options.steps + 1, "--log", log],
                    env={**os.environ, "FSDPC_CROSS_NODE_GBS": str(options.rate)})
        measured[name] += [line["step_ms"] for line in harness.Training(log, log, log).lines()[1:]]
    print("| strategy | ms per step, measured | predicted |\n|---|---|---|")
    for name in STRATEGIES:
        print(f"| {name} | {min(measured[name]):.1f} | {expected[name]:.1f} |")
    found = min(measured["zero3"]) / min(measured["hybrid"])
    wanted = expected["zero3"] / expected["hybrid"]
    print(f"\nhybrid is {found:.2f} times as fast as zero3; the cost model predicts {wanted:.2f} ({found / wanted - 1:+.1%})")
    if not (found > 1 and abs(found / wanted - 1) <= options.limit):
        raise harness.Failure(f"the speed-up differs from the prediction by more than {options.limit:.0%}")


def arguments(parser):
    parser.add_argument("--rate", type=float, default=0.005, help="10^9 bytes per second between nodes (default: 0.005)")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of each run (default: 5)")
    parser.add_argument("--limit", type=float, default=0.15, help="largest difference of the speed-ups (default: 0.15)")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

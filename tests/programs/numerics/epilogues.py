#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a GPT whose products compute GELU, its gradient, gradients of biases and residual sums (--math=fast) on the emulated GPU.

usage: epilogues.py --build DIR

The model is the benchmark's GPT, small and with random weights, in bf16.

- The products have these epilogues, and no kernel computes GELU; --math=exact has none of them.
- Losses and norms of gradients are within 2e-3 and 1e-2 of the host's and of --math=exact, as those of bf16 are in general.
- In f16, with a scaled loss, the epilogues are the same, and losses and norms as near to the host's.
- With --deterministic, no strategy, schedule, choice of what is recomputed, number of threads, and no second run changes a bit.
- If the library refuses epilogues, kernels finish the products, and the log says so.
"""
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import full_size_models as models
import harness
from harness import Failure

SIZES = models.Gpt(layers=3, width=64, heads=4, length=32, vocabulary=96, batch=2)
COMMON = ["--unit-class=*Block", "--lr=3e-3"]
BF16 = ["--param-dtype=bf16", "--reduce-dtype=bf16", *COMMON]
F16 = ["--param-dtype=f16", "--loss-scale=1024", *COMMON]
LOSS, NORM = 2e-3, 1e-2                       # relative
# GELU, its gradient and the bias gradients of q, k, v and up; two residual sums.
EPILOGUES = {"gelu": 1, "gelu_grad": 1, "sum_rhs": 2, "none": 2}
PROGRAMS = [["--strategy=zero2"], ["--strategy=ddp", "--prefetch=none"], ["--recompute=none"], ["--recompute=units"],
            ["--recompute=units", "--strategy=zero1"], ["--prefetch=post", "--poison"]]


def write_model(bench) -> harness.Fixture:
    generator = np.random.default_rng(0)
    path = models.write(bench.path("gpt.onnx"), SIZES)
    weights = path.with_suffix(".weights")
    generator.normal(0, 0.1, weights.stat().st_size // 4).astype(np.float32).tofile(weights)
    data = []
    for name in ("ids", "labels"):
        np.save(bench.path(f"{name}.npy"), generator.integers(0, SIZES.vocabulary, (16, SIZES.length)))
        data += ["--data", f"{name}={bench.path(name)}.npy"]
    return harness.Fixture("gpt", path, BF16, data, microbatches=4, steps=4, seed=1)


def check_ir(bench, folder) -> list[str]:
    """Each block has its epilogues in @microbatch, and no kernel is left for GELU."""
    dump = harness.read_dump(folder, "verify-kernels")
    body = dump[dump.index("func.func @microbatch"):]
    body = body[:body.index("\n  }")]
    problems = []
    for name, count in EPILOGUES.items():
        found = len(re.findall(rf"nn\.fused_matmul {name} ", body))
        if found != count * SIZES.layers:
            problems.append(f"{found} products with the epilogue '{name}', not {count * SIZES.layers}")
    if re.search(r"nn\.launch @gelu", dump):
        problems.append("a kernel computes GELU")
    return problems


def compare(name: str, run, other) -> list[str]:
    worst = [max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(run.lines(), other.lines())) for key in ("loss", "grad_norm")]
    print(f"{name}: losses within {worst[0]:.1e}, norms within {worst[1]:.1e}", flush=True)
    return [] if worst[0] <= LOSS and worst[1] <= NORM else [f"{name}: losses differ by {worst[0]:.1e}, norms by {worst[1]:.1e}"]


def check_bits(bench, fixture, expected) -> list[str]:
    problems = []
    for flags in PROGRAMS:
        program = bench.compile_fixture(fixture, "-".join(flags), "--target=cuda-emulation", *flags)
        same = bench.train(program, fixture, 2, "--deterministic").bits() == expected
        print(f"{'same     ' if same else 'DIFFERENT'} {' '.join(flags)}", flush=True)
        problems += [] if same else [f"bits differ with {' '.join(flags)}"]
    return problems


def check_f16(bench, fixture) -> list[str]:
    fixture = replace(fixture, compiling=F16)
    fast = bench.compile_fixture(fixture, "f16", "--target=cuda-emulation", "--math=fast", f"--dump-ir={bench.path('f16-ir')}")
    host = bench.compile_fixture(fixture, "f16-host")
    trained = bench.train(fast, fixture, 2, "--deterministic")
    return check_ir(bench, bench.path("f16-ir")) + compare("f16 and host", trained, bench.train(host, fixture, 2, local=True))


def test(bench, options):
    fixture = write_model(bench)
    fast = bench.compile_fixture(fixture, "fast", "--target=cuda-emulation", f"--dump-ir={bench.path('ir')}")
    exact = bench.compile_fixture(fixture, "exact", "--target=cuda-emulation", "--math=exact", f"--dump-ir={bench.path('exact-ir')}")
    host = bench.compile_fixture(fixture, "host")
    problems = check_ir(bench, bench.path("ir"))
    if "fused_matmul" in harness.read_dump(bench.path("exact-ir"), "verify-kernels"):
        problems.append("--math=exact has epilogues")
    trained = bench.train(fast, fixture, 2, "--deterministic")
    problems += compare("fast and host", trained, bench.train(host, fixture, 2, local=True))
    problems += compare("fast and exact", trained, bench.train(exact, fixture, 2, "--deterministic"))
    again = bench.train(fast, fixture, 2, "--deterministic", local=True, threads=2, environment={"FSDPC_EMULATION_SEED": "7"})
    if again.bits() != trained.bits():
        problems.append("bits differ in a second run, with threads and other delays")
    problems += check_bits(bench, fixture, trained.bits())
    refused = bench.train(fast, fixture, 2, "--deterministic", environment={"FSDPC_EMULATION_FAULT": "refuse-epilogues"})
    problems += compare("refused and fast", refused, trained)
    if "finished by a separate kernel: a fault refuses epilogues" not in str(refused.header()):
        problems.append(f"the log does not say that epilogues are refused: {refused.header()}")
    problems += check_f16(bench, fixture)
    if problems:
        raise Failure("; ".join(problems))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

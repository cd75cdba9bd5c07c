#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks programs for one microbatch per step (--max-accumulate=1), and the bytes that each strategy takes.

usage: max_accumulate.py --build DIR

Losses, norms, gradients and parameters have the bits of the program without the flag, and the program refuses more microbatches. So do
those of programs for one rank besides (--max-ranks=1), whose gradients stay as they are computed, and take the bytes of their type.
The plan of a model without weights is compared with ZeRO's formula (Rajbhandari et al., 2020, figure 1).
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import onnx_wire as onnx
from harness import Failure
from sharding.volumes import scope

FLAG = "--max-accumulate=1"
BF16 = ["--param-dtype=bf16", "--reduce-dtype=bf16"]
EMULATION = ["--target=cuda-emulation"]
STRATEGIES = [[f"--strategy={name}"] for name in ("zero3", "zero2", "zero1", "hybrid", "ddp")]
DDP = STRATEGIES[-1]
# Flags that decide bits, and programs that must have those of zero3 with these flags alone. Optimizers read the gradient that is
# gathered in the arena beside sums over whole parameters, factors and matrices.
CASES = [
    ([], [*STRATEGIES, [*DDP, "--poison"], [*DDP, "--layout-size=5000"], ["--layout-size=5000"], ["--ignored=weight$"]]),
    (["--optimizer=lamb"], [DDP]), (["--optimizer=adafactor"], [DDP]),
    (["--optimizer=muon", "--group=bias|ln_|wte|wpe|lm_head: optimizer=adamw lr=1e-3"], [DDP]),
    (BF16, [DDP]), (EMULATION, [DDP])]
ALONE = [FLAG, "--max-ranks=1"]
ZERO2 = ["--strategy=zero2"]
CASES_ALONE = [
    ([], [["--strategy=zero1"], [*ZERO2, "--poison"]]),
    (BF16, [ZERO2, ["--strategy=hybrid"], ["--keep-f32=*Norm"]]),
    (["--param-dtype=f16", "--loss-scale=1024"], [ZERO2]),
    ([*BF16, *EMULATION], [ZERO2]),
    ([*BF16, *EMULATION, "--offload=optimizer"], [["--strategy=zero3"]])]

RANKS, LAYERS, WIDTH = 64, 64, 2048
PARAMETERS = LAYERS * WIDTH * WIDTH
# Bytes per parameter: 2 for the bf16 copy, 2 for its gradient, 12 for the f32 master and Adam's moments.
FORMULA = {"ddp": 16, "zero1": 4 + 12 / RANKS, "zero2": 2 + 14 / RANKS, "zero3": 16 / RANKS}
LIMIT = 0.03


def weightless() -> bytes:
    """Returns a model whose layers are products with matrices that have no values."""
    kind = onnx.field(1, "pkg.torch.export.graph_signature.InputSpec.kind") + onnx.field(2, "PARAMETER")
    inputs, nodes = [onnx.value("y_0", (1, WIDTH))], []
    for i in range(LAYERS):
        inputs.append(onnx.value(f"w_{i}", (WIDTH, WIDTH)) + onnx.field(4, kind))
        nodes.append(onnx.node("MatMul", [f"y_{i}", f"w_{i}"], [f"y_{i + 1}"]) + scope(i))
    nodes.append(onnx.node("ReduceMean", [f"y_{LAYERS}"], ["loss"], onnx.integer("keepdims", 0)))
    return onnx.model(nodes, inputs, [onnx.value("loss", ())], [])


def planned(bench, model, strategy: str, ranks: int = RANKS) -> tuple[dict[str, float], float]:
    """Returns the planned bytes per parameter of parameters, gradients and optimizer states, and of the gradients in the arena."""
    program = bench.path(f"{strategy}.{ranks}")
    text = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, *BF16, FLAG, f"--strategy={strategy}", "--unit-class=Layer",
                        "--init-rule=*=normal(0,0.02)", "--prefetch=none", f"--plan-ranks={ranks}", f"--max-ranks={ranks}"]).stdout
    table = [line.split() for line in text[text.index("memory per rank in MiB"):].splitlines()[1:]]
    column = table[0].index(str(ranks))
    states = {row[0]: float(row[column]) * 2**20 / PARAMETERS for row in table if row and row[0] in ("parameters", "gradients", "optimizer")}
    return states, json.loads(harness.run([program, "--manifest"]).stdout)["arenaGradients"] / PARAMETERS


def check_plan(bench) -> list[str]:
    model, wrong = bench.path("weightless.onnx"), []
    model.write_bytes(weightless())
    for strategy, formula in FORMULA.items():
        kinds, arena = planned(bench, model, strategy)
        states = sum(kinds.values())
        # The formula has all bf16 gradients under ddp and zero1, and none that wait for their reduction under zero2 and zero3.
        in_flight = 0 if strategy in ("ddp", "zero1") else arena
        states -= in_flight
        print(f"       {strategy}: {states:.3f} bytes per parameter, {formula:.3f} by ZeRO's formula, and {in_flight:.3f} in flight", flush=True)
        if abs(states / formula - 1) > LIMIT:
            wrong.append(f"{strategy}: {states:.3f} bytes per parameter instead of {formula:.3f}")
        if in_flight > 2.01 / LAYERS:
            wrong.append(f"{strategy}: gradients of more than one unit in flight, {in_flight:.3f} bytes per parameter")
    kinds, arena = planned(bench, model, "zero2", 1)
    print(f"       one rank: {kinds['gradients']:.3f} bytes per parameter of gradients, {arena:.3f} of them in the arena", flush=True)
    if abs(kinds["gradients"] / 2 - 1) > LIMIT or arena:
        wrong.append(f"gradients of one rank take {kinds['gradients']:.3f} bytes per parameter instead of 2")
    return wrong


def run_of(bench, fixture, ranks: int, *flags: str):
    """Trains with the fixture's flags, of which `flags` may override some."""
    given = {flag.split("=")[0] for flag in flags}
    kept = [flag for flag in fixture.compiling if flag.split("=")[0] not in given]
    deterministic = ["--deterministic"] if ranks == 1 and EMULATION[0] in flags else []
    return bench.train(bench.compile(fixture.model, "program", *kept, *flags), fixture, ranks, *deterministic, steps=2, accumulate=1, local=True)


def check_bits(bench, fixture) -> list[str]:
    wrong = []
    for ranks, one, (flags, programs) in [*((2, [FLAG], case) for case in CASES), *((1, ALONE, case) for case in CASES_ALONE)]:
        def bits(*more):
            return run_of(bench, fixture, ranks, *flags, *more).bits()
        expected = {}
        for program in programs:
            # Modules that stay in f32 are another computation.
            kept = tuple(flag for flag in program if flag.startswith("--keep-f32"))
            if kept not in expected:
                expected[kept] = bits(*kept)
            same, name = bits(*program, *one) == expected[kept], " ".join([*flags, *program, *one])
            print(f"{'same     ' if same else 'DIFFERENT'} {name}", flush=True)
            wrong += [] if same else [f"bits differ: {name}"]
    return wrong


def check_refusal(bench, fixture) -> None:
    program = bench.compile_fixture(fixture, "one", "--strategy=ddp", FLAG)
    done = harness.run([program, *fixture.data, "--steps", 1, "--accumulate", 2], 2)
    if done.stderr.count("\n") != 1 or "'2' exceeds the maximum of 1" not in done.stderr or "--max-accumulate=2" not in done.stderr:
        raise Failure(f"two microbatches are refused by other words:\n{done.stderr}")
    done = harness.run([bench.build / "bin" / "fsdpc", "simulate", fixture.model, *fixture.compiling, FLAG, "--accumulate=2"], 1)
    if "'--accumulate' is 2, but '--max-accumulate' of the plan is 1" not in done.stderr:
        raise Failure(f"a simulation of two microbatches is refused by other words:\n{done.stderr}")
    if "at most 1 per rank and step" not in harness.info(program).get("microbatches", ""):
        raise Failure("--info does not show --max-accumulate=1")


def test(bench, options):
    fixture = harness.fixture("gpt")
    check_refusal(bench, fixture)
    if wrong := check_plan(bench) + check_bits(bench, fixture):
        raise Failure("; ".join(wrong))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

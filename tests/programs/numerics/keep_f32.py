#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks modules that stay f32 in a program of bf16 or f16 (--keep-f32).

usage: keep_f32.py --build DIR [--steps 50] [--target cuda-emulation]

  norms and head  a GPT in bf16 whose norms and head are f32: the mean loss of the last ten steps is within half_floats.py's limit
                  of f32's, the first gradients of norms and head have more bits than sums of bf16, and the bits are the same under all strategies
                  on one to four ranks
  all             '*' in bf16 and in f16: the losses, gradients and weights are those of f32, bit for bit
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
import numpy as np
from compare import read_safetensors
from harness import Failure

LIMIT = 2e-3
KEPT = ("--param-dtype=bf16", "--keep-f32=*Norm", "--keep-f32=lm_head")
# strategy and other flags of the compile -> ranks
PROGRAMS = {("zero3",): (1, 4), ("zero3", "--reshard-to=2"): (4,), ("zero2",): (2,), ("zero1",): (4,), ("ddp",): (2,), ("hybrid",): (4,)}
HOST_ONLY = ("hybrid",)


def long_part(values: np.ndarray) -> float:
    """Returns the part of the numbers that have one of f32's last eight bits."""
    return float(np.mean(np.ascontiguousarray(values, np.float32).view(np.uint32) & 0xff != 0))


def test(bench, options):
    chosen = harness.fixture("gpt")
    chosen.compiling.append(f"--target={options.target}")

    def train(program, ranks: int, *flags, steps: int = 3):
        return bench.train(program, chosen, ranks, *flags, local=True, steps=steps, accumulate=4 // ranks)

    wide = bench.compile_fixture(chosen, "f32")
    kept = bench.compile_fixture(chosen, "kept", *KEPT)
    expected = train(wide, 2, steps=options.steps).losses()[-10:]
    found = train(kept, 2, steps=options.steps).losses()[-10:]
    error = abs(sum(found) / sum(expected) - 1)
    print(f"norms and head in f32: differs by {error:.2e}, limit {LIMIT:.0e}", flush=True)
    if error > LIMIT:
        raise Failure("norms and head in f32 exceed the limit")

    first = None
    for flags, several in PROGRAMS.items():
        if flags[0] in HOST_ONLY and options.target != "host":
            continue
        program = bench.compile_fixture(chosen, "kept" + "-".join(flags), *KEPT, f"--strategy={flags[0]}", *flags[1:])
        for ranks in several:
            training = train(program, ranks, *(("--shard-group", 2) if flags[0] == "hybrid" else ()))
            first = first or training.bits()
            if training.bits() != first:
                raise Failure(f"{' '.join(flags)} on {ranks} ranks: other bits")
    print("the same bits under all strategies", flush=True)
    plain = train(bench.compile_fixture(chosen, "plain", KEPT[0]), 2)
    for name in ("h.0.ln_1.weight", "ln_f.bias", "lm_head.weight"):
        parts = [long_part(read_safetensors(each.gradients)[name]) for each in (training, plain)]
        print(f"{name}: {parts[0]:.0%} of the gradient's numbers have more bits than sums of bf16, without --keep-f32 {parts[1]:.0%}")
        if not parts[1] < 0.2 < 0.8 < parts[0]:
            raise Failure(f"the gradient of '{name}' is not f32 where it is kept, or f32 where it is not")

    expected = train(wide, 2).bits()
    for dtype in ("bf16", "f16"):
        program = bench.compile_fixture(chosen, f"all-{dtype}", f"--param-dtype={dtype}", "--keep-f32=*", "--loss-scale=none")
        if train(program, 2).bits() != expected:
            raise Failure(f"--keep-f32='*' in {dtype}: other bits than f32")
    print("'*' gives the bits of f32", flush=True)


def arguments(parser):
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--target", default="host")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

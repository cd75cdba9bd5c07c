#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the planned arena is close to its lower bound on every fixture, strategy and type.

usage: packing.py --build DIR
"""
import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

MOST = 1.01
STRATEGIES = ("zero3", "zero2", "zero1", "ddp")
TYPES = ((), ("--param-dtype=bf16", "--reduce-dtype=f32"))


def plan(bench, fixture, *flags: str) -> tuple[int, int]:
    """Returns the bytes of the arena and their lower bound, the maximum of bytes that are live at once."""
    dump = bench.path("plan.mlir")
    harness.run([bench.build / "bin" / "fsdpc", fixture.model, *fixture.compiling, *flags, "--compile-to=memory", "-o", dump])
    arena = next(line for line in dump.read_text().splitlines() if "fsdp.arena" in line)
    return tuple(int(re.search(rf"\b{name} = (\d+)", arena)[1]) for name in ("bytes", "lower_bound"))


def test(bench, options):
    over = []
    for name, strategy, types in itertools.product(harness.fixtures(), STRATEGIES, TYPES):
        bytes, bound = plan(bench, harness.fixture(name), f"--strategy={strategy}", *types)
        print(f"{bytes / bound:.4f}  {bytes:>10} {bound:>10}  {name} {strategy} {' '.join(types)}", flush=True)
        if bytes > MOST * bound:
            over.append(f"{name} {strategy} {' '.join(types)}")
    if over:
        raise Failure(f"more than {MOST} times their lower bounds: {', '.join(over)}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

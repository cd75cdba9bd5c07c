#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that dropout masks depend only on seed, step, microbatch, op and element, not on the numbers of ranks and microbatches.

usage: dropout.py --build DIR

Trains with twelve microbatches per step as 1 x 12, 2 x 6, 3 x 4 and 4 x 3. Losses agree up to rounding, since sums over ranks
run in another order. A different mask would change them by percents, as another seed must.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

ROUNDING = 1e-6                               # relative, for mean losses; from a first step with equal weights


def deviation(losses: list[float], others: list[float]) -> float:
    return max(abs(a / b - 1) for a, b in zip(losses, others))


def test(bench, options):
    fixture = harness.fixture("gpt_dropout")
    program = bench.compile_fixture(fixture, "gpt_dropout")
    runs = {ranks: bench.train(program, fixture, ranks, steps=3).losses() for ranks in (1, 2, 3, 4)}
    for ranks, losses in runs.items():
        worst = deviation(losses, runs[1])
        print(f"{ranks} x {fixture.microbatches // ranks}: losses {losses}, which differ from one rank's by {worst:.1e}")
        if worst > ROUNDING:
            raise Failure(f"{ranks} ranks draw different masks than one rank: losses differ by {worst:.1e}, limit {ROUNDING:.0e}")
    fixture.seed += 1
    other = deviation(bench.train(program, fixture, 2, steps=3).losses(), runs[1])
    print(f"another seed: losses differ by {other:.1e}")
    if other < 100 * ROUNDING:
        raise Failure("another seed draws the same masks")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

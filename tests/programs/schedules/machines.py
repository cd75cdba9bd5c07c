#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks machine files and schedule tables on whole programs.

usage: machines.py --build DIR

Calibration writes a file that the compile takes, and with which it predicts a step of the right size; neither costs nor an edited
table change a bit; the log predicts for the ranks, threads and microbatches of its run.
"""
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

sys.path.insert(0, str(harness.MODELS.parent.parent / "tools" / "calibrate"))
import fit  # noqa: E402

WITHIN = 4                                    # predicted and fastest step, on one rank: other work on the machine delays ranks


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def fits() -> None:
    """The fitted times of commands that scatter about a line add up to the measured ones."""
    samples = [fit.Sample(flops, flops / 8, 2 + flops / 1e5 * factor, calls=3) for flops in (1e6, 4e6, 9e7) for factor in (0.5, 1, 2)]
    found = fit.rate(samples)
    times = [found["call_us"] + max(s.flops / found["gflops"], s.bytes / found["memory_gbs"]) / 1e3 for s in samples]
    quotient = sum(times) / sum(s.us for s in samples)
    demand(abs(quotient - 1) < 0.001, f"fitted times add up to {quotient} of the measured ones")


def calibration(bench) -> str:
    fsdpc, machine = bench.build / "bin" / "fsdpc", bench.path("here.json")
    harness.run([fsdpc, "calibrate", "--few", "--ranks", 2, "-o", machine])
    rates = json.loads(machine.read_text())["rates"]
    print("products:", {dtype: rates["matmul"][dtype]["gflops"] for dtype in ("f32", "bf16")}, "GF/s")
    refused = harness.run([fsdpc, "calibrate", "-o", bench.path("none") / "x.json"], 1).stderr
    demand("the folder does not exist" in refused, f"calibrate into no folder says: {refused}")
    harness.run([fsdpc, "calibrate", "-o", bench.path("x.txt")], 2)
    return f"--machine={machine}"


def test(bench, options):
    fits()
    machine, gpt = calibration(bench), harness.fixture("gpt")
    flags = ("--unit-class=*Block", "--plan-ranks=2")
    plain = bench.train(bench.compile_fixture(gpt, "plain", *flags), gpt, 2, steps=3)

    program = bench.compile_fixture(gpt, "calibrated", machine, *flags)
    training = bench.train(program, gpt, 1, steps=30, accumulate=1)
    alone = training.header()["predicted_step_ms"]
    measured = min(line["step_ms"] for line in training.lines())
    print(f"predicted {alone:.3f} ms, measured {measured:.3f} ms")
    demand(1 / WITHIN < alone / measured < WITHIN, "the predicted step is of another size than the measured one")
    predicted = bench.train(program, gpt, 2, steps=1, accumulate=1).header()["predicted_step_ms"]
    demand(predicted > alone / 2, f"a step on two ranks is predicted to take {predicted} ms")
    more = bench.train(program, gpt, 2, steps=1, accumulate=3).header()["predicted_step_ms"]
    demand(2 * predicted < more < 3 * predicted, f"three microbatches are predicted to take {more} ms")
    other = bench.train(program, gpt, 1, steps=1, threads=2).header()["predicted_step_ms"]
    demand(other is None, f"a step on threads that were not planned is predicted: {other} ms")
    demand(bench.train(program, gpt, 2, steps=3).bits() == plain.bits(), "--machine changes bits")

    table, edited = bench.path("table"), bench.path("edited")
    bench.compile_fixture(gpt, "none", *flags, "--prefetch=none", f"--schedule-table={table}")
    # The second block is gathered before the first one computes.
    text, count = re.subn(r"^h\.\{0\.\.1\} +forward +(\d+) .*; free h\.\{i\}\.flat@(\d+).*$",
                          r"h.0 forward \1 gather h.0.flat@1; wait h.0.flat@1; gather h.1.flat@1; free h.0.flat@\2" "\n"
                          r"h.1 forward \1 wait h.1.flat@1; free h.1.flat@\2", table.read_text(), flags=re.M)
    demand(count == 1, f"the blocks are not one row:\n{table.read_text()}")
    edited.write_text(text)
    moved = bench.train(bench.compile_fixture(gpt, "moved", *flags, f"--schedule={edited}"), gpt, 2, steps=3)
    demand(moved.bits() == plain.bits(), "an edited table changes bits")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

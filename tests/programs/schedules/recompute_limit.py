#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what --recompute=auto computes again for a memory limit.

Between the least and the default peak every limit is kept, by the plan, and a larger one is never slower by the prediction. The same holds of plans for eight GPUs, which communicate. Just
below the default peak fewer ops than one unit has are computed again. The bits stay those without a limit. A dump with the marks compiles
to the same program. Below the least peak, which the error names, nothing is compiled.

usage: recompute_limit.py --build DIR [MODEL]
"""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

LIMITS = 8                                    # between the least and the default peak
SLOWER = 1.005                                # sets are ordered by estimates before fusion

TRADES = 20                                   # limits of the plan for GPUs
RANKS = 8
CLUSTER = ["--target=cuda", "--gpu-arch=sm_90", "--machine=h100", f"--plan-ranks={RANKS}", "--unit-class=*Block",
           "--init-rule=*=normal(0,0.02)"]


def peak_of_error(bench, model, limit: str, *flags: str) -> int:
    command = [bench.build / "bin" / "fsdpc", model, "-o", bench.path("refused"), f"--memory-limit={limit}", *flags]
    found = re.search(r"planned peak of (\d+) bytes", harness.run(command, expected=1).stderr)
    if not found:
        raise Failure(f"the error about --memory-limit={limit} names no peak")
    return int(found[1])


@dataclass
class Compiled:
    """A program, what its backward computes again of each unit, and what is planned for it."""
    program: Path
    units: dict                               # (ops, of how many) by unit
    peak_mib: float
    step_ms: float


def row(summary: str, name: str) -> float:
    """Returns the figure of a table's row for one rank, which is the first column."""
    return float(re.search(rf"^  {name} +([\d.]+)", summary, re.MULTILINE)[1])


def compiled(bench, model, name: str, *flags: str) -> Compiled:
    folder, program = bench.path(f"{name}-ir"), bench.path(name)
    summary = harness.run([bench.build / "bin" / "fsdpc", model, "-v", "-o", program, "--plan-ranks=1", f"--dump-ir={folder}", *flags]).stdout
    dump = harness.read_dump(folder, "recompute")
    units = {unit: (int(ops), int(of)) for unit, of, ops in
             re.findall(r"fsdp\.unit @(\S+) \{.*fsdp\.recomputed = \{of = (\d+) : i64, ops = (\d+) : i64,", dump)}
    listed = re.search("^computed again .* microbatch: (.*)$", summary, re.MULTILINE)
    expected = ", ".join(unit if ops == of else f"{unit} ({ops} of {of} ops)" for unit, (ops, of) in units.items())
    if (listed[1] if listed else "") != expected:
        raise Failure(f"the summary does not list what is computed again, {expected}:\n{summary}")
    return Compiled(program, units, row(summary, "planned peak"), row(summary, "step"))


def column(summary: str, table: str, name: str, ranks: int) -> float:
    """Returns the figure of a table's row for a number of ranks."""
    lines = summary[summary.index(table):].splitlines()[1:]
    return float(next(line for line in lines if line.split()[0] == name).split()[lines[0].split().index(str(ranks))])


def losses(bench, program, fixture) -> tuple:
    return bench.train(program, fixture, 1, local=True, steps=2, accumulate=1).bits()


def check_trade(bench) -> None:
    """The plan for GPUs between which much is sent: what is computed again, and when gathers start, compete for the memory."""
    model = harness.MODELS / "demo_gpt.onnx"
    plan = [bench.build / "bin" / "fsdpc", model, *CLUSTER, "-v", "--compile-to=memory", "-o", bench.path("trade.mlir")]
    default = peak_of_error(bench, model, "1KiB", *CLUSTER, "--recompute=cheap")
    least = peak_of_error(bench, model, "1KiB", *CLUSTER)
    steps = []
    for part in range(TRADES + 1):
        # Beyond the default plan without prefetching, more memory hides more communication.
        limit = least + (default - least) * part * 5 // (TRADES * 4)
        summary = harness.run([*plan, f"--memory-limit={limit}"]).stdout
        steps.append(column(summary, "predicted step", "step", RANKS))
        if steps[-1] > min(steps) * SLOWER:
            raise Failure(f"at {limit} bytes a step of {steps[-1]} ms; less memory gives {min(steps)} ms")
    print(f"{RANKS} GPUs, {least} to {limit} bytes: steps of {steps} ms")
    if steps[-1] >= steps[0]:
        raise Failure("the memory makes no difference to the step")


def check_parts(bench, fixture, default: int, expected: tuple, *flags: str) -> None:
    """Just below the default peak less than a unit is computed again; and its dump, marks and all, gives the same program."""
    limit = f"--memory-limit={default - default // 200}"
    part = compiled(bench, fixture.model, "part", limit, *flags)
    if not part.units or sum(ops for ops, _ in part.units.values()) >= min(of for _, of in part.units.values()):
        raise Failure(f"0.5 % below the default peak, as much as a unit is computed again: {part.units}")
    marked = harness.dump(bench.path("part-ir"), "recompute")
    again = bench.path("marked")
    harness.run([*bench.compiler(marked), "-o", again])
    if losses(bench, again, fixture) != expected:
        raise Failure("the bits of a dump with marks differ")


def test(bench, options):
    fixture = harness.fixture(options.model)
    flags = fixture.compiling
    default = peak_of_error(bench, fixture.model, "1KiB", "--plan-ranks=1", "--recompute=cheap", *flags)
    least = peak_of_error(bench, fixture.model, "1KiB", "--plan-ranks=1", *flags)
    print(f"planned peak: {default} bytes by default, {least} at least")
    if least >= default:
        raise Failure("computing units again frees nothing; the test needs a larger model")
    free = compiled(bench, fixture.model, "free", *flags)
    expected = losses(bench, free.program, fixture)
    before = None
    for part in range(LIMITS + 1):
        limit = least + (default - least) * part // LIMITS
        now = compiled(bench, fixture.model, f"limit{part}", f"--memory-limit={limit}", *flags)
        print(f"limit {limit}: step {now.step_ms} ms, peak {now.peak_mib} MiB; computed again: {now.units or 'nothing'}", flush=True)
        if now.peak_mib > limit / 2**20 + 0.05:          # the summary rounds to tenths
            raise Failure(f"the peak of {now.peak_mib} MiB is above the limit of {limit} bytes")
        if before and now.step_ms > before.step_ms * SLOWER:
            raise Failure(f"more memory, but the step is longer: {now.step_ms} ms after {before.step_ms}")
        if losses(bench, now.program, fixture) != expected:
            raise Failure(f"the bits with --memory-limit={limit} differ from those without")
        before = now
    if before.units:
        raise Failure(f"the default peak of {default} bytes is allowed, but {before.units} are computed again")
    check_parts(bench, fixture, default, expected, *flags)
    check_trade(bench)
    # Other choices than those that the error is about may need slightly less.
    if peak_of_error(bench, fixture.model, str(least * 97 // 100), "--plan-ranks=1", *flags) != least:
        raise Failure("the least peak depends on the limit")


def arguments(parser):
    parser.add_argument("model", nargs="?", default="gpt", metavar="MODEL", help="a reference's name (default: gpt)")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

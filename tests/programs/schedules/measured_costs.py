#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Schedules a model by the durations that a run has measured (--profile).

usage: measured_costs.py --build DIR

The costs in the dump are the medians of the trace, op by op; prediction and schedule follow them; bits do not change. A trace of
another program, or of none, is refused.
"""
import json
import re
import statistics
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

# On one core, schedules overlap nothing, whatever ops take.
FLAGS = ("--unit-class=*Block", "--plan-ranks=2", "--plan-threads=8", "--prefetch=auto")
COMPUTING = ("launch", "matmul", "attention", "attention_grad", "convolution", "pooling")


def demand(holds: bool, what: str) -> None:
    if not holds:
        raise Failure(what)


def commands_of(trace: dict) -> list[list[dict]]:
    """Returns the computing commands of each microbatch, in their order."""
    found = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and event["cat"] in COMPUTING and "microbatch" in event["args"]:
            found[event["args"]["step"], event["args"]["microbatch"]].append(event)
    return [sorted(events, key=lambda event: event["ts"]) for events in found.values()]


def costs_of(dump: str) -> list[float]:
    """Returns the costs of the ops of @microbatch that have work, in µs."""
    body = re.search(r"func\.func @microbatch\(.*?\n  } loc", dump, re.S)[0]
    return [float(line) for line in re.findall(r"fsdp\.cost_us = ([0-9.e+-]+) : f64.*fsdp\.flops", body)]


def predicted(dump: str) -> str:
    return re.search(r"fsdp\.predicted = (\{.*?\}|\[.*?\])", dump)[1]


def actions(dump: str) -> list[tuple[int, str]]:
    """Returns the collectives' starts and waits of @microbatch, with the ops that compute before them."""
    lines = re.search(r"func\.func @microbatch\(.*?\n  } loc", dump, re.S)[0].splitlines()
    before, found = 0, []
    for line in lines:
        before += "fsdp.flops" in line
        found += [(before, action) for action in re.findall(r"fsdp\.(?:all_gather|reduce_scatter)_(?:start|wait)", line)]
    return found


def check_limit(bench, gpt, trace, bits) -> None:
    """Under a limit that is kept by computing ops again, a profile is that of a run under the same limit; it keeps limit and bits."""
    fsdpc = bench.build / "bin" / "fsdpc"

    def refused(*flags: str) -> str:
        command = [fsdpc, gpt.model, *gpt.compiling, *FLAGS, "--compile-to=memory", "-o", bench.path("refused.mlir"), *flags]
        return harness.run(command, 1).stderr

    peaks = [int(re.search(r"planned peak of (\d+) bytes", refused("--memory-limit=1KiB", *flags))[1])
             for flags in (("--recompute=cheap",), ())]
    limit = f"--memory-limit={(peaks[0] + peaks[1]) // 2}"
    demand("is a trace of another program" in refused(limit, f"--profile={trace}"), "a trace of other ops is taken")
    program, capped = bench.compile_fixture(gpt, "capped", *FLAGS, limit), bench.path("capped.json")
    demand(bench.train(program, gpt, 2, "--trace", capped, steps=5).bits() == bits, "a limit changes bits")
    dumps = []
    for flags in ((), (f"--profile={bench.path('capped.1.json')}",)):
        dump = bench.path("limited.mlir")
        out = harness.run([fsdpc, gpt.model, *gpt.compiling, *FLAGS, limit, "--compile-to=memory", "-o", dump, *flags]).stdout
        demand("computed again" in out, "nothing is computed again, so the limit tests nothing")
        dumps.append(dump.read_text())
    demand(predicted(dumps[0]) != predicted(dumps[1]), "under a limit the prediction does not follow the profile")
    measured = bench.compile_fixture(gpt, "capped-measured", *FLAGS, limit, f"--profile={bench.path('capped.1.json')}")
    demand(bench.train(measured, gpt, 2, steps=5).bits() == bits, "a profile under a limit changes bits")
    print(f"{limit}: peaks {peaks}")


def test(bench, options):
    gpt, fsdpc = harness.fixture("gpt"), bench.build / "bin" / "fsdpc"
    plain, trace = bench.compile_fixture(gpt, "plain", *FLAGS), bench.path("run.json")
    bits = bench.train(plain, gpt, 2, "--trace", trace, steps=5).bits()
    trace = bench.path("run.1.json")

    def dump(*flags: str) -> str:
        out = bench.path("dump.mlir")
        harness.run([fsdpc, gpt.model, *gpt.compiling, *FLAGS, "--compile-to=schedule", "-o", out, *flags])
        return out.read_text()

    modelled, measured = dump(), dump(f"--profile={trace}")
    expected = [statistics.median_high(event["dur"] for event in events) for events in zip(*commands_of(json.loads(trace.read_text())))]
    found = costs_of(measured)
    demand(len(found) == len(expected) > 50, f"{len(found)} costs, {len(expected)} commands")
    worst = max(abs(a - b) for a, b in zip(found, expected))
    demand(worst <= 0.00051, f"a cost is {worst} us from the median of the trace")
    demand(predicted(measured) != predicted(modelled), "the prediction does not follow the profile")
    print(f"{len(found)} ops: {sum(costs_of(modelled)) / 1e3:.3f} ms by the machine, {sum(found) / 1e3:.3f} ms by the trace, "
          f"largest difference from its medians {worst:.4f} us")

    # The same run with every command a thousand times as long: gathers then need not start early to be hidden.
    edited, events = bench.path("slow.json"), json.loads(trace.read_text())
    for event in events["traceEvents"]:
        event["dur"] = 1000 * event.get("dur", 0)
    edited.write_text(json.dumps(events))
    slow = dump(f"--profile={edited}")
    demand(predicted(slow) != predicted(measured), "the prediction does not follow an edited profile")
    demand(actions(slow) != actions(measured), "the schedule does not follow an edited profile")
    for name, profile in (("measured", trace), ("slow", edited)):
        program = bench.compile_fixture(gpt, name, *FLAGS, f"--profile={profile}")
        demand(bench.train(program, gpt, 2, steps=5).bits() == bits, f"{name}: a profile changes bits")

    check_limit(bench, gpt, trace, bits)
    llama, empty, text = harness.fixture("llama"), bench.path("empty.json"), bench.path("text.json")
    empty.write_text('{"traceEvents": [{"ph": "X", "args": 1}, 3, {"ph": 2}]}')
    text.write_text("[" * 100000)
    past = bench.path("past.mlir")
    past.write_text(measured)
    for model, profile, code, message in (
            (llama.model, trace, 1, "is a trace of another program"), (gpt.model, bench.path("absent.json"), 1, "cannot be read"),
            (gpt.model, empty, 1, "has no commands of a microbatch"), (gpt.model, text, 1, "is not JSON"),
            (past, trace, 1, "applies to a schedule that is yet to be made")):
        flags = llama.compiling if model == llama.model else gpt.compiling if model == gpt.model else ()
        refused = harness.run([fsdpc, model, *flags, "--compile-to=memory", "-o", bench.path("other.mlir"), f"--profile={profile}"], code).stderr
        demand(message in refused and refused.count("error:") == 1, f"{profile}: {refused}")
    for flags, message in ((("--compile-to=kernels", "-o", bench.path("k.mlir")), "requires the phase 'schedule'"),
                           (("--compile-to=schedule", "-o", trace), "is read from")):
        refused = harness.run([fsdpc, gpt.model, *gpt.compiling, f"--profile={trace}", *flags], 2).stderr
        demand(message in refused, refused)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

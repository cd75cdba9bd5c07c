# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares programs with those of another build of fsdpc, for example of the commit before a change.

Both compile the same models. Their programs train in turn, so that a machine that becomes slower or faster meets both. The losses
must be the same text. Core times come from rank 0's --trace: time in which other processes have the core does not count.
"""
import json
import statistics
from pathlib import Path

from report import Report
from shapes import SHAPES
from traces import Trace
from workbench import DTYPES, Shape, Workbench, demand

ROUNDS = 4
NOISE = 1.03      # of a median of paired runs on a machine that is otherwise idle
KINDS = {"products": {"matmul", "attention", "attention_grad"}, "gathers": {"all_gather"}, "reductions": {"reduce_scatter"}}


def core_times(trace: Trace) -> dict[str, float]:
    """Returns the core milliseconds of a step by kind of command, those of other kinds as "else"."""
    kinds = {kind: sum(c["core_ms"] for c in trace.commands if c["op"] in ops) for kind, ops in KINDS.items()}
    return kinds | {"else": trace.core_ms() - sum(kinds.values())}


def one_run(bench: Workbench, program: Path, folder: Path) -> tuple[list[float], list[str], dict[str, float]]:
    """Returns the milliseconds of the steps after the first, the losses of all, and the core times of a step."""
    log, peaks, trace = (program.with_suffix(suffix) for suffix in (".jsonl", ".rss", ".trace.json"))
    log.unlink(missing_ok=True)
    data = [f"--data={key}={folder}/{key}.npy" for key in ("ids", "labels")]
    demand(*bench.train_command(program, bench.ranks, data, bench.steps + 1, log, peaks), "--trace", trace)
    steps = [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
    core = core_times(Trace(trace if bench.ranks == 1 else trace.with_suffix(".0.json")))
    return [step["step_ms"] for step in steps[1:]], [f"{step['loss']:.9g}" for step in steps], core


def one_case(bench: Workbench, report: Report, shape: Shape, dtype: str) -> list:
    folder, programs = bench.export(shape), {}
    for name, compiler in (("before", bench.before), ("now", bench.fsdpc)):
        programs[name] = bench.out / f"{shape.folder}-{dtype}-{name}"
        command = bench.gpt_command(folder, *shape.flags, *DTYPES[dtype])
        demand(compiler, *command[1:], "-o", programs[name])
    times, losses, cores = {name: [] for name in programs}, {}, {name: [] for name in programs}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            found, losses[name], core = one_run(bench, program, folder)
            times[name].append(statistics.median(found))
            cores[name].append(core)
    median = {name: {kind: statistics.median(core[kind] for core in found) for kind in found[0]} for name, found in cores.items()}
    ratio = statistics.median(now / before for before, now in zip(times["before"], times["now"]))
    report.keep("before", f"{shape} {dtype}", {"step_ms": times, "core_ms": cores})
    report.failed |= losses["before"] != losses["now"]
    return [shape, dtype, *(" ".join(f"{ms:.0f}" for ms in times[name]) for name in ("before", "now")),
            report.held(f"step now ÷ before, {shape} {dtype}", ratio, most=NOISE),
            *(f"{median['before'][kind]:.1f} → {median['now'][kind]:.1f}" for kind in median["now"]),
            "the same" if losses["before"] == losses["now"] else "OTHERS"]


def against_before(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"Programs of this build and of {bench.before}, {bench.ranks} ranks, in turn; each figure is the median of "
                 f"{bench.steps} steps of a run")
    shapes = [bench.shape] if bench.shape else SHAPES[:1] if quick else [SHAPES[0], SHAPES[3]]
    rows = [one_case(bench, report, shape, dtype) for shape in shapes for dtype in DTYPES]
    report.table(["shape", "dtype", "before, ms", "now, ms", "median ratio of the pairs",
                  *(f"{kind}, core ms" for kind in (*KINDS, "else")), "losses"], rows)

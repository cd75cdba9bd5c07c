# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares programs with those of another build of fsdpc, for example of the commit before a change.

Both compile the same models. Their programs train in turn, so that a machine that becomes slower or faster meets both. The losses
must be the same text.
"""
import json
import statistics
from pathlib import Path

from report import Report
from shapes import SHAPES
from workbench import DTYPES, Shape, Workbench, demand

ROUNDS = 4
NOISE = 1.03      # of a median of paired runs on a machine that is otherwise idle


def one_run(bench: Workbench, program: Path, folder: Path) -> tuple[list[float], list[str]]:
    """Returns the milliseconds of the steps after the first, and the losses of all."""
    log, peaks = program.with_suffix(".jsonl"), program.with_suffix(".rss")
    log.unlink(missing_ok=True)
    data = [f"--data={key}={folder}/{key}.npy" for key in ("ids", "labels")]
    demand(*bench.train_command(program, bench.ranks, data, bench.steps + 1, log, peaks))
    steps = [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
    return [step["step_ms"] for step in steps[1:]], [f"{step['loss']:.9g}" for step in steps]


def one_case(bench: Workbench, report: Report, shape: Shape, dtype: str) -> list:
    folder, programs = bench.export(shape), {}
    for name, compiler in (("before", bench.before), ("now", bench.fsdpc)):
        programs[name] = bench.out / f"{shape.folder}-{dtype}-{name}"
        command = bench.gpt_command(folder, *shape.flags, *DTYPES[dtype])
        demand(compiler, *command[1:], "-o", programs[name])
    times, losses = {name: [] for name in programs}, {}
    for _ in range(ROUNDS):
        for name, program in programs.items():
            found, losses[name] = one_run(bench, program, folder)
            times[name].append(statistics.median(found))
    ratio = statistics.median(now / before for before, now in zip(times["before"], times["now"]))
    report.keep("before", f"{shape} {dtype}", times)
    report.failed |= losses["before"] != losses["now"]
    return [shape, dtype, *(" ".join(f"{ms:.0f}" for ms in times[name]) for name in ("before", "now")),
            report.held(f"step now ÷ before, {shape} {dtype}", ratio, most=NOISE),
            "the same" if losses["before"] == losses["now"] else "OTHERS"]


def against_before(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"Programs of this build and of {bench.before}, {bench.ranks} ranks, in turn; each figure is the median of "
                 f"{bench.steps} steps of a run")
    shapes = SHAPES[:1] if quick else [SHAPES[0], SHAPES[3]]
    rows = [one_case(bench, report, shape, dtype) for shape in shapes for dtype in DTYPES]
    report.table(["shape", "dtype", "before, ms", "now, ms", "median ratio of the pairs", "losses"], rows)

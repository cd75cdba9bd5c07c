# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Times the strategies that cut less than zero3 beside ddp: zero1, zero2 and oss.

FairScale says of OSS and ShardedDDP that they are no slower than DDP. The programs train in turn, and each round begins with another
one, so that a machine that becomes slower or faster meets all. The losses must be the same text.
"""
import statistics

from before import NOISE, one_run
from report import Report
from shapes import SHAPES
from workbench import DTYPES, Shape, Workbench, demand

OTHERS = ("zero1", "zero2", "oss")
ROUNDS = 8


def one_case(bench: Workbench, report: Report, shape: Shape, dtype: str) -> list:
    folder, programs = bench.export(shape), {}
    for strategy in ("ddp", *OTHERS):
        programs[strategy] = bench.out / f"{shape.folder}-{dtype}-beside-{strategy}"
        demand(*bench.gpt_command(folder, *shape.flags, *DTYPES[dtype]), f"--strategy={strategy}", "-o", programs[strategy])
    order, times, losses = list(programs), {name: [] for name in programs}, {}
    for _ in range(ROUNDS):
        for name in order:
            found, losses[name] = one_run(bench, programs[name], folder)
            times[name].append(found)
        order.append(order.pop(0))
    medians = {name: [statistics.median(steps) for steps in runs] for name, runs in times.items()}
    fastest = {name: min(map(min, runs)) for name, runs in times.items()}
    same = len(set(map(tuple, losses.values()))) == 1
    report.failed |= not same
    report.keep("strategies", f"{shape} {dtype}", times)
    ratios = [statistics.median(own / ddp for own, ddp in zip(medians[name], medians["ddp"])) for name in OTHERS]
    return [shape, dtype, f"{statistics.median(medians['ddp']):.0f}",
            *(f"{report.held(f'{name} ÷ ddp, {shape} {dtype}', ratio, most=NOISE)}; {fastest[name] / fastest['ddp']:.3f}"
              for name, ratio in zip(OTHERS, ratios)), "the same" if same else "OTHERS"]


def beside_ddp(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"zero1, zero2 and oss beside ddp, {bench.ranks} ranks, {ROUNDS} rounds in turn of {bench.steps} steps: the median ratio of "
                 "the rounds' medians, and the ratio of the fastest steps")
    shapes = SHAPES[:1] if quick else [SHAPES[0], SHAPES[3]]
    rows = [one_case(bench, report, shape, dtype) for shape in shapes for dtype in (list(DTYPES)[:1] if quick else DTYPES)]
    report.table(["shape", "dtype", "ddp, ms", *(f"{name} ÷ ddp" for name in OTHERS), "losses"], rows)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the time of whole compiles, and the resident memory of the largest model."""
from pathlib import Path

from report import Report
from shapes import SHAPES
from workbench import Shape, Workbench, demand

DEEP = Shape("L48,D384,H6,T256,V50257", 4)
LARGE = Shape("L96,D12288,H96,T2048,V50257", 1)  # 175 B parameters
RULE = "--init-rule=*=normal(0,0.02)"            # these have no weights
MOST_GIB = {"import": 1, "memory": 2}            # of the largest model, by phase


def compiles(bench: Workbench, report: Report, quick: bool) -> None:
    report.title("Compile times")
    cases = [(SHAPES[0], "program", 5, []), (DEEP, "program", 15, [RULE]), (LARGE, "import", 8, [RULE, "--compile-to=import"]),
             (LARGE, "memory", 60, [RULE, "--compile-to=memory"])]
    rows = []
    for shape, to, limit, flags in cases[:1] if quick else cases:
        folder = bench.export(shape, *(["--no-weights"] if shape in (DEEP, LARGE) else []))
        done = demand(*bench.gpt_command(folder, *flags), "-o", bench.out / f"compiled-{shape.folder}")
        gib, name = done.peak_bytes / 2**30, f"{shape} to {to}"
        rows.append([shape, to, report.held(f"compile seconds, {name}", done.seconds, most=limit, form=".1f"),
                     report.held(f"compile resident GiB, {name}", gib, most=MOST_GIB[to]) if shape is LARGE else f"{gib:.2f}"])
        report.keep("compile", name, {"seconds": done.seconds, "peak_bytes": done.peak_bytes})
    report.table(["model", "to", "seconds", "resident GiB"], rows)

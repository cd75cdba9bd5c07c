# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the cost of keeping the optimizer's states, or parameters and gradients too, on disk (--offload): the time of a step and the
resident set, beside those of the same model with all in memory. The file lies where programs put it by default: in $TMPDIR, or /tmp."""
from report import Report
from workbench import MIB, Shape, Workbench

MODEL = Shape("L6,D384,H6,T256,V512", 4)      # 11 M parameters
PLACES = (("in memory", []), ("states on disk", ["--offload=optimizer"]), ("all on disk", ["--offload=optimizer,parameters,gradients"]))


def offload(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"What --offload keeps on disk, {MODEL}, {bench.ranks} ranks, the fastest of {1 if quick else 3} medians")
    figures = {}
    for _ in range(1 if quick else 3):
        for where, flags in PLACES:
            run = bench.train(MODEL, "f32", *flags, name=where.replace(" ", "-"))
            step = min(run.median("step_ms"), figures.get(where, {}).get("step_ms", float("inf")))
            figures[where] = {"step_ms": step, "peak_rss_mib": run.peak_mib, "plan": run.header["plan"]}
    report.keep("offload", "figures", figures)
    report.table(["", "ms per step", "÷ in memory", "resident MiB", "planned MiB", "on disk MiB"],
                 [[where, f"{found['step_ms']:.0f}", f"{found['step_ms'] / figures['in memory']['step_ms']:.3f}",
                   f"{found['peak_rss_mib']:.0f}", f"{found['plan']['peak'] / MIB:.0f}", f"{found['plan'].get('on disk', 0) / MIB:.0f}"]
                  for where, found in figures.items()])

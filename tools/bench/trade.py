# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The trade of memory against the step: what --recompute=auto gives at caps between the least plan and the default one.

A GPT of 124 M parameters on the host, one of 7.5 B on eight H100s, by plan; and a small one whose steps are measured as well. Published
beside it: Checkmate (Jain et al., MLSys 2020, abstract) trains with inputs up to 5.1 times as large under the same memory, with
schedules that a solver finds in under an hour. Its curves have the shape that is checked here: the step grows with what is
saved, and never jumps.
"""
import re

from report import Report
from traces import Trace
from workbench import MIB, Shape, Workbench, demand, execute

CAPS = 10
INPUTS = 5.1                                  # Checkmate's "up to", for convolutional networks
H100 = ["--target=cuda", "--gpu-arch=sm_90", "--machine=h100", "--param-dtype=bf16", "--init-rule=*=normal(0,0.02)"]
PLANS = [("124 M, host, f32, one rank", Shape("L12,D768,H12,T512,V50257", 2), 1, []),
         ("7.5 B, H100, bf16, 8 ranks", Shape("L36,D4096,H32,T1024,V32000", 1), 8, H100)]
MEASURED = Shape("L6,D384,H6,T256,V512", 4)
MOST_RISE = 0.5                               # percent by which more memory may lengthen the predicted step


class Trade:
    """Plans of one model under caps."""

    def __init__(self, bench: Workbench, shape: Shape, ranks: int, flags: list[str], *export: str):
        self.bench, self.ranks = bench, ranks
        self.command = [bench.fsdpc, bench.export(shape, *export) / "gpt.onnx", "--optimizer=adamw", *flags, f"--plan-ranks={ranks}", "-v"]
        self.default = self.plan()
        refused = execute(*self.command, "--memory-limit=1MiB", "--compile-to=memory", "-o", bench.out / "trade.mlir").err
        self.least = int(re.search(r"planned peak of (\d+) bytes", refused)[1])

    def plan(self, *flags: str, program=None) -> dict:
        """Returns the figures of a compile: to a program, or without one to a plan."""
        target = ["-o", program] if program else ["--compile-to=memory", "-o", self.bench.out / "trade.mlir"]
        done = demand(*self.command, *flags, *target)
        again = re.search(r"^computed again .* at ([\d.]+) ms", done.out, re.MULTILINE)
        return {"peak": self.row(done.out, "memory per rank", "planned peak") * MIB, "step_ms": self.row(done.out, "predicted step", "step"),
                "again_ms": float(again[1]) if again else 0.0, "compile_s": done.seconds}

    def row(self, out: str, table: str, name: str) -> float:
        lines = out[out.index(table):].splitlines()[1:]
        column = lines[0].split().index(str(self.ranks))
        figures = next(line.removeprefix(f"  {name} ") for line in lines if line.startswith(f"  {name} "))
        return float(figures.split()[column - 1])

    def caps(self) -> list[int]:
        """Returns the caps, from the least plan to the default one. The summary rounds the latter to tenths of a MiB."""
        most = self.default["peak"] + 0.05 * MIB
        return [int(self.least + (most - self.least) * part / (CAPS - 1)) for part in range(CAPS)]


def table(report: Report, name: str, trade: Trade, rows: list[dict], columns: list[str]) -> None:
    least, most = rows[0], trade.default
    cells, rise = [], 0.0
    for number, row in enumerate(rows):
        # The step on a straight line between the least and the default plan.
        part = (row["cap"] - trade.least) / max(most["peak"] - trade.least, 1)
        line = least["step_ms"] + min(part, 1) * (most["step_ms"] - least["step_ms"])
        if number:
            rise = max(rise, 100 * (row["step_ms"] / rows[number - 1]["step_ms"] - 1))
        cells.append([f"{row['cap'] / MIB:.1f}", f"{row['peak'] / MIB:.1f}", f"{row['step_ms']:.3f}",
                      f"{100 * (row['step_ms'] / most['step_ms'] - 1):+.2f}", f"{100 * (line / most['step_ms'] - 1):+.2f}",
                      f"{row['again_ms']:.3f}", f"{row['compile_s']:.2f}", *(f"{row[column]:.1f}" for column in columns)])
    report.table(["cap MiB", "planned peak MiB", "predicted step ms", "over the default's %", "a straight line %", "computed again ms",
                  "compile s", *columns], cells)
    over = max(row["peak"] - row["cap"] for row in rows)
    print(f"the plan is at most {report.held(f'planned peak over the cap in MiB, {name}', max(over / MIB, 0), most=0.05)} MiB over its cap")
    print(f"with more memory the predicted step is at most {report.held(f'% longer with more memory, {name}', rise, most=MOST_RISE)} % longer\n")
    report.keep("trade", name, {"least": trade.least, "default": most, "rows": rows})


def planned(bench: Workbench, report: Report, quick: bool) -> None:
    for name, shape, ranks, flags in PLANS[:1] if quick else PLANS:
        report.title(f"Memory against the predicted step: GPT of {name}")
        curve = Trade(bench, shape, ranks, flags, *(["--no-weights"] if flags else []))
        table(report, name, curve, [{"cap": cap, **curve.plan(f"--memory-limit={cap}")} for cap in curve.caps()], [])


def measured(bench: Workbench, report: Report) -> None:
    """One rank, so that core time is what the step takes on an idle machine."""
    report.title(f"Memory against the measured step: {MEASURED}, one rank")
    curve, folder = Trade(bench, MEASURED, 1, []), bench.export(MEASURED)
    rows = []
    for number, cap in enumerate(curve.caps()):
        program, trace = bench.out / f"trade{number}", bench.out / f"trade{number}.trace.json"
        row = {"cap": cap, **curve.plan(f"--memory-limit={cap}", program=program)}
        data = [f"--data={name}={folder}/{name}.npy" for name in ("ids", "labels")]
        demand(program, *data, "--threads", 1, "--steps", bench.steps + 1, "--trace", trace)
        rows.append({**row, "measured core ms": Trace(trace).core_ms()})
    table(report, "measured", curve, rows, ["measured core ms"])


def trade(bench: Workbench, report: Report, quick: bool) -> None:
    planned(bench, report, quick)
    measured(bench, report)
    print(f"Checkmate: inputs up to {INPUTS} times as large in the same memory (convolutional networks); schedules in under an hour.")

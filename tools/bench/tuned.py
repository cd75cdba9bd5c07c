# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Predicted steps beside measured ones, over settings that `fsdpc tune` varies: does the order of the predictions hold?

A small GPT is compiled for this machine, as `fsdpc calibrate` finds it, with every setting. The programs train in turn, and each round
begins with another one, so that a machine that becomes slower or faster meets all. A step is the median of the rounds' medians.
The predicted one stands in the header of a program's log. Core time of the first rank is printed too: other work on the machine hardly
changes it, so it shows whether the machine was idle.
"""
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from report import Report
from traces import Trace
from workbench import DTYPES, Shape, Workbench, demand

SHAPE = Shape("L6,D384,H6,T128,V512", 4)
ROUNDS, QUICK_ROUNDS, QUICK_STEPS = 6, 2, 4
LEAST_CORRELATION = 0.8
MOST_SLOWER = 3                               # percent that the best by prediction may take over the best measured
PLANS = [["--strategy=ddp"], ["--strategy=zero2"], ["--strategy=zero3"], ["--strategy=zero3", "--prefetch=none"],
         ["--strategy=zero3", "--units=whole"]]
RECOMPUTED = ("none", "units")


@dataclass
class Setting:
    dtype: str
    ranks: int
    flags: list[str]
    program: Path | None = None
    predicted: float = 0.0                    # ms of a step
    rounds: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.ranks} rank{'s' if self.ranks > 1 else ''} {self.dtype} {' '.join(self.flags)}"

    @property
    def measured(self) -> float:
        return statistics.median(self.rounds)

    @property
    def core(self) -> float:
        return statistics.median(self.cores)


def settings() -> list[Setting]:
    """Two ranks with all plans, and one rank, where only the type and recomputation count."""
    found = [Setting(dtype, 2, [*plan, f"--recompute={what}"]) for dtype in DTYPES for plan in PLANS for what in RECOMPUTED]
    return found + [Setting(dtype, 1, [f"--recompute={what}"]) for dtype in DTYPES for what in RECOMPUTED]


def ranks_of(values: list[float]) -> list[float]:
    """Returns the place of each value in order; equal values share the mean of their places."""
    order = sorted(values)
    return [order.index(value) + (order.count(value) - 1) / 2 for value in values]


def spearman(first: list[float], second: list[float]) -> float:
    return statistics.correlation(ranks_of(first), ranks_of(second))


def train(bench: Workbench, setting: Setting, data: list[str], steps: int) -> None:
    log, trace = setting.program.with_suffix(".jsonl"), setting.program.with_suffix(".trace.json")
    log.unlink(missing_ok=True)
    demand(*bench.mpirun(setting.ranks), setting.program, *data, "--threads", 1, "--steps", steps + 1, "--log", log, "--trace", trace)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    setting.predicted = lines[0]["predicted_step_ms"]
    setting.rounds.append(statistics.median([line["step_ms"] for line in lines if "loss" in line][1:]))
    setting.cores.append(Trace(trace if setting.ranks == 1 else trace.with_suffix(".0.json")).core_ms())


def summary(report: Report, name: str, group: list[Setting]) -> list:
    predicted, measured = [s.predicted for s in group], [s.measured for s in group]
    chosen, best = min(group, key=lambda s: s.predicted), min(group, key=lambda s: s.measured)
    correlation, slower = spearman(predicted, measured), 100 * (chosen.measured / best.measured - 1)
    report.keep("tuned", name, {"correlation": correlation, "slower_percent": slower})
    cells = (report.held(f"Spearman's correlation, {name}", correlation, least=LEAST_CORRELATION),
             report.held(f"the best by prediction over the best measured in %, {name}", slower, most=MOST_SLOWER))
    quotients = [p / m for p, m in zip(predicted, measured)]
    return [name, len(group), cells[0], f"{spearman(predicted, [s.core for s in group]):.2f}", str(chosen), str(best), cells[1],
            f"{min(quotients):.2f} to {max(quotients):.2f}"]


def tuned(bench: Workbench, report: Report, quick: bool) -> None:
    rounds, steps = (QUICK_ROUNDS, QUICK_STEPS) if quick else (ROUNDS, bench.steps)
    folder, machine, group = bench.export(SHAPE), bench.out / "tuned-machine.json", settings()
    report.title(f"{len(group)} settings, predicted and measured: {SHAPE}; {rounds} rounds in turn of {steps} steps, a thread per rank")
    demand(bench.fsdpc, "calibrate", *(["--few"] if quick else []), "-o", machine)
    for number, setting in enumerate(group):
        setting.program = bench.out / f"tuned{number}"
        demand(bench.fsdpc, folder / "gpt.onnx", "--optimizer=adamw", f"--machine={machine}", f"--plan-ranks={setting.ranks}",
               *DTYPES[setting.dtype], *setting.flags, "-o", setting.program)
    data, order = [f"--data={name}={folder}/{name}.npy" for name in ("ids", "labels")], list(group)
    for _ in range(rounds):
        for setting in order:
            train(bench, setting, data, steps)
        order = order[len(order) // rounds:] + order[:len(order) // rounds]
    for setting in group:
        report.keep("tuned", str(setting), {"predicted_ms": setting.predicted, "rounds_ms": setting.rounds, "core_ms": setting.cores})
    report.table(["setting", "predicted ms", "measured ms", "predicted ÷ measured", "core ms"],
                 [[setting, f"{setting.predicted:.1f}", f"{setting.measured:.1f}", f"{setting.predicted / setting.measured:.2f}",
                   f"{setting.core:.1f}"] for setting in sorted(group, key=lambda s: s.measured)])
    # Types and ranks alone put most settings in order, so the groups stand by themselves, too.
    groups = {"all": group, **{f"{dtype}, two ranks": [s for s in group if s.dtype == dtype and s.ranks == 2] for dtype in DTYPES}}
    report.table(["settings", "number", "Spearman's correlation", "with core time", "the best by prediction", "the best measured", "slower %",
                  "predicted ÷ measured"], [summary(report, name, members) for name, members in groups.items()])

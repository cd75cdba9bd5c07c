# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the cost of collectives under each rule of schedules, by plan: with and without a limit of the memory, beside the lower bound.

All figures come from `fsdpc simulate`. Limits are the peaks of the rules `none` and `post`: where a rule fits, `auto` must fit too, and
take no longer. The last limit is a little under the default peak, and is kept by computing something again.
"""
import json
from dataclasses import dataclass

from report import Report
from trade import H100, MOST_RISE
from workbench import MIB, Shape, Workbench, demand

RULES = ("none", "post", "pre", "auto")
RULE = "--init-rule=*=normal(0,0.02)"          # the large models have no weights
MOST_GAP = 2                                  # percent over the lower bound without a limit
BELOW = 0.7                                   # percent under the default peak
MOST_LONGER = 1.2                             # percent that computing one block of twelve again would cost there


@dataclass
class Case:
    name: str
    shape: Shape
    ranks: int
    flags: list[str]


SMALL = Case("124 M, 2 host ranks, f32", Shape("L12,D768,H12,T512,V50257", 2), 2, [])
CASES = [SMALL,
         Case("7.5 B, 8 host ranks, bf16", Shape("L36,D4096,H32,T1024,V32000", 1), 8, ["--param-dtype=bf16", RULE]),
         Case("7.5 B, 64 H100, a node each, 50 GB/s", Shape("L36,D4096,H32,T1024,V32000", 1), 64,
              [*H100, "--plan-ranks-per-node=1", "--plan-cross-node-gbs=50"]),
         Case("175 B, 64 H100, 8 per node", Shape("L96,D12288,H96,T2048,V50257", 1), 64, H100)]


class Plans:
    """Plans of one case, each the figures of `fsdpc simulate`."""

    def __init__(self, bench: Workbench, report: Report, case: Case):
        self.bench, self.report, self.case = bench, report, case
        folder = bench.export(case.shape, *(["--no-weights"] if case.flags else []))
        self.command = [bench.fsdpc, "simulate", folder / "gpt.onnx", "--optimizer=adamw", *case.flags, f"--ranks={case.ranks}"]
        self.rules = {rule: self.plan(f"--prefetch={rule}") for rule in RULES}

    def plan(self, *flags: str) -> dict:
        path = self.bench.out / "plan.json"
        demand(*self.command, *flags, f"--json={path}")
        found = json.loads(path.read_text())
        row = {"step_ms": found["step"]["step_us"] / 1e3, "peak": found["step"]["peak_bytes"], "lost_ms": found["lost_us"] / 1e3,
               "bound_ms": found["least_lost_us"] / 1e3}
        self.report.keep("rules", " ".join([self.case.name, *flags]), row)
        return row


def gap(row: dict) -> float:
    """Returns by how many percent more is lost than the lower bound."""
    return 100 * (row["lost_ms"] / row["bound_ms"] - 1)


def beside_bound(report: Report, plans: list[Plans]) -> None:
    report.title("Lost ms per microbatch (stalls, and what collectives slow down) without a limit, beside the least that any schedule loses")
    rows = []
    for plan in plans:
        found = plan.rules
        rows.append([plan.case.name, f"{found['auto']['bound_ms']:.2f}", *(f"{found[rule]['lost_ms']:.2f}" for rule in RULES),
                     report.held(f"auto over the bound in %, {plan.case.name}", gap(found["auto"]), most=MOST_GAP)])
    report.table(["model", "bound", *RULES, "auto over the bound %"], rows)


def at_peaks(report: Report, plans: list[Plans]) -> None:
    report.title("auto where the limit is the peak of another rule")
    rows = []
    for plan in plans:
        for rule in ("none", "post"):
            theirs = plan.rules[rule]
            row = plan.plan(f"--memory-limit={theirs['peak']}")
            name = f"{plan.case.name}, at the peak of {rule}"
            rows.append([plan.case.name, rule, f"{theirs['peak'] / MIB:.1f}", f"{row['peak'] / MIB:.1f}", f"{theirs['step_ms']:.3f}",
                         f"{row['step_ms']:.3f}", report.held(f"step ÷ that of the rule, {name}", row["step_ms"] / theirs["step_ms"], most=1, form=".4f"),
                         f"{row['lost_ms']:.2f}", f"{row['bound_ms']:.2f}", f"{gap(row):.2f}"])
    report.table(["model", "rule", "its peak MiB = the limit", "auto's peak", "its step ms", "auto's step", "quotient", "auto loses ms",
                  "bound", "over the bound %"], rows)


def below_default(report: Report, plan: Plans) -> None:
    report.title(f"A limit {BELOW} % under the default peak: {plan.case.name}")
    default = plan.rules["auto"]
    row = plan.plan(f"--memory-limit={int(default['peak'] * (1 - BELOW / 100))}")
    longer = 100 * (row["step_ms"] / default["step_ms"] - 1)
    report.table(["", "planned MiB", "step ms", "lost ms"],
                 [[name, f"{r['peak'] / MIB:.1f}", f"{r['step_ms']:.3f}", f"{r['lost_ms']:.2f}"] for name, r in
                  (("default", default), ("under the limit", row))])
    print(f"the step is {report.held('% longer just under the default peak', longer, most=MOST_LONGER)} % longer, and with the memory of the "
          f"default {report.held('% longer with more memory', -longer, most=MOST_RISE)} % longer than under the limit\n")


def rules(bench: Workbench, report: Report, quick: bool) -> None:
    plans = [Plans(bench, report, case) for case in (CASES[:1] if quick else CASES)]
    beside_bound(report, plans)
    at_peaks(report, plans)
    below_default(report, plans[0])

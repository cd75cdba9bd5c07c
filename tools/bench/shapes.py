# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures throughput and memory against PyTorch FSDP2, and zero3 against ddp."""
import statistics

from report import Report
from traces import Trace
from workbench import DTYPES, Shape, Workbench

# The second shape needs 16 bytes per parameter, which leaves little memory for saved activations. It is also measured with whole
# units recomputed, which trades time for memory. The third has enough memory and recomputes nothing.
SHAPES = [Shape("L6,D384,H6,T256,V50257", 4), Shape("L12,D768,H12,T512,V50257", 2),
          Shape("L12,D768,H12,T512,V50257", 2, ("--recompute=units",)), Shape("L12,D512,H8,T256,V512", 4, ("--recompute=none",))]
LEAST_SPEEDUP, MOST_MEMORY, MOST_SLOWDOWN = 2.0, 0.45, 1.10


def cases(quick: bool) -> list[tuple[Shape, str]]:
    return [(SHAPES[0], "f32")] if quick else [(shape, dtype) for shape in SHAPES for dtype in DTYPES]


def against_peer(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"fsdpc and PyTorch FSDP2 (gloo), {bench.ranks} ranks of one thread, zero3, AdamW, clipping; medians of {bench.steps} steps")
    rows = []
    for shape, dtype in cases(quick):
        print(f"running {shape} {dtype}: fsdpc, then PyTorch FSDP2", flush=True)
        ours, theirs = bench.train(shape, dtype), bench.peer(shape, dtype)
        rate, plan = ours.median("tokens_per_s"), ours.header["plan"]["peak"] / 2**20
        speedup, memory = rate / theirs["tokens_per_s"], ours.peak_mib / theirs["peak_rss_mib"]
        core = Trace(ours.trace).core_ms()
        rows.append([shape, dtype, f"{rate:.0f}", f"{theirs['tokens_per_s']:.0f}",
                     report.held(f"tokens/s ÷ FSDP2's, {shape} {dtype}", speedup, least=LEAST_SPEEDUP),
                     f"{theirs['core_ms'] / core:.2f}",
                     f"{ours.peak_mib:.0f} ({plan:.0f})", f"{theirs['peak_rss_mib']:.0f}",
                     report.held(f"resident ÷ FSDP2's, {shape} {dtype}", memory, most=MOST_MEMORY)])
        report.failed |= speedup < 1
        report.keep("peer", f"{shape} {dtype}", {"tokens_per_s": rate, "core_ms": core, "peak_rss_mib": ours.peak_mib,
                                                       "plan_mib": plan, "peer": theirs})
    print()
    report.table(["shape", "dtype", "fsdpc tokens/s", f"FSDP2 {theirs['torch']} tokens/s", "ratio", "in core time",
                  "fsdpc resident (planned) MiB", "FSDP2 resident MiB", "ratio"], rows)


def against_ddp(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"fsdpc's zero3 against its ddp, {bench.ranks} ranks, alternating, two runs each")
    rows = []
    for shape, dtype in cases(quick):
        times, core = {"zero3": [], "ddp": []}, {}
        for strategy in ("zero3", "ddp") * 2:
            run = bench.train(shape, dtype, f"--strategy={strategy}", name=strategy)
            times[strategy] += [step["step_ms"] for step in run.steps]
            core[strategy] = Trace(run.trace).core_ms()
        zero3, ddp = (statistics.median(times[strategy]) for strategy in ("zero3", "ddp"))
        rows.append([shape, dtype, f"{zero3:.0f}", f"{ddp:.0f}",
                     report.held(f"zero3 ÷ ddp, {shape} {dtype}", zero3 / ddp, most=MOST_SLOWDOWN),
                     f"{core['zero3']:.0f}", f"{core['ddp']:.0f}", f"{core['zero3'] / core['ddp']:.2f}"])
        report.keep("ddp", f"{shape} {dtype}", {"step_ms": times, "core_ms": core})
    report.table(["shape", "dtype", "zero3 ms/step", "ddp ms/step", "ratio", "zero3 core ms", "ddp core ms", "ratio"], rows)

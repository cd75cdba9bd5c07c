# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans of published sizes: ZeRO's table for 7.5 B parameters, and models of 13 B to 1 T parameters on devices of 40 GB.

The models have no weights, so nothing is trained; the plan of a program is what it allocates. Sizes are in GB (1e9 bytes), as
published. The compiler counts in MiB.
"""
import json
import re

from report import Report
from workbench import Shape, Workbench, demand

GB = 1e9
DEVICE = 40 * GB
BF16 = ["--param-dtype=bf16", "--reduce-dtype=bf16", "--recompute=units", "--init-rule=*=normal(0,0.02)", "--optimizer=adamw"]
STATES = ("parameters", "gradients", "optimizer")

# Bytes per parameter on N ranks (Rajbhandari et al., "ZeRO", 2020, figure 1): 2 for the bf16 copy, 2 for its gradient, 12 for the
# f32 master and Adam's moments. The table counts what lasts to the end of a step. Ours count parameters, gradients and optimizer
# states, without the gradients of zero2 and zero3 that are in memory until they are reduced; those stand by themselves.
ZERO = Shape("L36,D4096,H32,T1024,V32000", 1)  # 7.5 B parameters
ZERO_RANKS = 64
ZERO_ROWS = [("ddp", 120.0, "16 P"), ("zero1", 31.4, "4 P + 12 P/N"), ("zero2", 16.6, "2 P + 14 P/N"), ("zero3", 1.9, "16 P/N")]
WHOLE_GRADIENTS = ("ddp", "zero1")             # they keep all bf16 gradients to the end, which the formula counts
PERCENT = 3                                   # from the published size

# One microbatch per step; gradients are reduced a large matrix at a time.
SPARING = ["--max-accumulate=1", "--layout-size=68000000"]
# 12 bytes per parameter and rank of states, masters and gradients then lie on disk.
OFFLOAD = "--offload=optimizer,parameters,gradients"
DEVICES = [("13 B", Shape("L40,D5120,H40,T2048,V50257", 1), 8, ["--max-accumulate=1", "--layout-size=106000000"]),
           ("175 B", Shape("L96,D12288,H96,T2048,V50257", 1), 128, ["--max-accumulate=1", "--layout-size=605000000"]),
           ("1 T", Shape("L128,D25600,H160,T2048,V50257", 1), 256, ["--max-accumulate=1", "--layout-size=660000000", "--prefetch=none", OFFLOAD])]


def plan(bench: Workbench, shape: Shape, ranks: int, *flags: str) -> dict:
    """Compiles a GPT without weights. Returns the bytes of each kind, of the planned peak, and of gradients in the arena, on `ranks` ranks."""
    folder, program = bench.export(shape, "--no-weights"), bench.out / "planned"
    out = demand(bench.fsdpc, folder / "gpt.onnx", *BF16, f"--plan-ranks={ranks}", *flags, "-v", "-o", program).out
    table = out[out.index("memory per rank in MiB"):].splitlines()[1:]
    column = table[0].split().index(str(ranks))
    rows = (re.split(r" {2,}", line.strip()) for line in table[1:])
    found = {name: float(figures[column - 1]) * 2**20 for name, *figures in rows}
    return {**found, "in the arena": json.loads(demand(program, "--manifest").out)["arenaGradients"]}


def zero_table(bench: Workbench, report: Report) -> None:
    report.title(f"Model states of {ZERO} on {ZERO_RANKS} ranks, bf16 and AdamW, beside ZeRO's table for 7.5 B: GB per rank")
    print(f"Flags: {' '.join([*BF16, *SPARING])}\n")
    rows = []
    for strategy, published, formula in ZERO_ROWS:
        found = plan(bench, ZERO, ZERO_RANKS, f"--strategy={strategy}", *SPARING)
        in_flight = 0 if strategy in WHOLE_GRADIENTS else found["in the arena"]
        states = (sum(found[kind] for kind in STATES) - in_flight) / GB
        off = (states / published - 1) * 100
        report.keep("published", f"7.5 B {strategy}", found)
        report.held(f"model states under {strategy}, % from the published size", abs(off), most=PERCENT, form=".1f")
        rows.append([strategy, formula, published, f"{states:.2f}", f"{off:+.1f}",
                     *(f"{size / GB:.2f}" for size in (in_flight, found["gathered"], found["activations"], found["planned peak"]))])
    report.table(["strategy", "ZeRO's formula", "published", "model states", "%", "gradients in flight", "gathered", "activations", "planned peak"], rows)


def on_devices(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"Large GPTs on devices of {DEVICE / GB:.0f} GB, zero3, bf16, AdamW, a sequence of 2048 per rank: GB per rank")
    rows = []
    for name, shape, ranks, flags in DEVICES[:1] if quick else DEVICES:
        print(f"Flags of {name}: {' '.join([*BF16, *flags])}")
        found = plan(bench, shape, ranks, *flags)
        kinds = [f"{found[kind] / GB:.1f}" for kind in (*STATES, "gathered", "activations")]
        report.keep("published", name, found)
        rows.append([name, ranks, *kinds, f"{found['planned peak'] / GB:.1f}",
                     report.held(f"planned peak in GB, {name} on {ranks}", found["planned peak"] / GB, most=DEVICE / GB, form=".1f"),
                     f"{(DEVICE - found['planned peak']) / GB:.1f}"])
    print()
    report.table(["model", "ranks", *STATES, "gathered", "activations", "planned peak", "limit", "headroom"], rows)


def published(bench: Workbench, report: Report, quick: bool) -> None:
    zero_table(bench, report)
    on_devices(bench, report, quick)

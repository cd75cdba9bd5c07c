# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Adapters beside PyTorch FSDP2: a GPT as PEFT's LoRA exports it, with a frozen base in bf16, trained by both on the same machine.

The base has neither a gradient nor a state nor an f32 master in fsdpc's plan; the run checks that against the sizes of the model. A
process with PyTorch takes hundreds of MiB before there is a model, which the table shows apart.
"""
import json

from report import Report
from workbench import MIB, Shape, Workbench, demand

RANK = 16
SHAPE = Shape("L6,D768,H12,T256,V8192", 4)    # 49 M parameters
FLAGS = ["--param-dtype=bf16", "--reduce-dtype=f32", "--trainable=lora_"]
KINDS = ("parameters", "gradients", "optimizer", "gathered", "activations")


def sizes(manifest: dict) -> tuple[int, int]:
    """Returns the elements of frozen and of trainable parameters."""
    frozen, trained = (sum(member["elements"] for layout in manifest["layouts"] if layout["trainable"] == kind for member in layout["members"])
                       for kind in (False, True))
    return frozen, trained


def lora(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"LoRA of rank {RANK} on a frozen bf16 base, {SHAPE}, {bench.ranks} ranks, AdamW")
    folder = bench.export(SHAPE, "--lora", RANK, name="lora")
    peer = bench.peer(SHAPE, "bf16", "--lora", RANK)
    rows = []
    for name, flags in (("fsdpc", []), ("fsdpc, no prefetch", ["--prefetch=none"])):
        run = bench.train(SHAPE, "f32", *FLAGS, *flags, name=f"lora{len(flags)}", folder=folder)
        plan, step = run.header["plan"], run.median("step_ms")
        frozen, trained = sizes(json.loads(demand(run.program, "--manifest").out))
        # Two bytes per frozen element; four for each master, gradient and moment of the others. A layout is padded for each rank.
        kept = plan["parameters"] + plan["optimizer"]
        report.held(f"{name}: kept parameters and states ÷ 2 frozen + 12 trained bytes", kept * bench.ranks / (2 * frozen + 12 * trained),
                    most=1.02)
        report.keep("lora", name, {"plan": plan, "step_ms": step, "peak_rss_mib": run.peak_mib, "frozen": frozen, "trained": trained})
        rows.append([name, f"{run.peak_mib:.0f}", "", f"{plan['peak'] / MIB:.0f}", *(f"{plan[kind] / MIB:.1f}" for kind in KINDS), f"{step:.0f}",
                     f"{step / peer['step_ms']:.2f}"])
    report.keep("lora", "FSDP2", peer)
    rows.append([f"FSDP2, torch {peer['torch']}", f"{peer['peak_rss_mib']:.0f}", f"{peer['rss_before_mib']:.0f}", "none", *["" for _ in KINDS],
                 f"{peer['step_ms']:.0f}", "1"])
    print(f"{frozen / 1e6:.1f} M frozen parameters, {trained / 1e6:.2f} M trained\n")
    report.table(["", "resident MiB", "before the model", "planned MiB", *KINDS, "ms per step", "÷ FSDP2"], rows)

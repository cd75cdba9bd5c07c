# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures speed, memory and compile times of fsdpc's programs against PyTorch FSDP2 and against
limits; prints Markdown tables.

tools/bench.sh builds what is needed and runs this script. All printed figures are measured in this
run, and missed limits are marked. Limits apply to wall-clock time. Core time is printed too: other
processes hardly affect it, so it shows whether the machine was idle. Exits with code 1 if a program
is slower than PyTorch FSDP2.
"""
import argparse
import shutil
import sys
import textwrap
from pathlib import Path

import before
import checkpoint_cost
import compile_times
import lora
import memory_experiment
import offload
import ops
import plans
import published_plans
import quantized
import rules
import shapes
import simulated
import start_up
import step_time
import strategies
import trade
import tuned
import virtual_nodes
from report import Report
from workbench import Shape, Workbench

PARTS = {"peer": (shapes.against_peer, "tokens/s and resident memory against PyTorch FSDP2"),
         "step": (step_time.against_products, "time of a step against its own matrix products, and the ten largest other costs"),
         "before": (before.against_before, "steps against those of another build (--before), in turn; only with --before"),
         "startup": (start_up.start_up, "the start and end of a job against those of another build (--before), in turn; only with --before"),
         "ddp": (shapes.against_ddp, "fsdpc's zero3 against its ddp"),
         "strategies": (strategies.beside_ddp, "zero1, zero2 and oss against ddp, in turn"),
         "plan": (plans.against_bound, "planned arena against its lower bound, for these shapes and tests/models"),
         "compile": (compile_times.compiles, "compile times, up to a 96-layer GPT of 175 B parameters"),
         "published": (published_plans.published, "plans of published sizes: ZeRO's table, and GPTs of 13 B to 1 T parameters"),
         "simulated": (simulated.simulated, "published throughputs of large jobs beside those of `fsdpc simulate`, and ZeRO's communication volumes"),
         "rules": (rules.rules, "planned schedules beside the other rules and the lower bound, and at limits where other rules fit"),
         "trade": (trade.trade, "memory against the step, planned and measured, at ten limits of the memory"),
         "tuned": (tuned.tuned, "predicted steps beside measured ones, over two dozen settings of strategy, recomputation, prefetch and units"),
         "nodes": (virtual_nodes.nodes, "schedules where communication takes the core of compute, measured and predicted"),
         "checkpoint": (checkpoint_cost.checkpoint, "what checkpoints cost a step, and how fast they reach the disk"),
         "offload": (offload.offload, "what states, parameters and gradients on disk cost a step, and the memory that they save"),
         "lora": (lora.lora, "memory and steps of adapters on a frozen base, beside PyTorch FSDP2"),
         "quantized": (quantized.quantized, "the loss and the bytes of 8 and 4 bits between ranks, beside bf16's, after 300 steps"),
         "ops": (ops.ops, "steps of single ops (convolutions, resizes, LSTM, experts, scatter) beside torch's on one core"),
         "memory": (memory_experiment.memory, "the published memory experiment: ten Linear(10000, 10000)")}

COMPARISONS = ("before", "startup")


def main() -> int:
    listed = "".join("\n" + textwrap.fill(f"  {name:10}{what}", 100, subsequent_indent=" " * 12) for name, (_, what) in PARTS.items())
    parser = argparse.ArgumentParser(prog="tools/bench.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"parts:{listed}\n\nexamples:\n  tools/bench.sh --quick\n  tools/bench.sh --only peer,ddp --steps 12\n  "
                                            "tools/bench.sh --memory")
    parser.add_argument("--fsdpc", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--limits", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", type=Path, required=True, help="a Python with torch and onnx (default: an environment that tools/bench/setup-peer.sh creates)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for models, programs, traces and results.json (default: build/bench)")
    parser.add_argument("--only", metavar="PART,…", help="run only these parts, separated by commas (default: all)")
    parser.add_argument("--before", type=Path, metavar="FSDPC", help="the compiler of another build, for the parts 'before' and 'startup'")
    parser.add_argument("--shape", type=Shape.parse, metavar="SHAPE[,BBATCH]", help="a GPT for the part 'before' instead of the usual ones, such as L3,D384,H6,T128,V16384,B2 (default batch: 4)")
    parser.add_argument("--memory", action="store_true", help="the same as --only memory")
    parser.add_argument("--quick", action="store_true", help="measure only the first shape, in f32")
    parser.add_argument("--ranks", type=int, default=2, help="ranks per run (default: 2)")
    parser.add_argument("--steps", type=int, default=6, help="measured steps, after one for warm-up; at least 5 (default: 6)")
    options = parser.parse_args()
    chosen = ["memory"] if options.memory else options.only.split(",") if options.only else [
        name for name in PARTS if options.before or name not in COMPARISONS]
    for name in chosen:
        if name not in PARTS:
            parser.error(f"unknown part '{name}'; available: {', '.join(PARTS)}")
        if name in COMPARISONS and (options.before is None or shutil.which(options.before) is None):
            parser.error("name the compiler to compare with: --before BUILD/bin/fsdpc")
    if options.steps < 5:
        parser.error(f"--steps {options.steps} is too few for a median; use 5 or more")
    bench = Workbench(options)
    report = Report(options.out / "results.json")
    for name in chosen:
        PARTS[name][0](bench, report, options.quick)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())

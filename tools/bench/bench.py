"""Time, memory and compile times of fsdpc's programs, beside PyTorch FSDP2 and beside their own limits, as Markdown tables.

tools/bench.sh builds what is needed and calls this. Nothing is printed that this run did not measure; a missed limit is printed
as missed. The clock on the wall judges; core time, which other processes' load hardly lengthens, stands beside it and tells
whether the machine was quiet. The exit code is 1 where a program is slower than PyTorch FSDP2.
"""
import argparse
import sys
from pathlib import Path

import compile_times
import memory_experiment
import plans
import shapes
import step_time
from report import Report
from workbench import Workbench

PARTS = {"peer": (shapes.against_peer, "tokens/s and peak RSS against PyTorch FSDP2"),
         "step": (step_time.against_products, "a step against its own matrix products; the ten largest other costs"),
         "ddp": (shapes.against_ddp, "our zero3 against our ddp"),
         "plan": (plans.against_bound, "planned arena against its lower bound, these shapes and tests/models"),
         "compile": (compile_times.compiles, "compile times, to a 96-layer GPT of 175 B parameters"),
         "memory": (memory_experiment.memory, "the published memory experiment: ten Linear(10000, 10000)")}


def main() -> int:
    listed = "".join(f"\n  {name:10}{what}" for name, (_, what) in PARTS.items())
    parser = argparse.ArgumentParser(prog="tools/bench.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=f"parts:{listed}\n\nexamples:\n  tools/bench.sh --quick\n  tools/bench.sh --only peer,ddp --steps 12\n  "
                                            "tools/bench.sh --memory")
    parser.add_argument("--fsdpc", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--limits", type=Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--python", type=Path, required=True, help="one with torch and onnx (default: tools/bench/setup-peer.sh makes it)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="models, programs, traces, results.json (default: build/bench)")
    parser.add_argument("--only", metavar="PART,…", help="these parts alone (default: all)")
    parser.add_argument("--memory", action="store_true", help="the same as --only memory")
    parser.add_argument("--quick", action="store_true", help="the first shape in f32 alone")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6, help="steps that count; one more runs before them (default: 6)")
    options = parser.parse_args()
    chosen = ["memory"] if options.memory else options.only.split(",") if options.only else list(PARTS)
    for name in chosen:
        if name not in PARTS:
            parser.error(f"there is no part '{name}'; there are {', '.join(PARTS)}")
    if options.steps < 5:
        parser.error(f"{options.steps} steps are too few for a median; at least 5 are wanted")
    bench = Workbench(options)
    report = Report(options.out / "results.json")
    for name in chosen:
        PARTS[name][0](bench, report, options.quick)
    return report.close()


if __name__ == "__main__":
    sys.exit(main())

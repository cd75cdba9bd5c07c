# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The published memory experiment: ten Linear(10000, 10000), batch 10, f32, SGD with momentum.

Published (PyTorch): 12.0 GB in one process, 16.0 GB with DDP's buckets, 1.5 GB per rank under FSDP on 8. Here all ranks run on one
machine. Each may use its share of the available memory, which --memory-limit enforces at compile time. A guard ends a run that
nevertheless brings the machine close to running out of memory.
"""
import json
from pathlib import Path

from report import Report
from workbench import HERE, Workbench, available_bytes, demand, execute

GB = 1e9
RESERVE = 2 << 30                             # bytes reserved for the rest of the system
GUARD = 1 << 30                               # a run is ended if fewer bytes than this are available
STEPS = 2
PARAMETERS = 10 * (10000 * 10000 + 10000)
# Elements of parameters, gradients and momentum per rank; plus all gradients where they are reduced at the end of a microbatch.
FORMULAS = {"ddp": ("3P + P", lambda n: 4 * PARAMETERS), "zero1": ("P + 2P/N + P", lambda n: (2 + 2 / n) * PARAMETERS),
            "zero2": ("P + 2P/N", lambda n: (1 + 2 / n) * PARAMETERS), "zero3": ("3P/N", lambda n: 3 / n * PARAMETERS)}
# The last cases allow for the shards, one gathered layer, and 1 % of both. A layer's gradients then take the place of its weights.
TIGHT = int(1.01 * 4 * (FORMULAS["zero3"][1](8) + PARAMETERS / 10))
OFFLOAD = ["--prefetch=none", "--offload=optimizer,parameters,gradients"]
# ranks, strategy, limit, further flags
CASES = [*((1, strategy, None, []) for strategy in FORMULAS), (2, "zero2", None, []), (2, "zero3", None, []), (8, "zero3", None, []),
         (8, "zero3", TIGHT, OFFLOAD), (8, "zero3", TIGHT, [])]
PUBLISHED = {(1, "zero3"): "12.0 (one process)", (1, "ddp"): "16.0 (DDP's buckets)", (8, "zero3"): "1.5 (FSDP)"}


def measure(bench: Workbench, folder: Path, ranks: int, strategy: str, tight: int | None, flags: list[str]) -> dict:
    """Returns the planned and measured bytes, or the reason why there are none."""
    program = bench.out / f"linears-{strategy}-{ranks}"
    limit = tight or (available_bytes() - RESERVE) // ranks
    compiled = execute(bench.fsdpc, folder / "linears.onnx", "-o", program, f"--strategy={strategy}", "--unit-class=Linear",
                       "--init-rule=*=uniform(-0.01,0.01)", "--optimizer=sgd", "--momentum=0.9", f"--plan-ranks={ranks}",
                       f"--memory-limit={limit}", *flags)
    if compiled.code:
        return {"limit": limit, "why": compiled.err.strip().splitlines()[-1]}
    log, peaks = program.with_suffix(".jsonl"), program.with_suffix(".rss")
    data = [f"--data={name}={folder}/{name}.npy" for name in ("x", "y")]
    run = execute(*bench.train_command(program, ranks, data, STEPS, log, peaks), guard=GUARD)
    if run.guarded:
        return {"limit": limit, "why": f"ended by the guard: less than {GUARD / GB:.1f} GB were available"}
    if run.code:
        return {"limit": limit, "why": (run.err + run.out).strip().splitlines()[-1]}
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    peak = max(float(Path(f"{peaks}.{rank}").read_text()) * 2**20 for rank in range(ranks))
    return {"limit": limit, "plan": lines[0]["plan"]["peak"], "disk": lines[0]["plan"].get("on disk", 0), "peak": peak, "step_ms": lines[-1]["step_ms"]}


def memory(bench: Workbench, report: Report, quick: bool) -> None:
    report.title("Ten Linear(10000, 10000), batch 10, f32, SGD with momentum: GB per rank")
    folder = bench.out / "linears"
    if not (folder / "linears.onnx").exists():
        demand(bench.python, HERE / "export_linears.py", folder)
    rows = []
    for ranks, strategy, tight, flags in CASES[-2:] if quick else CASES:
        text, formula = FORMULAS[strategy]
        print(f"running {strategy} on {ranks} ranks", flush=True)
        found = measure(bench, folder, ranks, strategy, tight, flags)
        report.keep("memory", f"{strategy} {ranks}{' tight' if tight else ''}{' offloaded' if flags else ''}", found)
        rows.append([ranks, " ".join([strategy, *flags]), f"{text} = {4 * formula(ranks) / GB:.2f}", f"{found['limit'] / GB:.2f}",
                     *([f"{found['plan'] / GB:.2f}", f"{found['peak'] / GB:.2f}", f"{found['step_ms'] / 1e3:.1f}"] if "plan" in found
                       else [found["why"], "not run", "not run"]), f"{found['disk'] / GB:.2f}" if found.get("disk") else "",
                     PUBLISHED.get((ranks, strategy), "")])
    print(f"\nP = {4 * PARAMETERS / GB:.2f} GB; {RESERVE / GB:.1f} GB are reserved for the rest of the system\n")
    report.table(["ranks", "strategy", "formula", "--memory-limit", "planned", "resident", "s/step", "on disk", "published"], rows)

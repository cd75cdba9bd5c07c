# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares the time of a step with that of its own matrix products, and lists its other costs.

bench_limits times the products alone: it runs the same plans through the runtime's code, on all ranks at once under the same
mpirun, with operands that are not in the cache (cold). Of attention it times the products without the softmax between them. The
other costs of a step come from --trace of rank 0. They are core times, so waiting and preempted time does not count.
"""
import json

from report import Report
from shapes import cases
from traces import Trace
from workbench import Training, Workbench, demand

MOST = {"f32": 1.25, "bf16": 1.6}             # step ÷ products
PRODUCTS = {"matmul": "matmul", "attention": "attention", "attention_grad": "attention"}    # rt op -> table of plans
LEAST_SHARE = 0.7                             # of copy bandwidth


def measure_limits(bench: Workbench, run: Training, sizes: list[int]) -> dict:
    manifest = run.program.with_suffix(".manifest.json")
    manifest.write_text(demand(run.program, "--manifest").out)
    return json.loads(demand(*bench.mpirun(bench.ranks), bench.limits, manifest, *sizes).out)


def other_costs(commands: list[dict], alone) -> list[dict]:
    """Returns the commands that are not products, and the part of attention that is not."""
    rows = [{**command, "op": f"rows of {command['op']}", "core_ms": max(command["core_ms"] - alone(command, "cold", "core_ms"), 0)}
            for command in commands if PRODUCTS.get(command["op"]) == "attention"]
    return sorted([command for command in commands if command["op"] not in PRODUCTS] + rows, key=lambda command: -command["core_ms"])


def one_case(bench: Workbench, report: Report, shape, dtype: str) -> list:
    run = bench.train(shape, dtype)
    trace = Trace(run.trace)
    candidates = sorted((c for c in trace.commands if c["op"] != "matmul"), key=lambda c: -c["core_ms"])[:12]
    sizes = sorted({int(command["bytes"]) for command in candidates})
    limits = measure_limits(bench, run, sizes)
    copies = {size: copy["core_ms"] for size, copy in zip(sizes, limits.get("copies", []))}

    def alone(command: dict, how: str, clock: str) -> float:
        return limits["products"][PRODUCTS[command["op"]]][command["plan"]][how][clock] * command["calls"]

    products = [command for command in trace.commands if command["op"] in PRODUCTS]
    cold, cold_core, warm = (sum(alone(command, how, clock) for command in products)
                             for how, clock in (("cold", "ms"), ("cold", "core_ms"), ("warm", "ms")))
    others = other_costs(trace.commands, alone)
    largest = [command for command in others if int(command["bytes"]) in copies][:10]
    step, rest = run.median("step_ms"), sum(command["core_ms"] for command in others)
    in_step = sum(command["core_ms"] for command in trace.commands) - rest
    tables = {"step_ms": step, "products_cold_ms": cold, "products_cold_core_ms": cold_core, "products_warm_ms": warm,
              "products_in_step_core_ms": in_step, "others_core_ms": rest, "waits_ms": trace.waits, "others": others, "limits": limits}
    report.keep("step", f"{shape} {dtype}", tables)

    print(f"### {shape} {dtype}\n\nstep {step:.0f} ms; products alone {cold:.0f} ms with cold operands, {warm:.0f} warm; core time: "
          f"products alone {cold_core:.0f} ms, in the step {in_step:.0f}, all else {rest:.0f}; compute " +
          (", ".join(f"waits {ms:.0f} ms {name[5:]}" for name, ms in trace.waits.items()) or "never waits") + "\n")
    rows = []
    for command in largest:
        copy = copies[int(command["bytes"])]
        each = command["core_ms"] / command["calls"]
        exp_ms = command["exps"] / limits["exps_per_s"] * 1e3
        bound, bound_ms = ("exp", exp_ms) if exp_ms > copy else ("copy", copy)
        rows.append([f"{command['op']} {command['name']}".strip(), f"{command['calls']:.0f}", f"{command['core_ms']:.1f}",
                     f"{command['bytes'] * command['calls'] / 1e6:.0f}", f"{command['bytes'] / max(each, 1e-6) / 1e6:.1f}",
                     f"{copy / max(each, 1e-6):.0%}", f"{bound} {bound_ms / max(each, 1e-6):.0%}" +
                     ("" if command["op"] != "launch" or bound_ms >= LEAST_SHARE * each else " (≥ 70 %, MISSED)")])
    report.table(["largest other costs", "calls", "core ms/step", "MB/step", "GB/s", "of copy bandwidth", "of its bound"], rows)
    return [shape, dtype, f"{step:.0f}", f"{cold:.0f}", report.held(f"step ÷ products, {shape} {dtype}", step / cold, most=MOST[dtype]),
            f"{in_step + rest:.0f}", f"{cold_core:.0f}", f"{(in_step + rest) / cold_core:.2f}"]


def against_products(bench: Workbench, report: Report, quick: bool) -> None:
    report.title("Steps against their own matrix products, which are timed alone in the same run")
    rows = [one_case(bench, report, shape, dtype) for shape, dtype in cases(quick)]
    report.table(["shape", "dtype", "step ms", "products alone ms", "step ÷ products", "step, core ms", "products alone, core ms",
                  "in core time"], rows)

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures compiled GPTs (tokens/s, FLOP utilisation, every kernel and product), the GPU's ceilings, and PyTorch FSDP2 in the same run."""
import importlib.util
import json
import os
import statistics
from pathlib import Path

import notes
import timeline
import tokens
from correctness import Place
from results import Failed, Results, Skipped
from running import run
from traces import Trace

MOST_KERNELS = 400                            # rows in the results
WARM_UP, STEPS = 4, 12                        # the warm-up includes the eager and the captured step
GOAL_RATIO, GOAL_MFU = 1.25, 0.55             # of compiled FSDP2; of the 1.5 B model

# Dense bf16 TFLOP/s on the data sheets.
PEAKS = {"H200": 989, "H100": 989, "A100": 312, "B200": 2250}


def peak_tflops(gpu: str) -> float | None:
    return next((peak for name, peak in PEAKS.items() if name in gpu), None)


def utilisation(bench: dict, tokens_per_s: float, gpu: str) -> float | None:
    peak = peak_tflops(gpu)
    return peak and tokens_per_s * bench["flops_per_token"] / (peak * 1e12)


def text(tokens_per_s: float, mfu: float | None) -> str:
    return f"{tokens_per_s:.0f} tokens/s" + (f", {100 * mfu:.1f} % of peak" if mfu else "")


def command(place: Place, bench: dict, steps: int, kind: str = "") -> list:
    """`kind` is "" for uniform ids and ".zipf" for those of text."""
    data = [f"--data={name}={path}" for name, path in tokens.files(place.work, bench, kind).items()]
    return [place.work / "programs" / bench["file"], *data, "--steps", steps]


def ours(place: Place, results: Results, bench: dict, gpu: str, *flags: str, kind: str = "", environment: dict | None = None, seconds: float = 150):
    """Trains, checks the losses and returns the speed, marked if a library refused something."""
    log = place.work / f"{bench['name']}{kind}.jsonl"
    run(results, [*command(place, bench, WARM_UP + STEPS, kind), "--log", log, *flags], {**place.environment, **(environment or {})}, seconds)
    lines = [line for line in notes.lines(log) if "loss" in line]
    figures = {"losses": [line["loss"] for line in lines], **notes.figures(log)}
    notes.check_losses(figures["losses"], bench["vocabulary"], learns=kind == ".zipf")
    mark, steps = notes.mark(figures["fallbacks"]), lines[WARM_UP:]
    if "tokens_per_s" not in steps[0]:
        return "emulated, so without times" + mark, figures
    rate = statistics.median(step["tokens_per_s"] for step in steps)
    mfu = utilisation(bench, rate, gpu)
    told = f"{text(rate, mfu)}, loss {figures['losses'][0]:.2f} → {figures['losses'][-1]:.2f}"
    return told + mark, {"tokens_per_s": rate, "mfu": mfu, "step_ms": [step["step_ms"] for step in steps], **figures}


def traced(place: Place, results: Results, bench: dict, seconds: float) -> list[dict]:
    """Reads kernel times from the program's own trace, on devices that record them."""
    if place.pack["target"] != "host":
        raise Skipped("an emulated device has no times")
    trace = place.work / f"{bench['name']}.trace.json"
    run(results, [*command(place, bench, STEPS), "--trace", trace], place.environment, seconds)
    return [{"kernel": c["name"], "ms": c["wall_ms"], "gb_per_s": c["bytes"] * c["calls"] / c["wall_ms"] / 1e6}
            for c in Trace(trace).commands if c["op"] in ("launch", "optimizer") and c["wall_ms"] > 0]


def profiled(place: Place, results: Results, bench: dict, library: Path, seconds: float) -> list[dict]:
    """Reads kernel times from CUPTI, those of libraries included. Only generated kernels have known bytes."""
    times = place.work / f"{bench['name']}.kernels"
    environment = {**place.environment, "CUDA_INJECTION64_PATH": str(library), "FSDPC_KERNEL_TIMES": str(times),
                   "FSDPC_KERNEL_TIMELINE": str(place.work / f"{bench['name']}.timeline")}
    run(results, command(place, bench, STEPS), environment, seconds)
    if not times.exists():
        raise Skipped("no kernel times from CUPTI (libcupti is missing or not permitted here)")
    program = place.work / "programs" / bench["file"]
    manifest = json.loads(run(results, [program, "--manifest"], place.environment, 60, keep=64 << 20))
    moved = {c["name"]: c["bytes"] for c in manifest["commands"] if c["bytes"]}
    rows = []
    for line in times.read_text().splitlines():
        count, nanoseconds, name = line.split("\t", 2)
        row = {"kernel": name, "ms": int(count) * int(nanoseconds) / STEPS / 1e6}
        if name in moved:
            row["gb_per_s"] = moved[name] / int(nanoseconds)
        rows.append(row)
    return rows


def measured(results: Results, key: str) -> float | None:
    """Returns a figure of the ceilings, if they were measured in this run."""
    return next((r.figures.get(key) for r in results.of("ceilings") if r.status == "pass"), None)


def ceilings(place: Place, results: Results, seconds: float = 120):
    """The bandwidth of a copy and the rate of a large product, beside which the others are to be read."""
    on_gpu = place.pack["target"] == "cuda"
    program = place.work / "tests" / ("gpu_ceilings" if on_gpu else "gpu_ceilings_emulated")
    if not program.exists():
        raise Skipped("packed without the program that measures them")
    figures = json.loads(run(results, [program, *([] if on_gpu else [64, 4])], place.environment, seconds))
    return (f"copy {figures['copy_gb_per_s']:.0f} GB/s; product of {figures['product']}: {figures['best_tflops']:.1f} TFLOP/s, "
            f"the library's own choice {figures['first_tflops']:.1f}"), figures


def with_losses(rows: list[dict], bandwidth: float | None) -> list[dict]:
    """Adds what each kernel with known bytes takes beyond the bandwidth of a copy, and sorts by it; others by their time, last."""
    for row in rows:
        if bandwidth and row.get("gb_per_s"):
            row["lost_ms"] = row["ms"] * max(0.0, 1 - row["gb_per_s"] / bandwidth)
    return sorted(rows, key=lambda row: (-row.get("lost_ms", -1), -row["ms"]))


def kernels(place: Place, results: Results, bench: dict, seconds: float = 120):
    """Returns every kernel of a step, those first that lose the most time against the bandwidth of a copy."""
    library = place.folder / "lib" / "kernel_times.so"
    on_gpu = place.pack["target"] == "cuda"
    if on_gpu and not library.exists():
        raise Skipped("packed without kernel_times.so, because CUPTI's headers were missing")
    rows = profiled(place, results, bench, library, seconds) if on_gpu else traced(place, results, bench, seconds)
    if not rows:
        raise Skipped("no kernel ran")
    rows = with_losses(rows, measured(results, "copy_gb_per_s"))
    return "; ".join(f"{r['kernel'][:60]} {r['ms']:.2f} ms" + (f" {r['gb_per_s']:.0f} GB/s" if "gb_per_s" in r else "") +
                     (f" {r['lost_ms']:.2f} ms lost" if "lost_ms" in r else "") for r in rows[:12]), {"kernels": rows[:MOST_KERNELS]}


def streams(place: Place, results: Results, bench: dict):
    """Says of a step when no kernel ran, and which communication nothing covers. Of the second half of the steps."""
    path = place.work / f"{bench['name']}.timeline"
    if not path.exists():
        raise Skipped("no kernel times from CUPTI")
    figures = timeline.summary(timeline.last_steps(timeline.read(path), 0.5), STEPS / 2)
    return ", ".join(f"{name.removesuffix('_ms')} {figures[name]:.2f} ms" for name in ("step_ms", "busy_ms", "gap_ms", "exposed_ms")), figures


def parse_products(text: str) -> list[dict]:
    """Reads the file of --tune-products: shape, microseconds of the library's own choice and of the best, TFLOP/s of the best."""
    rows = []
    for line in text.splitlines()[1:]:
        _, _, shape, _, best, before = line.split("\t")
        numbers = shape.split(" ")
        flops = 2 * int(numbers[0]) * int(numbers[1]) * int(numbers[2]) * int(numbers[7])
        rows.append({"shape": shape, "best_us": float(best), "chosen_us": float(before), "tflops": flops / max(float(best), 1e-9) / 1e6})
    return sorted(rows, key=lambda row: row["best_us"] - row["chosen_us"])


def products(place: Place, results: Results, bench: dict, gpu: str, **how):
    """Times eight algorithms for each product, and the step with the best of them."""
    if place.pack["target"] == "host":
        raise Skipped("programs for the host do not choose among algorithms")
    kept = place.work / f"{bench['name']}.products"
    text, figures = ours(place, results, bench, gpu, f"--tune-products={kept}", **how)
    rows = parse_products(kept.read_text())
    gained = sum(row["chosen_us"] - row["best_us"] for row in rows)
    figures["products"] = rows
    return text + f"; {len(rows)} shapes, {gained:.0f} us gained over one call of each" + \
        "".join(f"; {row['shape']}: {row['chosen_us']:.0f} → {row['best_us']:.0f} us" for row in rows[:3]), figures


def peer(place: Place, results: Results, bench: dict, gpu: str, *flags: str, seconds: float = 180):
    if not importlib.util.find_spec("torch"):
        raise Skipped("PyTorch is not installed in this Python")
    device = "cuda" if place.pack["target"] == "cuda" else "cpu"
    out = run(results, [place.python, "-m", "torch.distributed.run", "--nproc_per_node", 1, place.folder / "check" / "torch_fsdp.py",
                        bench["shape"], "--batch", bench["batch"], "--steps", WARM_UP + STEPS, "--leave-out", WARM_UP, "--dtype", "bf16",
                        "--device", device, *flags], dict(os.environ), seconds)
    line = next((line for line in out.splitlines() if line.startswith("{")), None)
    if not line:
        raise Failed("PyTorch printed no results")
    figures = json.loads(line)
    figures["mfu"] = utilisation(bench, figures["tokens_per_s"], gpu)
    return text(figures["tokens_per_s"], figures["mfu"]) + f", torch {figures['torch']}", figures


def goals(results: Results, bench: dict):
    """Compares a model with the project's goals. A missed goal is reported and does not fail."""
    found = {r.name: r.figures for r in results.of("speed", "peer") if r.status == "pass"}
    mine, theirs = (found.get(f"{bench['name']} {who}") for who in ("fsdpc", "FSDP2 compiled"))
    if not mine or not theirs or "tokens_per_s" not in mine:
        raise Skipped("a figure is missing")
    ratio = mine["tokens_per_s"] / theirs["tokens_per_s"]
    told = [f"{ratio:.2f} × compiled FSDP2 (goal {GOAL_RATIO}{'' if ratio >= GOAL_RATIO else ', MISSED'})"]
    if mine["fallbacks"]:
        told[0] += f", with {len(mine['fallbacks'])} fallbacks"
    if bench["name"] == "gpt-1.5b" and mine["mfu"]:
        told.append(f"{100 * mine['mfu']:.1f} % of peak (goal {100 * GOAL_MFU:.0f} %{'' if mine['mfu'] >= GOAL_MFU else ', MISSED'})")
    return "; ".join(told), {"ratio": ratio, "mfu": mine["mfu"]}


def check(place: Place, results: Results, gpu: str, part: str) -> None:
    """Runs a part: ours, kernels or peer."""
    results.check("ceilings", part, lambda: ceilings(place, results))
    for bench in place.pack["bench"]:
        name = bench["name"]
        if part == "ours":
            results.check("speed", f"{name} fsdpc", lambda: ours(place, results, bench, gpu))
            results.check("speed", f"{name} fsdpc, ids as in text", lambda: ours(place, results, bench, gpu, kind=".zipf"))
            results.check("products", name, lambda: products(place, results, bench, gpu))
            results.check("speed", f"{name} fsdpc --deterministic", lambda: ours(place, results, bench, gpu, "--deterministic"))
            results.check("speed", f"{name} fsdpc --no-graph", lambda: ours(place, results, bench, gpu, "--no-graph"))
        elif part == "kernels":
            results.check("kernels", name, lambda: kernels(place, results, bench))
            results.check("streams", name, lambda: streams(place, results, bench))
        elif bench["peer"]:
            results.check("peer", f"{name} FSDP2 compiled", lambda: peer(place, results, bench, gpu, "--compile"))
            results.check("goal", name, lambda: goals(results, bench))
    if part == "peer":                        # if time is left
        for bench in (bench for bench in place.pack["bench"] if bench["peer"]):
            results.check("peer", f"{bench['name']} FSDP2 eager", lambda: peer(place, results, bench, gpu))

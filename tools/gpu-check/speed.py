"""Measures tokens/s, FLOP utilisation and the bandwidth of kernels of compiled GPTs, and PyTorch FSDP2 in the same run."""
import importlib.util
import json
import os
import statistics
from pathlib import Path

from correctness import Place
from results import Failed, Results, Skipped, run
from traces import Trace

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


def command(place: Place, bench: dict, steps: int) -> list:
    data = [f"--data={name}={place.folder}/models/bench/{bench['name']}.{name}.npy" for name in ("ids", "labels")]
    return [place.work / "programs" / bench["file"], *data, "--steps", steps]


def ours(place: Place, results: Results, bench: dict, gpu: str, *flags: str):
    log = place.work / f"{bench['name']}{''.join(flags)}.jsonl"
    run(results, [*command(place, bench, WARM_UP + STEPS), "--log", log, *flags], place.environment, 150)
    steps = [line for line in map(json.loads, log.read_text().splitlines()) if "loss" in line][WARM_UP:]
    rate = statistics.median(step["tokens_per_s"] for step in steps)
    mfu = utilisation(bench, rate, gpu)
    return text(rate, mfu), {"tokens_per_s": rate, "mfu": mfu, "step_ms": [step["step_ms"] for step in steps]}


def traced(place: Place, results: Results, bench: dict) -> list[dict]:
    """Reads kernel times from the program's own trace, on devices that record them."""
    trace = place.work / f"{bench['name']}.trace.json"
    run(results, [*command(place, bench, STEPS), "--trace", trace], place.environment, 120)
    return [{"kernel": c["name"], "ms": c["wall_ms"], "gb_per_s": c["bytes"] * c["calls"] / c["wall_ms"] / 1e6}
            for c in Trace(trace).commands if c["op"] in ("launch", "optimizer") and c["wall_ms"] > 0]


def profiled(place: Place, results: Results, bench: dict, library: Path) -> list[dict]:
    """Reads kernel times from CUPTI, those of libraries included. Only generated kernels have known bytes."""
    times = place.work / f"{bench['name']}.kernels"
    environment = {**place.environment, "CUDA_INJECTION64_PATH": str(library), "FSDPC_KERNEL_TIMES": str(times)}
    run(results, command(place, bench, STEPS), environment, 120)
    if not times.exists():
        raise Skipped("no kernel times from CUPTI (libcupti is missing or not permitted here)")
    program = place.work / "programs" / bench["file"]
    manifest = json.loads(run(results, [program, "--manifest"], place.environment, 60))
    moved = {c["name"]: c["bytes"] for c in manifest["commands"] if c["bytes"]}
    rows = []
    for line in times.read_text().splitlines():
        count, nanoseconds, name = line.split("\t", 2)
        row = {"kernel": name, "ms": int(count) * int(nanoseconds) / STEPS / 1e6}
        if name in moved:
            row["gb_per_s"] = moved[name] / int(nanoseconds)
        rows.append(row)
    return rows


def kernels(place: Place, results: Results, bench: dict):
    """Returns the ten slowest kernels of a step, with their bandwidth."""
    library = place.folder / "lib" / "kernel_times.so"
    on_gpu = place.pack["target"] == "cuda"
    if on_gpu and not library.exists():
        raise Skipped("packed without kernel_times.so, because CUPTI's headers were missing")
    rows = profiled(place, results, bench, library) if on_gpu else traced(place, results, bench)
    slowest = sorted(rows, key=lambda row: -row["ms"])[:10]
    if not slowest:
        raise Skipped("no kernel ran")
    return "; ".join(f"{r['kernel'][:60]} {r['ms']:.2f} ms" + (f" {r['gb_per_s']:.0f} GB/s" if "gb_per_s" in r else "")
                     for r in slowest), {"kernels": rows}


def peer(place: Place, results: Results, bench: dict, gpu: str, *flags: str):
    if not importlib.util.find_spec("torch"):
        raise Skipped("PyTorch is not installed in this Python")
    device = "cuda" if place.pack["target"] == "cuda" else "cpu"
    out = run(results, [place.python, "-m", "torch.distributed.run", "--nproc_per_node", 1, place.folder / "check" / "torch_fsdp.py",
                        bench["shape"], "--batch", bench["batch"], "--steps", WARM_UP + STEPS, "--leave-out", WARM_UP, "--dtype", "bf16",
                        "--device", device, *flags], dict(os.environ), 180)
    line = next((line for line in out.splitlines() if line.startswith("{")), None)
    if not line:
        raise Failed("PyTorch printed no results")
    figures = json.loads(line)
    figures["mfu"] = utilisation(bench, figures["tokens_per_s"], gpu)
    return text(figures["tokens_per_s"], figures["mfu"]) + f", torch {figures['torch']}", figures


def goals(results: Results, bench: dict):
    """Compares a model with the project's goals. A missed goal is reported and does not fail."""
    found = {r.name: r.figures for r in results.list if r.part == "speed" and r.status == "pass"}
    mine, theirs = (found.get(f"{bench['name']} {who}") for who in ("fsdpc", "FSDP2 compiled"))
    if not mine or not theirs:
        raise Skipped("a figure is missing")
    ratio = mine["tokens_per_s"] / theirs["tokens_per_s"]
    told = [f"{ratio:.2f} × compiled FSDP2 (goal {GOAL_RATIO}{'' if ratio >= GOAL_RATIO else ', MISSED'})"]
    if bench["name"] == "gpt-1.5b" and mine["mfu"]:
        told.append(f"{100 * mine['mfu']:.1f} % of peak (goal {100 * GOAL_MFU:.0f} %{'' if mine['mfu'] >= GOAL_MFU else ', MISSED'})")
    return "; ".join(told), {"ratio": ratio, "mfu": mine["mfu"]}


def check(place: Place, results: Results, gpu: str) -> None:
    for bench in place.pack["bench"]:
        name = bench["name"]
        results.check("speed", f"{name} fsdpc", lambda: ours(place, results, bench, gpu))
        results.check("speed", f"{name} FSDP2 compiled", lambda: peer(place, results, bench, gpu, "--compile"))
        results.check("speed", f"{name} FSDP2 eager", lambda: peer(place, results, bench, gpu))
        results.check("goal", name, lambda: goals(results, bench))
    for bench in place.pack["bench"]:
        results.check("kernels", bench["name"], lambda: kernels(place, results, bench))
        results.check("speed", f"{bench['name']} fsdpc --deterministic", lambda: ours(place, results, bench, gpu, "--deterministic"))
        results.check("speed", f"{bench['name']} fsdpc --no-graph", lambda: ours(place, results, bench, gpu, "--no-graph"))

"""Time compiles and training steps of fsdpc's programs and of PyTorch FSDP2, and print both as tables.

usage: bench.py --fsdpc FSDPC --python PYTHON --out FOLDER [--quick] [--ranks 2]      (tools/bench.sh calls it)
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHAPE = "L6,D384,H6,T256,V50257"
BATCH = 4
DEEP = "L48,D384,H6,T256,V50257"              # compile time alone
DTYPES = {"f32": [], "bf16": ["--param-dtype=bf16", "--reduce-dtype=f32"]}


def run(*command, **more) -> str:
    command = [str(word) for word in command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}\nended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def export(options, shape: str, *flags: str) -> Path:
    folder = options.out / shape.replace(",", "")
    if not (folder / "gpt.onnx").exists():
        print(f"exporting {shape}", flush=True)
        run(options.python, HERE / "export_gpt.py", folder, shape, "--batch", BATCH, *flags)
    return folder


def compile_model(options, model: Path, program: Path, *flags: str) -> float:
    began = time.perf_counter()
    run(options.fsdpc, model, "-o", program, "--unit-class=*Block", f"--plan-ranks={options.ranks}", "--optimizer=adamw",
        "--clip-grad-norm=1.0", *flags)
    return time.perf_counter() - began


def ours(options, folder: Path, dtype: str) -> dict:
    program, log, peaks = options.out / f"train-{dtype}", options.out / f"{dtype}.jsonl", options.out / f"{dtype}.rss"
    seconds = compile_model(options, folder / "gpt.onnx", program, *DTYPES[dtype])
    run("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", options.ranks, sys.executable, HERE / "peak_rss.py", peaks,
        program, f"--data=ids={folder}/ids.npy", f"--data=labels={folder}/labels.npy", "--threads", 1, "--steps", options.steps,
        "--log", log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    steps = [line for line in lines if "loss" in line][1:]
    return {"compile_s": seconds, "tokens_per_s": statistics.median(step["tokens_per_s"] for step in steps),
            "exposed_ms": statistics.median(step["exposed_comm_ms"] for step in steps),
            "plan_mib": lines[0]["plan"]["total"] / 2**20,
            "peak_rss_mib": max(float(Path(f"{peaks}.{rank}").read_text()) for rank in range(options.ranks))}


def peer(options, dtype: str) -> dict:
    out = run(options.python, "-m", "torch.distributed.run", "--nproc_per_node", options.ranks, HERE / "torch_fsdp.py", SHAPE,
              "--batch", BATCH, "--steps", options.steps, "--dtype", dtype)
    return json.loads(next(line for line in out.splitlines() if line.startswith("{")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fsdpc", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True, help="one with torch and onnx")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="f32 alone, and no deep model")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = export(options, SHAPE)
    compiles, rows = [], []
    for dtype in ["f32"] if options.quick else DTYPES:
        print(f"running {dtype}: fsdpc, then PyTorch FSDP2", flush=True)
        mine, theirs = ours(options, folder, dtype), peer(options, dtype)
        compiles.append((f"{SHAPE}, {dtype}", mine["compile_s"]))
        rows.append((dtype, mine, theirs))
    if not options.quick:
        deep = export(options, DEEP, "--no-weights")
        compiles.append((f"{DEEP}, f32", compile_model(options, deep / "gpt.onnx", options.out / "train-deep",
                                                        "--init-rule=*=normal(0,0.02)")))
    print(f"\n{SHAPE}, batch {BATCH} a rank, {options.ranks} ranks of one thread, AdamW, clipping; PyTorch {rows[0][2]['torch']}\n")
    print("|      | fsdpc tokens/s | FSDP2 tokens/s | ratio | fsdpc peak RSS (plan) MiB | FSDP2 peak RSS MiB | exposed ms/step |")
    print("|---|---|---|---|---|---|---|")
    for dtype, mine, theirs in rows:
        print(f"| {dtype:4} | {mine['tokens_per_s']:.0f} | {theirs['tokens_per_s']:.0f} | "
              f"{mine['tokens_per_s'] / theirs['tokens_per_s']:.2f} | {mine['peak_rss_mib']:.0f} ({mine['plan_mib']:.0f}) | "
              f"{theirs['peak_rss_mib']:.0f} | {mine['exposed_ms']:.0f} |")
    print("\n| compile of | seconds |\n|---|---|")
    for name, seconds in compiles:
        print(f"| {name} | {seconds:.1f} |")
    slower = [dtype for dtype, mine, theirs in rows if mine["tokens_per_s"] <= theirs["tokens_per_s"]]
    if slower:
        print(f"error: not faster than FSDP2 in {', '.join(slower)}", file=sys.stderr)
    return 1 if "f32" in slower else 0


if __name__ == "__main__":
    sys.exit(main())

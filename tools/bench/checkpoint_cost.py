"""What checkpoints cost: the time of the steps with one every ten steps, beside that without, and the rate at which they reach the
disk beside `dd` and torch's async_save. Runs with and without alternate; the time of the processor is what they use on all ranks, which
a busy machine changes little."""
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from report import Report
from workbench import Shape, Workbench, demand

MODEL = Shape("L12,D768,H12,T512,V50257", 2)  # 124 M parameters and an untied head
EVERY = 10
MOST = 1.03
# Prints the seconds from the call until all is on disk.
ASYNC_SAVE = """
import sys, time, torch, torch.distributed.checkpoint as dcp
state = {f"t{i}": torch.ones(int(sys.argv[1]) // 4 // 16) for i in range(16)}
began = time.perf_counter()
dcp.async_save(state, checkpoint_id=sys.argv[2], no_dist=True).result()
print(time.perf_counter() - began)
"""


def times_of(bench: Workbench, program: Path, folder: Path, steps: int, newest: Path | None, *flags) -> tuple[float, float, float]:
    """Trains. Returns how long the steps after the first took, with all that is done between them, the time from the end of the last
    step until the checkpoint `newest` has its name (0 without one), and the processor's time of the whole run."""
    log, peaks = bench.out / "checkpoint.jsonl", bench.out / "checkpoint.rss"
    log.unlink(missing_ok=True)
    data = [f"--data={key}={folder}/{key}.npy" for key in ("ids", "labels")]
    command = [str(word) for word in (*bench.train_command(program, bench.ranks, data, steps, log, peaks), *flags)]
    first = last = named = None
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        while True:
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            lines, now = log.read_text().count("\n") if log.exists() else 0, time.perf_counter()
            if lines > 1 and first is None:
                first = now
            if lines > steps and last is None:  # a header and a line per step
                last = now
            if newest is not None and named is None and newest.exists():
                named = now
            if ended:
                break
            time.sleep(0.005)
        child.returncode = os.waitstatus_to_exitcode(status)
        error = child.stderr.read().decode()
    if child.returncode or first is None or last is None or (newest is not None and named is None):
        sys.exit(f"error: {' '.join(command)}\n{error[-2000:]}")
    return last - first, named - last if named else 0.0, usage.ru_utime + usage.ru_stime


def dd_rate(bench: Workbench, size: int) -> float:
    """Returns the MB/s with which `dd` writes and syncs a file of about this size."""
    target = bench.out / "dd"
    done = demand("dd", "if=/dev/zero", f"of={target}", "bs=4M", f"count={max(1, size >> 22)}", "conv=fsync")
    target.unlink()
    found = re.search(r"(\d+) bytes .* copied, ([0-9.e-]+) s", done.err)
    return int(found[1]) / float(found[2]) / 1e6


def torch_rate(bench: Workbench, size: int) -> float:
    """Returns the MB/s with which torch.distributed.checkpoint.async_save writes tensors of this size from one process."""
    target = bench.out / "async"
    done = demand(bench.python, "-c", ASYNC_SAVE, size, target)
    shutil.rmtree(target)
    return size / float(done.out.split()[-1]) / 1e6


def checkpoint(bench: Workbench, report: Report, quick: bool) -> None:
    # The last step writes a checkpoint too, for which nothing but the end waits.
    steps = (2 if quick else 4) * EVERY + 5
    report.title(f"Checkpoints of {MODEL}, {bench.ranks} ranks, one every {EVERY} of {steps} steps (at most {MOST} times the time)")
    folder = bench.export(MODEL)
    program, target = bench.out / "checkpointed", bench.out / "checkpoints"
    demand(*bench.gpt_command(folder), "-o", program)
    flags = ["--checkpoint", target, "--checkpoint-every", EVERY, "--keep", 1]
    found = {"none": [], "with": []}
    for _ in range(1 if quick else 3):
        for name in found:
            shutil.rmtree(target, ignore_errors=True)
            newest, more = (target / f"step-{steps:07d}", flags) if name == "with" else (None, [])
            found[name].append(times_of(bench, program, folder, steps, newest, *more))
    size = sum(path.stat().st_size for path in target.rglob("*.safetensors"))
    shutil.rmtree(target)
    best = {name: [min(column) for column in zip(*runs)] for name, runs in found.items()}
    report.table(["checkpoints", "ms per step", "÷ none", "processor s", "÷ none", ""],
                 [[name, f"{1e3 * steps_s / (steps - 1):.0f}", f"{steps_s / best['none'][0]:.3f}",
                   f"{core_s:.1f}", f"{core_s / best['none'][2]:.3f}",
                   "" if name == "none" else report.held("step with checkpoints ÷ without", steps_s / best["none"][0], most=MOST, form=".3f")]
                  for name, (steps_s, _, core_s) in best.items()])
    rates = {"the last checkpoint": size / best["with"][1] / 1e6, "dd": dd_rate(bench, size),
             "torch's async_save": torch_rate(bench, size)}
    report.keep("checkpoint", "figures", {"bytes": size, "seconds": best, "mb_per_s": rates})
    report.table(["written and synced by", "MB", "MB/s"], [[name, f"{size / 1e6:.0f}", f"{rate:.0f}"] for name, rate in rates.items()])

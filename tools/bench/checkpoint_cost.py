# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the cost of checkpoints: the time of ten steps of which one is followed by a checkpoint, beside that without, and the rate at which they
reach the disk beside `dd` and torch's async_save.

Runs with and without alternate. A step's time is that from its line in the log to the next one's, so it has all that is done between
steps. On a shared machine single steps take half as long again, which is more than what is measured; so of each of the ten steps, the
fastest of all windows of ten counts, on both sides. The time of the processor is that of all ranks for the whole run."""
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
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


@dataclass
class Run:
    steps: list[float]  # seconds of each step after the first
    named: float        # from the end of the last step until the newest checkpoint has its name; 0 without one
    core: float         # of the processor, in seconds


def train(bench: Workbench, program: Path, folder: Path, steps: int, newest: Path | None, *flags) -> Run:
    """Trains, and measures until the checkpoint `newest` has its name."""
    log, peaks = bench.out / "checkpoint.jsonl", bench.out / "checkpoint.rss"
    log.unlink(missing_ok=True)
    data = [f"--data={key}={folder}/{key}.npy" for key in ("ids", "labels")]
    command = [str(word) for word in (*bench.train_command(program, bench.ranks, data, steps, log, peaks), *flags)]
    ends, named = [], None
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        while True:
            ended, status, usage = os.wait4(child.pid, os.WNOHANG)
            lines, now = log.read_text().count("\n") if log.exists() else 0, time.perf_counter()
            while len(ends) < min(lines - 1, steps):  # the first line is the header
                ends.append(now)
            if newest is not None and named is None and newest.exists():
                named = now
            if ended:
                break
            time.sleep(0.005)
        child.returncode = os.waitstatus_to_exitcode(status)
        error = child.stderr.read().decode()
    if child.returncode or len(ends) < steps or (newest is not None and named is None):
        sys.exit(f"error: {' '.join(command)}\n{error[-2000:]}")
    return Run([after - before for before, after in zip(ends, ends[1:])], named - ends[-1] if named else 0.0,
               usage.ru_utime + usage.ru_stime)


def undisturbed(runs: list[Run]) -> float:
    """Returns the seconds of ten steps in a row: of each of them the fastest in all windows. The first window begins after step 5, so
    that the checkpoint after step 10 lies in its middle."""
    windows = [run.steps[first:first + EVERY] for run in runs for first in range(4, len(run.steps) - EVERY + 1, EVERY)]
    return sum(min(column) for column in zip(*windows))


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
            found[name].append(train(bench, program, folder, steps, newest, *more))
    size = sum(path.stat().st_size for path in target.rglob("*.safetensors"))
    shutil.rmtree(target)
    seconds = {name: undisturbed(runs) for name, runs in found.items()}
    core = {name: min(run.core for run in runs) for name, runs in found.items()}
    report.table(["checkpoints", f"ms per {EVERY} steps", "÷ none", "processor s", "÷ none", ""],
                 [[name, f"{1e3 * seconds[name]:.0f}", f"{seconds[name] / seconds['none']:.3f}",
                   f"{core[name]:.1f}", f"{core[name] / core['none']:.3f}",
                   "" if name == "none" else report.held("steps with checkpoints ÷ without", seconds[name] / seconds["none"], most=MOST,
                                                         form=".3f")]
                  for name in found])
    rates = {"the last checkpoint": size / min(run.named for run in found["with"]) / 1e6, "dd": dd_rate(bench, size),
             "torch's async_save": torch_rate(bench, size)}
    report.keep("checkpoint", "figures", {"bytes": size, "seconds": seconds, "core_seconds": core, "mb_per_s": rates})
    report.table(["written and synced by", "MB", "MB/s"], [[name, f"{size / 1e6:.0f}", f"{rate:.0f}"] for name, rate in rates.items()])

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Speed of ops beside torch: small training graphs (ops_torch.py) with forward, backward and SGD, one thread on one core.

Both train the same model on the same samples, in turn, so that other processes on the machine meet both. Times are core times, which
those hardly affect: with one thread on an idle core they are the wall clock's. Neither the start of a process nor its first steps
count: torch's process stays alive between its turns, and of ours the core time of a run of one step is taken off.
"""
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from report import Report
from workbench import HERE, Workbench, demand

SCRIPT = HERE / "ops_torch.py"
LEAST = 0.8                                   # of torch's speed
ROUNDS, TURN_MS = 5, 300                      # pairs of turns, and about how long each lasts


def pinned() -> list[str]:
    """Returns the prefix of a command that runs on one core, the last of those that this process may use."""
    return ["taskset", "-c", str(max(os.sched_getaffinity(0)))]


class Torch:
    """Torch's training of a case, some steps at a time."""

    def __init__(self, bench: Workbench, name: str, folder: Path):
        self.process = subprocess.Popen([*pinned(), bench.python, SCRIPT, name, "--train", folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def steps(self, count: int) -> float:
        """Returns the mean milliseconds of a step."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline().split()
        if not line:
            sys.exit("error: torch's training has ended early")
        return float(line[0])

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Ours:
    def __init__(self, bench: Workbench, folder: Path):
        self.program = folder / "program"
        demand(bench.fsdpc, folder / "model.onnx", "-o", self.program, "-q", "--optimizer=sgd", "--lr=1e-3", "--plan-ranks=1")
        self.data = [f"--data={path.stem}={path}" for path in sorted(folder.glob("*.npy"))]

    def core_ms(self, steps: int) -> float:
        def spent() -> float:
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            return usage.ru_utime + usage.ru_stime
        before = spent()
        demand(*pinned(), self.program, "--ranks", 1, "--threads", 1, *self.data, "--steps", steps)
        return 1e3 * (spent() - before)

    def steps(self, count: int) -> float:
        """Returns the mean milliseconds of a step."""
        start = self.core_ms(1)
        return (self.core_ms(count + 1) - start) / count


def compare(bench: Workbench, name: str) -> tuple[float, float, float]:
    """Returns the milliseconds of a step of both, the best of all turns, and the median quotient of the pairs."""
    folder = bench.out / "ops" / name
    folder.mkdir(parents=True, exist_ok=True)
    demand(bench.python, SCRIPT, name, "--export", folder)
    ours, torch = Ours(bench, folder), Torch(bench, name, folder)
    torch.steps(5)
    count = max(6, round(TURN_MS / torch.steps(5)))
    pairs = [(ours.steps(count), torch.steps(count)) for _ in range(ROUNDS)]
    torch.close()
    return *(min(times) for times in zip(*pairs)), statistics.median(b / a for a, b in pairs)


def ops(bench: Workbench, report: Report, quick: bool) -> None:
    report.title("Single ops beside torch on one core: forward, backward and SGD in f32")
    names = demand(bench.python, SCRIPT, "--list").out.split()
    rows = []
    for name in names[:1] if quick else names:
        ours, torch, ratio = compare(bench, name)
        report.keep("ops", name, {"ms": ours, "torch_ms": torch, "speed": ratio})
        rows.append([name, f"{ours:.2f}", f"{torch:.2f}", report.held(f"speed of {name} beside torch's", ratio, least=LEAST)])
        print(f"{name}: {ratio:.2f}", file=sys.stderr, flush=True)
    report.table(["op", "core ms per step", "torch, core ms", "median speed ÷ torch's"], rows)

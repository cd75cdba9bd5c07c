# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Helpers of all parts of the benchmark: run and measure commands, export, compile and train models."""
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MIB = 2**20
DTYPES = {"f32": [], "bf16": ["--param-dtype=bf16", "--reduce-dtype=f32"]}


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024


@dataclass
class Finished:
    code: int
    seconds: float
    peak_bytes: int                           # of the largest process of the command
    out: str
    err: str
    guarded: bool                             # stopped because available memory ran low


def execute(*command, guard: int = 0) -> Finished:
    """Runs a command. Stops it with all its processes if less than `guard` bytes of memory are available."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        began = time.perf_counter()
        child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        guarded, done = threading.Event(), threading.Event()

        def watch():
            while not done.wait(0.1):
                if available_bytes() < guard:
                    guarded.set()
                    os.killpg(child.pid, signal.SIGKILL)
                    return

        if guard:
            threading.Thread(target=watch, daemon=True).start()
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        done.set()
        child.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, err):
            stream.seek(0)
        return Finished(child.returncode, seconds, usage.ru_maxrss * 1024, out.read(), err.read(), guarded.is_set())


def demand(*command) -> Finished:
    """Runs a command and exits with an error if it fails."""
    done = execute(*command)
    if done.code:
        sys.exit(f"error: {' '.join(map(str, command))}\nexit code {done.code}\n{(done.out + done.err)[-4000:]}")
    return done


@dataclass
class Shape:
    text: str                                 # L6,D384,H6,T256,V50257
    batch: int
    flags: tuple = ()                         # flags for fsdpc

    @classmethod
    def parse(cls, text: str) -> "Shape":
        """From a shape's text, with an optional ',B2' at its end for the batch."""
        shape, _, batch = text.partition(",B")
        return cls(shape, int(batch or 4))

    @property
    def folder(self) -> str:
        return self.text.replace(",", "") + ("" if self.batch == 4 else f"B{self.batch}")

    def __str__(self) -> str:
        return " ".join([f"{self.text} batch {self.batch}", *self.flags])


@dataclass
class Training:
    """A run of a compiled program."""
    program: Path
    header: dict
    steps: list[dict]                         # without the first
    peak_mib: float                           # of the rank with the largest
    trace: Path                               # of rank 0

    def median(self, key: str) -> float:
        return statistics.median(step[key] for step in self.steps)


class Workbench:
    def __init__(self, options):
        self.fsdpc, self.limits, self.python = options.fsdpc, options.limits, options.python
        self.before = options.before              # the compiler of another build, or None
        self.out, self.ranks, self.steps, self.shape = options.out, options.ranks, options.steps, options.shape
        self.out.mkdir(parents=True, exist_ok=True)

    def export(self, shape: Shape, *flags: str, name: str = "") -> Path:
        """Returns the folder of an exported GPT and its samples. `name` tells apart those of other flags."""
        folder = self.out / f"{name}{shape.folder}"
        if not (folder / "gpt.onnx").exists():
            print(f"exporting {shape}", flush=True)
            demand(self.python, HERE / "export_gpt.py", folder, shape.text, "--batch", shape.batch, *flags)
        return folder

    def gpt_command(self, folder: Path, *flags: str) -> list:
        """Returns the command that compiles an exported GPT; the caller adds the output."""
        return [self.fsdpc, folder / "gpt.onnx", f"--plan-ranks={self.ranks}", "--optimizer=adamw",
                "--clip-grad-norm=1.0", *flags]

    def mpirun(self, ranks: int) -> list:
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks]

    def train_command(self, program: Path, ranks: int, data: list[str], steps: int, log: Path, peaks: Path) -> list:
        return [*self.mpirun(ranks), sys.executable, HERE / "peak_rss.py", peaks, program, *data, "--threads", 1,
                "--steps", steps, "--log", log]

    def train(self, shape: Shape, dtype: str, *flags: str, name: str = "zero3", folder: Path | None = None) -> Training:
        """Compiles a GPT of the shape, or the one in `folder`, and trains it with one thread per rank."""
        folder = folder or self.export(shape)
        program = self.out / f"{shape.folder}-{dtype}-{name}"
        demand(*self.gpt_command(folder, *shape.flags, *DTYPES[dtype], *flags), "-o", program)
        log, peaks, trace = (program.with_suffix(suffix) for suffix in (".jsonl", ".rss", ".trace.json"))
        data = [f"--data={name}={folder}/{name}.npy" for name in ("ids", "labels")]
        demand(*self.train_command(program, self.ranks, data, self.steps + 1, log, peaks), "--trace", trace)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        peak = max(float(Path(f"{peaks}.{rank}").read_text()) for rank in range(self.ranks))
        first = trace if self.ranks == 1 else trace.with_suffix(".0.json")
        return Training(program, lines[0], [line for line in lines if "loss" in line][1:], peak, first)

    def peer(self, shape: Shape, dtype: str, *flags: str) -> dict:
        """Trains the same shape with PyTorch FSDP2. Returns {"torch", "tokens_per_s", "step_ms", "core_ms", "peak_rss_mib", …}."""
        out = demand(self.python, "-m", "torch.distributed.run", "--nproc_per_node", self.ranks, HERE / "torch_fsdp.py", shape.text,
                     "--batch", shape.batch, "--steps", self.steps + 1, "--dtype", dtype, *flags).out
        return json.loads(next(line for line in out.splitlines() if line.startswith("{")))

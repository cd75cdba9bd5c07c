# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills runs at random moments, lets their system calls fail, resumes them on other ranks and strategies, and checks that nothing of
it shows in the weights.

usage: soak.py --build DIR [--histories 3] [--seed S]

A history is one training that is disturbed several times: killed by SIGKILL, one rank of it or all, while it computes, writes a
checkpoint or starts; or a call on its checkpoints fails, once or from then on, as on a full disk. Each part runs on a random number of
ranks, as threads or under mpirun, with a random strategy and rhythm of checkpoints. In the end the weights must have the bits of a run
that nobody disturbed. A seed repeats the choices, not the moments.
"""
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from harness import Failure, TIMEOUT, fixture, main, mpirun

MODEL, MICROBATCHES, STEPS, PARTS = "gpt_dropout", 4, 12, 3
STRATEGIES = ("zero3", "zero2", "zero1", "ddp")
# Calls of tests/runtime/train/runtime_fault_shim.cpp, and with what they fail.
FAULTS = {"open": (5, 24), "write": (5, 28), "fsync": (5,), "rename": (28,), "close": (5,), "mkdir": (28,), "read": (5,)}


def descendants(pid: int) -> list[int]:
    """Returns the processes that `pid` has started, and those that they have started."""
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in file.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Soak:
    def __init__(self, bench, seed: int):
        self.bench, self.random, self.fixture = bench, random.Random(seed), fixture(MODEL)
        self.programs = [bench.compile_fixture(self.fixture, strategy, f"--strategy={strategy}") for strategy in STRATEGIES]
        self.runs = self.killed = self.failed = 0

    def command(self, program: Path, ranks: int, local: bool, saved: Path, *flags) -> list[str]:
        launch = [program, "--ranks", ranks] if local else [*mpirun(ranks), program]
        return [str(word) for word in
                (*launch, *self.fixture.data, "--seed", self.fixture.seed, "--steps", STEPS, "--shuffle", "--threads", 1,
                 "--accumulate", MICROBATCHES // ranks, "--save", saved, *flags)]

    def start(self, command: list[str], **variables: str) -> subprocess.Popen:
        self.runs += 1
        self.output = open(self.bench.path("output"), "w+")
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=self.output, env={**os.environ, **variables})

    def finish(self, command: list[str], running: subprocess.Popen, codes=(0,)) -> None:
        """Waits for a run that was not killed, which must succeed."""
        if running.wait(TIMEOUT) not in codes:
            self.output.seek(0)
            raise Failure(f"{' '.join(command)}\nexit code {running.returncode}\n{self.output.read()[-4000:]}")

    def fail(self, command: list[str]) -> None:
        """Runs to the end while a call on files of checkpoints fails in each process: the run goes on, or ends with an error."""
        self.failed += 1
        call = self.random.choice(list(FAULTS))
        how = {"FAULT_CALL": call, "FAULT_ERRNO": str(self.random.choice(FAULTS[call])), "FAULT_PATH": "checkpoints-",
               self.random.choice(("FAULT_AT", "FAULT_FROM")): str(self.random.randint(1, 12)),
               "LD_PRELOAD": str(self.bench.build / "lib" / "libruntime_fault_shim.so")}
        self.finish([*map("=".join, how.items()), *command], self.start(command, **how), (0, 3))

    def disturb(self, command: list[str], seconds: float) -> None:
        """Starts a run and kills one rank or all of them after a while, unless it has ended."""
        running = self.start(command)
        try:
            running.wait(seconds)
        except subprocess.TimeoutExpired:
            self.killed += 1
            started = descendants(running.pid)
            one = started and self.random.random() < 0.5
            kill([self.random.choice(started)] if one else [running.pid, *started])
            try:
                running.wait(4)
            except subprocess.TimeoutExpired:  # mpirun may wait for ever if a rank ends before all have joined
                kill([running.pid, *started])
            running.wait()
            kill(started)  # the lock of the folder ends with the last rank
            while any(Path(f"/proc/{pid}").exists() for pid in started):
                time.sleep(0.01)
            return
        self.finish(command, running)

    def choose(self, folder: Path, saved: Path) -> list[str]:
        ranks = self.random.choice([ranks for ranks in (1, 2, 4) if MICROBATCHES % ranks == 0])
        return self.command(self.random.choice(self.programs), ranks, ranks == 1 or self.random.random() < 0.5, saved,
                            "--checkpoint", folder, "--checkpoint-every", self.random.randint(1, 4), "--resume",
                            "--keep", self.random.randint(1, 3))

    def run(self, histories: int) -> None:
        saved = self.bench.path("undisturbed.safetensors")
        began = time.monotonic()
        command = self.command(self.programs[0], 2, False, saved)
        self.finish(command, self.start(command))
        usual = time.monotonic() - began
        expected = saved.read_bytes()
        history = 0
        # Goes on until a run was killed: all parts may fail by themselves or end sooner.
        while history < histories or (histories > 1 and not self.killed and history < 10 * histories):
            folder, saved = (self.bench.path(f"{name}-{history}") for name in ("checkpoints", "saved"))
            for _ in range(PARTS):
                if self.random.random() < 0.3:
                    self.fail(self.choose(folder, saved))
                else:
                    self.disturb(self.choose(folder, saved), self.random.uniform(0, 0.8) * usual)
            command = self.choose(folder, saved)
            self.finish(command, self.start(command))
            if saved.read_bytes() != expected:
                raise Failure(f"history {history} ended in other weights; its last part was\n{' '.join(command)}")
            history += 1
        print(f"{self.runs} runs, of which {self.killed} were killed and {self.failed} had a call that fails")
        if histories > 1 and not self.killed:
            raise Failure("no run was killed: all had ended before")


def test(bench, options) -> None:
    print(f"seed {options.seed}")
    Soak(bench, options.seed).run(options.histories)


def arguments(parser):
    parser.add_argument("--histories", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))


if __name__ == "__main__":
    sys.exit(main(__doc__, test, arguments))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slows one of four ranks down, which must be named within 50 steps.

The rank is stopped and continued by signals, as if something else had its processor most of the time. A step has so many
microbatches that it lasts for several of these turns, however fast the machine is: a shorter step could run between two stops.
Four ranks of a test machine share two processors or fewer, so all of them vary; only that the slow one is named is checked, and when.
"""
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

RANKS, SLOW = 4, 2
STEPS = 50                                    # within which the rank is named
SECONDS = 120                                 # for it to be named, on a busy machine
MICROBATCHES = 8                              # of each rank in a step
STOPPED, RUNNING = 0.05, 0.005                # seconds, in turns


def process_of(rank: int, program: Path) -> int:
    """The process of a rank under mpirun."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                variables = (process / "environ").read_bytes().split(b"\0")
                if os.readlink(process / "exe") == str(program) and f"OMPI_COMM_WORLD_RANK={rank}".encode() in variables:
                    return int(process.name)
            except OSError:
                continue                      # it has just ended
        time.sleep(0.05)
    raise Failure(f"rank {rank} has not started after {SECONDS} s")


def last_step(log: Path) -> int:
    found = re.findall(r'"step":\s*(\d+)', log.read_text()) if log.exists() else []
    return int(found[-1]) if found else -1


class Slowness(threading.Thread):
    """Stops a process most of the time until `enough` is set."""

    def __init__(self, process: int):
        super().__init__(daemon=True)
        self.process, self.enough = process, threading.Event()

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                os.kill(self.process, signal.SIGSTOP)
                time.sleep(STOPPED)
                os.kill(self.process, signal.SIGCONT)
                time.sleep(RUNNING)
        except ProcessLookupError:
            pass                              # the job has ended, which the test sees


def test(bench, options) -> None:
    chosen = harness.fixture("gpt")
    program = bench.compile_fixture(chosen, "train")
    log = bench.path("log.jsonl")
    words = [*harness.mpirun(RANKS), program, *chosen.data, "--seed", chosen.seed, "--threads", 1,
             "--accumulate", MICROBATCHES, "--steps", 10**6, "--log", log]
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as job:
        slowness = Slowness(process_of(SLOW, program))
        watch = threading.Timer(SECONDS, job.kill)
        watch.start()
        try:
            while last_step(log) < 5 and job.poll() is None:
                time.sleep(0.02)
            begin = last_step(log)
            slowness.start()
            text, named = "", None
            for line in job.stderr:
                text += line
                if named := re.search(rf"rank {SLOW} on host '.*' has been slow: .* \(20 steps up to (\d+)\)", line):
                    break
        finally:
            slowness.enough.set()
            slowness.join()
            job.terminate()
            job.wait()
            watch.cancel()
        if not named:
            raise Failure(f"rank {SLOW} is not named:\n{text}")
        if int(named.group(1)) > begin + STEPS:
            raise Failure(f"rank {SLOW} is slow from step {begin} on, and named in step {named.group(1)}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

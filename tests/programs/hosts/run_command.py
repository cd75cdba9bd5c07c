# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs jobs on this host by `fsdpc run`.

A model is compiled once for the same content and flags, also without a cache and by two at once. Threads, mpirun and ranks that a shell
starts train to the same bits. A signal lets a job save and end with 4. A killed rank is started again and ends with the same bits.
Stand-ins for a program show which codes start a job again, and how often.
"""
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure, run

SECONDS = 60                                  # for a job to come to a step, or to end


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


class Runs:
    """Calls of `fsdpc run` with a cache of their own."""

    def __init__(self, bench):
        self.bench, self.chosen = bench, harness.fixture("gpt")
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(bench.path("cache"))}
        self.programs = bench.path("cache") / "fsdpc" / "programs"
        self.training = [self.chosen.model, *self.chosen.compiling, *self.chosen.data, "--seed", self.chosen.seed, "--threads", 1]

    def words(self, *words) -> list[str]:
        return [str(word) for word in (self.bench.build / "bin" / "fsdpc", "run", *words)]

    def run(self, *words, expected: int = 0, **environment) -> str:
        done = run(self.words(*words), expected, cwd=self.bench.folder, env={**self.environment, **environment})
        return done.stdout + done.stderr

    def begin(self, *words) -> subprocess.Popen:
        return subprocess.Popen(self.words(*words), cwd=self.bench.folder, env=self.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def await_step(log: Path, step: int) -> None:
    """Waits until a log has a step."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if log.exists():
            whole = log.read_text().rpartition("\n")[0].splitlines()
            if whole and json.loads(whole[-1]).get("step", -1) >= step:
                return
        time.sleep(0.02)
    raise Failure(f"'{log.name}' has no step {step} after {SECONDS} s")


def test_cache(runs: Runs) -> None:
    short = [*runs.training, "--steps", 1]
    first = [runs.begin(*short) for _ in range(2)]
    notes = [each.communicate(timeout=harness.TIMEOUT)[1] for each in first]
    expect([each.returncode for each in first] == [0, 0], f"two compiles at once: {notes}")
    made = list(runs.programs.iterdir())
    expect(len(made) == 1 and stat.S_IMODE(made[0].stat().st_mode) == 0o700, f"two compiles at once leave {made}")
    expect("is compiled already" in runs.run(*short), "a second run compiles again")
    expect("fsdpc run: compiled" in runs.run(*short, "--strategy=ddp"), "other flags take the same program")
    expect(len(list(runs.programs.iterdir())) == 2, "other flags have no program of their own")
    # A program that others may have changed is not started.
    made[0].chmod(0o722)
    expect("fsdpc run: compiled" in runs.run(*short), "a program that others may write is started")
    runs.programs.chmod(0o777)
    expect("others can write" in runs.run(*short), "a folder that others may write is used")
    runs.programs.chmod(0o700)
    expect("are not kept" in runs.run(*short, XDG_CACHE_HOME="", HOME=""), "a run without a home does not say so")
    expect("which goes with the job" in runs.run(*short, "--cache", "none"), "--cache none keeps the program")


def test_launchers(runs: Runs) -> None:
    """Each launcher gives the bits of the program alone."""
    saved = {}
    for name, words in {"one": ["--accumulate", 4], "threads": ["-np", 2, "--launcher", "threads", "--microbatches", 4],
                        "mpirun": ["-np", 4, "--launcher", "mpirun"],
                        "ssh": ["--hosts", "localhost:2", "--launcher", "ssh", "--microbatches=4"]}.items():
        text = runs.run(*runs.training, *words, "--steps", 5, "--save", f"{name}.safetensors")
        saved[name] = runs.bench.path(f"{name}.safetensors").read_bytes()
        expect(saved[name] == saved["one"], f"{name} has other bits than one rank:\n{text}")


def test_signals(runs: Runs) -> None:
    for launcher, hosts in (("threads", []), ("mpirun", []), ("ssh", ["--hosts", "localhost:2"])):
        log, folder = runs.bench.path(f"{launcher}.jsonl"), runs.bench.path(f"{launcher}-ckpt")
        with runs.begin(*runs.training, "-np", 2, *hosts, "--launcher", launcher, "--steps", 10**6, "--log", log,
                        "--checkpoint", folder, "--restarts", 3) as job:
            await_step(log, 5)
            job.send_signal(signal.SIGTERM)
            text = job.communicate(timeout=SECONDS)[1]
        expect(job.returncode == 4, f"{launcher}: SIGTERM ends with {job.returncode}:\n{text}")
        expect(len(list(folder.glob("step-*"))) == 1, f"{launcher}: SIGTERM leaves no checkpoint")
        expect("starting it again" not in text, f"{launcher}: starts again after SIGTERM")


def ranks_of(program: Path) -> list[int]:
    """The processes that run this file."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.readlink(process / "exe") == str(program):
                found.append(int(process.name))
        except OSError:
            continue                          # it has just ended
    return found


def test_killed_rank(runs: Runs) -> None:
    program = runs.bench.compile_fixture(runs.chosen, "train")
    data = [*runs.chosen.data, "--seed", runs.chosen.seed, "--threads", 1, "--steps", 400]
    runs.run(program, "-np", 2, *data, "--save", "whole.safetensors")
    log = runs.bench.path("killed.jsonl")
    with runs.begin(program, "-np", 2, *data, "--log", log, "--checkpoint", "killed-ckpt", "--checkpoint-every", 50,
                    "--restarts", 2, "--save", "killed.safetensors") as job:
        await_step(log, 120)
        os.kill(ranks_of(program)[-1], signal.SIGKILL)
        text = job.communicate(timeout=SECONDS)[1]
    expect(job.returncode == 0 and "the job ended with 137; starting it again from the checkpoint of step" in text,
           f"a killed rank: {job.returncode}\n{text}")
    same = runs.bench.path("whole.safetensors").read_bytes() == runs.bench.path("killed.safetensors").read_bytes()
    expect(same, "a restarted job has other bits")
    steps = [line["step"] for line in map(json.loads, log.read_text().splitlines()) if "step" in line and "loss" in line]
    expect(steps == list(range(400)), "the log of a restarted job does not have each step once")


def test_codes(runs: Runs) -> None:
    """Which codes start a job again. The stand-in ends as the next line of a list says, with or without a checkpoint before."""
    train = runs.bench.path("stand-in")
    train.write_text('#!/bin/sh\necho "$@" >> calls\nread -r code more < ends; sed -i 1d ends\n'
                     '[ -z "$more" ] || mkdir -p ckpt/$(printf step-%07d $(wc -l < calls))\nexit $code\n')
    train.chmod(0o700)
    for ends, starts, expected in (([5, 4, 1], 3, 1), ([3, 0], 1, 3), ([2, 0], 1, 2), (["5 new", 5, "5 new", 5, 5, 0], 5, 5)):
        for name in ("calls", "ends"):
            runs.bench.path(name).write_text("".join(f"{end}\n" for end in ends) if name == "ends" else "")
        runs.run(train, "--steps", 9, "--resume=3", "--checkpoint", "ckpt", "--restarts", 2, expected=expected)
        calls = runs.bench.path("calls").read_text().splitlines()
        expect(len(calls) == starts, f"after {ends} the job was started {len(calls)} times")
        again = "--steps 9 --checkpoint ckpt --resume"
        expect(calls[0] == "--steps 9 --resume=3 --checkpoint ckpt" and set(calls[1:]) <= {again}, f"flags {calls}")


def test(bench, options) -> None:
    runs = Runs(bench)
    test_cache(runs)
    test_launchers(runs)
    test_signals(runs)
    test_killed_rank(runs)
    test_codes(runs)


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks --watchdog: a rank that is stopped under mpirun, and a step that does not get on, end the job with a line and a record.

usage: watchdog.py --build DIR
"""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure, mpirun, run

ENDLESS = 1 << 30                             # steps


def pid_of(program: Path, rank: int) -> int:
    """Returns the process that mpirun started as this rank of the program."""
    wanted = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "exe").resolve() == program.resolve() and \
                    wanted in (process / "environ").read_bytes().split(b"\0"):
                return int(process.name)
        except OSError:
            continue
    raise Failure(f"no process runs rank {rank}")


def await_steps(log: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_text().count('"step"') < count:
        if time.monotonic() > deadline:
            raise Failure(f"'{log}' has no {count} steps after a minute")
        time.sleep(0.1)


def check_record(path: Path, rank: int) -> dict:
    record = json.loads(path.read_text())
    commands = [row for rows in record["streams"].values() for row in rows]
    if record["rank"] != rank or not any(row.get("unit") and row["state"] == "done" for row in commands):
        raise Failure(f"'{path}' names no commands of rank {rank}: {record}")
    return record


def check_stopped(bench, program, fixture) -> None:
    """SIGSTOP: mpirun does not notice, the other rank does. It names the rank and says where it waits itself."""
    log, flight = bench.path("stopped.jsonl"), bench.path("flight.json")
    command = [*mpirun(2), program, *fixture.data, "--steps", ENDLESS, "--log", log, "--watchdog", 4, "--threads", 1,
               "--flight-recorder", flight]
    with subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as job:
        try:
            await_steps(log, 5)
            stopped = pid_of(program, 1)
            os.kill(stopped, signal.SIGSTOP)
            errors = job.communicate(timeout=60)[1]
        except subprocess.TimeoutExpired:
            raise Failure("a stopped rank does not end the job") from None
        finally:
            job.kill()
            if "stopped" in locals() and Path(f"/proc/{stopped}/exe").exists():
                os.kill(stopped, signal.SIGKILL)
    lines = [line for line in errors.splitlines() if line.startswith("error:")]
    expected = r"error: rank 1 on node '[^']+' was lost \(no answer for 4 s\); rank 0 is at step \d+.*; the last commands are in '.*flight.0.json'"
    if job.returncode != 5 or len(lines) != 1 or not re.match(expected, lines[0]):
        raise Failure(f"exit code {job.returncode}, expected 5, and one line like '{expected}':\n{errors}")
    record = check_record(bench.path("flight.0.json"), 0)
    if not record["waits_for_others"]:
        raise Failure(f"rank 0 waits for rank 1, but its record says otherwise: {record}")


def check_stuck(bench, program, fixture) -> None:
    """A command that takes longer than the limit, which is next to nothing here."""
    flight = bench.path("stuck.json")
    done = run([program, *fixture.data, "--steps", ENDLESS, "--threads", 1, "--watchdog", 0.0005, "--flight-recorder", flight], 5)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    expected = r"error: rank 0 on host '[^']+' has not got on for \S+ s: step \d+.*; the last commands are in '.*stuck.json'"
    if len(lines) != 1 or not re.match(expected, lines[0]):
        raise Failure(f"expected one line like '{expected}':\n{done.stderr}")
    check_record(flight, 0)


def test(bench, options):
    fixture = harness.fixture("gpt")
    program = bench.compile_fixture(fixture, "gpt")
    check_stopped(bench, program, fixture)
    check_stuck(bench, program, fixture)
    # A limit that a run keeps leaves no file behind.
    unused = bench.path("unused.json")
    run([program, *fixture.data, "--steps", 3, "--watchdog", 60, "--flight-recorder", unused])
    if unused.exists():
        raise Failure(f"a run that got on has left '{unused}'")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long a job takes to start and to end, beside one of another build: two ranks that meet over TCP, and two under mpirun, each for
a single step of a small model. Both builds take turns, so that a machine that becomes slower meets both."""
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from report import Report
from workbench import HERE, Workbench, demand

sys.path.insert(0, str(HERE.parent.parent / "tests" / "programs"))
import harness  # noqa: E402  the tests' fixtures, and their references' flags

PAIRS = 20
MOST = 0.3        # seconds that checks at start may add


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def over_tcp(bench: Workbench, command: list[str]) -> float:
    """Returns the seconds from the start of the first rank to the end of the last."""
    job = {**os.environ, "WORLD_SIZE": str(bench.ranks), "LOCAL_WORLD_SIZE": str(bench.ranks), "MASTER_ADDR": "127.0.0.1",
           "MASTER_PORT": str(free_port())}
    begin = time.perf_counter()
    ranks = [subprocess.Popen(command, env={**job, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.DEVNULL)
             for rank in range(bench.ranks)]
    if any([rank.wait() for rank in ranks]):
        sys.exit(f"error: {' '.join(command)}\na rank of a job over TCP failed")
    return time.perf_counter() - begin


def under_mpirun(bench: Workbench, command: list[str]) -> float:
    begin = time.perf_counter()
    demand(*bench.mpirun(bench.ranks), *command)
    return time.perf_counter() - begin


def start_up(bench: Workbench, report: Report, quick: bool) -> None:
    fixture = harness.fixture("linears")
    programs: dict[str, Path] = {}
    for name, compiler in (("before", bench.before), ("now", bench.fsdpc)):
        programs[name] = bench.out / f"start-up-{name}"
        demand(compiler, fixture.model, "-o", programs[name], *fixture.compiling)
    pairs = 5 if quick else PAIRS
    report.title(f"A job of {bench.ranks} ranks and one step, from start to end: this build and {bench.before}, {pairs} pairs in turn")
    rows = []
    for launch in (over_tcp, under_mpirun):
        times = {name: [] for name in programs}
        for _ in range(pairs):
            for name, program in programs.items():
                times[name].append(launch(bench, [str(program), *fixture.data, "--threads", "1", "--steps", "1"]))
        medians = {name: statistics.median(seconds) for name, seconds in times.items()}
        report.keep("startup", launch.__name__, times)
        rows.append([launch.__name__.replace("_", " "), *(f"{1e3 * seconds:.1f}" for seconds in medians.values()),
                     report.held(f"seconds that a start {launch.__name__} takes more", medians["now"] - medians["before"], most=MOST)])
    report.table(["launched", "before, ms", "now, ms", "more, s"], rows)

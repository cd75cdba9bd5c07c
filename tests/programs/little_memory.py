#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that no exception leaves a tool: each command works, or ends with one error, where the system gives it no more memory.

usage: little_memory.py --build DIR [--all]

A limit on addresses (ulimit -v) makes allocations fail at another place with each value, in libraries and in threads too. Below some
value the loader itself fails. No command ends by a signal of ours, and none leaves a temporary folder. The kernel ends a thread by SIGSEGV
whose stack cannot grow, which depends on how far the other threads are: a fault counts if it comes three times in a row.
"""
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

MIB = 1 << 20
LOADER = 127                                  # the loader's exit code
# oneDNN 2 does not check an allocation before it writes its first kernel, so that these may end by SIGSEGV.
RUNS = ("a run", "ranks", "resume")
SAMPLE = ("compile", "verify")
ATTEMPTS = 3


def limited(command: list, mebibytes: int, temporary: Path) -> subprocess.CompletedProcess:
    return subprocess.run(["prlimit", f"--as={mebibytes * MIB}", "--core=0", *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", timeout=120, env={**os.environ, "TMPDIR": str(temporary)})


def fault(done: subprocess.CompletedProcess, temporary: Path) -> str:
    """Returns what is wrong with a command that has failed, or nothing."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    if done.returncode < 0 or done.returncode >= 128:
        return f"ends with {done.returncode}"
    if done.returncode == LOADER:
        return "" if "loading shared libraries" in done.stderr or "symbol lookup error" in done.stderr else "has no error of the loader"
    if done.returncode not in (1, 3) or len(errors) != 1:
        return f"ends with {done.returncode} and {len(errors)} errors"
    if any(text in done.stderr for text in ("terminate called", "PLEASE submit", "Stack dump", "what()")):
        return "shows an exception"
    if left := [path.name for path in temporary.iterdir()]:
        return f"leaves {left}"
    return ""


def least(command: list, temporary: Path) -> int:
    """Returns a limit with which the command works, and with which it fails 16 MiB below."""
    low, high = 0, 8192
    while high - low > 16:
        middle = (low + high) // 2
        low, high = (low, middle) if limited(command, middle, temporary).returncode == 0 else (middle, high)
    return high


def check(name: str, command: list, temporary: Path, steps: int) -> None:
    """Fails the command at `steps` limits between the one with which the tool starts and the one that suffices."""
    enough, begin = least(command, temporary), least([command[0], "--help"], temporary) - 16
    codes = []
    for step in range(steps):
        mebibytes = begin + (enough - begin) * step // steps
        for attempt in range(ATTEMPTS):
            done = limited(command, mebibytes, temporary)
            if done.returncode == 0:
                break
            codes.append(done.returncode)
            if name in RUNS and done.returncode == -signal.SIGSEGV:
                break
            why = fault(done, temporary)
            if not why:
                break
            for left in temporary.iterdir():
                shutil.rmtree(left, ignore_errors=True)
        else:
            raise Failure(f"{name} with {mebibytes} MiB {why}: {done.stderr[-1500:]}")
    if not codes:
        raise Failure(f"{name} did not fail below {enough} MiB")
    print(f"{name}: works with {enough} MiB, else ends with {sorted(set(codes))} ({len(codes)} limits)", flush=True)


def test(bench, options) -> None:
    chosen, fsdpc = harness.fixture("linears"), bench.build / "bin/fsdpc"
    temporary, out = bench.path("tmp"), bench.path("out")
    temporary.mkdir()
    out.mkdir()
    program = bench.compile_fixture(chosen, "out/train", f"--dump-ir={out}/ir")
    run = [program, *chosen.data, "--threads", "2"]
    saved, log, checkpoint = out / "s.safetensors", out / "log.jsonl", out / "c"
    harness.run([*run, "--steps", "2", "--save", saved, "--log", log, "--checkpoint", checkpoint])
    dump = harness.dump(out / "ir", "verify-memory")
    cases = {
        "info": [program, "--info"], "manifest": [program, "--manifest"], "a run": [*run, "--steps", "2"],
        "ranks": [*run, "--steps", "2", "--ranks", "3"], "resume": [*run, "--steps", "3", "--checkpoint", checkpoint, "--resume"],
        "compile": [fsdpc, chosen.model, "-o", out / "again", "-q"], "dump": [fsdpc, dump, f"--weights={harness.MODELS}", "-o", out / "again", "-q"],
        "check": [fsdpc, "check", chosen.model], "simulate": [fsdpc, "simulate", chosen.model, "--ranks=2"],
        "diff": [fsdpc, "diff", dump, dump], "top": [fsdpc, "top", "--once", log],
        "inspect": [fsdpc, "ckpt", "inspect", checkpoint], "verify": [fsdpc, "ckpt", "verify", checkpoint],
        "consolidate": [fsdpc, "ckpt", "consolidate", checkpoint, "-o", out / "all.safetensors"],
        "export": [fsdpc, "export", chosen.model, f"--weights={saved}", "-o", out / "trained.onnx"],
    }
    for name, command in cases.items():
        if name in (options.only or (cases if options.all else SAMPLE)):
            check(name, command, temporary, 40 if options.all else 5)


def add_all(parser) -> None:
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these cases alone")
    parser.add_argument("--all", action="store_true", help="all commands, with more limits")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, add_all))

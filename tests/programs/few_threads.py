#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what happens where a user may have only so many threads: each command works, or ends with one error that names the limit.

usage: few_threads.py --build DIR

The limit does not hold for root, so root runs the commands as a user that has no other processes. Exits with 77 where that is not
possible, or where that user may not read the build. The last check hides /proc.
"""
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import harness
from harness import Failure

SKIPPED = 77
USER = 54321                                  # nobody's


def limited(command: list, most: int) -> subprocess.CompletedProcess:
    """Runs a command as USER with up to `most` processes and threads."""
    return subprocess.run(["prlimit", f"--nproc={most}", "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
                           *map(str, command)], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=120,
                          env={**os.environ, "TMPDIR": "/tmp"})


def check(name: str, command: list) -> None:
    """Raises the limit until the command works."""
    for most in range(1, 60):
        done = limited(command, most)
        if done.returncode == 0:
            if most == 1:
                raise Failure(f"{name} works with one thread, so that nothing was tested: {done.stderr}")
            print(f"{name}: works with {most} threads", flush=True)
            return
        errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        named = f"limits: {most} processes and threads of this user (ulimit -u)" in done.stderr
        if done.returncode not in (1, 3) or not errors or not named or "terminate called" in done.stderr or "PLEASE" in done.stderr:
            raise Failure(f"{name} with {most} threads ends with {done.returncode} and says: {done.stderr}")
    raise Failure(f"{name} does not work with 60 threads")


def check_without_proc(command: list) -> None:
    """The processor's list of features is in /proc."""
    words = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", *map(str, command)]
    if subprocess.run([*words[:6], "true"], capture_output=True).returncode != 0:
        print("without /proc: skipped, since nothing can be mounted here")
        return
    harness.run(words)
    print("without /proc: works")


def test(bench, options) -> None:
    chosen = harness.fixture("linears")
    bench.folder.chmod(0o777)
    program = bench.compile_fixture(chosen, "train")
    if os.geteuid() != 0 or limited([program, "--help"], 100).returncode != 0:
        print("skipped: only root can run commands as another user, who must be able to read the build")
        sys.exit(SKIPPED)
    training = [program, *chosen.data, "--steps", "2"]
    check("a run", [*training, "--threads", "3"])
    check("a run of ranks", [*training, "--threads", "2", "--ranks", "3", "--checkpoint", bench.path("c")])
    check("a compile", [bench.build / "bin/fsdpc", chosen.model, "-o", bench.path("again"), "-q"])
    check_without_proc([*training, "--threads", "2"])


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs `fsdpc doctor` on this machine, and with less than it has; and `fsdpc --version`.

usage: doctor_command.py --build DIR
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "programs"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import harness
from harness import Failure
from version import version


def expect(what: str, words: list, code: int, *patterns: str, **more) -> None:
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **more)
    text = done.stdout + done.stderr
    if done.returncode != code or (lacking := [pattern for pattern in patterns if not re.search(pattern, text, re.MULTILINE)]):
        raise Failure(f"{what} ends with {done.returncode}, lacks {lacking if done.returncode == code else []}, and says:\n{text}")
    print(what, flush=True)


def test(bench, options) -> None:
    fsdpc = bench.build / "bin/fsdpc"
    expect("this machine", [fsdpc, "doctor"], 0, r"^ok +processor .*AVX", r"^ok +compiler ", r"^(ok|-) +mpirun ", r"^(ok|-) +/dev/shm ")
    expect("--version", [fsdpc, "--version"], 0, rf"^fsdpc {re.escape(version())}$", r"^commit ([0-9a-f]{12}|unknown)$", r"^LLVM \d", r"^oneDNN \d",
           r"^targets .*\bhost\b")
    expect("without PATH", [fsdpc, "doctor"], 0, r"^- +mpirun +not on PATH\n +-> .*apt install openmpi-bin", env={"PATH": "/nowhere"})
    expect("few files", ["prlimit", "--nofile=64", fsdpc, "doctor"], 0, r"^- +open files +64\n +-> .*ulimit -n 1024")
    expect("no temporary folder", [fsdpc, "doctor"], 1, r"^WRONG temporary files +no folder '/nowhere'\n +-> set TMPDIR",
           env={"TMPDIR": "/nowhere"})
    expect("a wrong flag", [fsdpc, "doctor", "--cure"], 2, r"error: .*--cure.*see fsdpc doctor --help")
    expect("a copy without its folder", ["sh", "-c", 'cp "$1" "$2" && "$2" doctor', "sh", fsdpc, bench.path("fsdpc")], 1,
           r"^WRONG compiler +lacks 'lib/libfsdpc_runtime.a', 'lib/link/complete', .*\n +-> install fsdpc again")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

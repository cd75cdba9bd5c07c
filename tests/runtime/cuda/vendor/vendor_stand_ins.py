#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the real side of the CUDA table on stand-ins of the vendor's libraries, once per call that can fail.

usage: vendor_stand_ins.py --build DIR --gcov FILE

vendor_rank goes through the table as one rank does. First every call succeeds. Then each call fails in turn, and of the many that
cudnn_frontend makes for its own descriptors every SAMPLE-th: the table must report an error, keep the vendor's rules on its way
out, and leave nothing behind. Last, two ranks run at the same time. Prints the covered lines of runtime/cuda/real_* and fails below
LEAST of them.
"""
import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
from pathlib import Path

LEAST = 0.95
SAMPLE = 8
SAMPLED = {"cudnnBackendCreateDescriptor", "cudnnBackendDestroyDescriptor", "cudnnBackendSetAttribute", "cudnnBackendGetAttribute"}

# Calls whose failure the table need not report, and why.
UNREPORTED = {
    "cublasLtMatrixLayoutDestroy": "in a destructor",
    "cublasLtMatmulDescDestroy": "in a destructor",
    "cublasLtMatmulPreferenceDestroy": "the algorithm is chosen already",
    "cublasLtMatmulAlgoConfigGetAttribute": "text for the log, or the algorithm is refused",
    "cudaGraphDestroy": "the executable graph no longer needs it",
    "cudnnBackendCreateDescriptor": "cudnn_frontend takes another engine",
    "cudnnBackendSetAttribute": "cudnn_frontend takes another engine",
    "cudnnBackendGetAttribute": "cudnn_frontend takes another engine",
    "cudnnBackendFinalize": "cudnn_frontend takes another engine",
    "cudnnBackendDestroyDescriptor": "in a destructor of cudnn_frontend",
}


def run(program: Path, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60)


def gcov_command(gcov: str) -> list[str]:
    return [gcov, "gcov"] if Path(gcov).name.startswith("llvm-cov") else [gcov]


def covered_lines(gcov: str, build: Path, objects: Path) -> dict[str, tuple[int, list[int]]]:
    """Returns by file the number of lines with code, and those that never ran."""
    lines: dict[str, dict[int, bool]] = {}
    for data in sorted(objects.rglob("real_*.gcda")):
        text = subprocess.run([*gcov_command(gcov), "-t", data], capture_output=True, text=True, check=True, cwd=build).stdout
        file = ""
        for line in text.splitlines():
            if source := re.match(r"\s*-:\s*0:Source:(.*)", line):
                file = Path(source[1]).name
            elif counted := re.match(r"\s*([0-9#=]+)\*?:\s*([1-9][0-9]*):", line):
                # Templates appear once for each instance.
                seen = lines.setdefault(file, {})
                seen[int(counted[2])] = seen.get(int(counted[2]), False) or counted[1][0] not in "#="
    real = {file: seen for file, seen in lines.items() if re.fullmatch(r"real_\w+\.cpp", file)}
    return {file: (len(seen), [number for number, ran in sorted(seen.items()) if not ran]) for file, seen in sorted(real.items())}


def failing_calls(calls: list[str]) -> list[int]:
    """Returns the numbers of the calls that are made to fail, from 1."""
    return [number for number, name in enumerate(calls, 1) if name not in SAMPLED or number % SAMPLE == 0]


def check_failures(program: Path, calls: list[str]) -> list[str]:
    """Returns what went wrong when each call failed in turn."""
    problems, numbers = [], failing_calls(calls)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, done in zip(numbers, pool.map(lambda number: run(program, str(number)), numbers)):
            name = calls[number - 1]
            where = f"when call {number}, {name}, fails"
            if done.returncode != 0:
                problems.append(f"{where}: exit code {done.returncode}; {done.stderr.strip()}")
            elif done.stdout.strip() == "none" and name not in UNREPORTED:
                problems.append(f"{where}: no error is reported")
            elif len(done.stdout.splitlines()) != 1:
                problems.append(f"{where}: the error is not one line: {done.stdout!r}")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--gcov", required=True)
    options = parser.parse_args()
    build = options.build.resolve()
    program, objects = build / "bin" / "vendor_rank", build / "tests" / "runtime" / "cuda" / "vendor"

    for old in objects.rglob("*.gcda"):
        old.unlink()
    whole = run(program)
    calls = whole.stdout.splitlines()
    problems = [f"when every call succeeds: {line}" for line in whole.stderr.splitlines()]
    if whole.returncode != 0 and not problems:
        problems.append(f"when every call succeeds: exit code {whole.returncode}")
    if not problems:
        problems = check_failures(program, calls)

    together = run(program, "threads")
    if together.returncode != 0:
        problems.append(f"with ranks at the same time: exit code {together.returncode}; {together.stderr.strip()}")

    lines = covered_lines(options.gcov, build, objects)
    total = missing = 0
    for file, (count, missed) in lines.items():
        total, missing = total + count, missing + len(missed)
        print(f"{file:18} {count - len(missed):4} of {count:4} lines, missed: {', '.join(map(str, missed)) or 'none'}")
    covered = 1 - missing / total if total else 0
    print(f"{len(failing_calls(calls))} of {len(calls)} calls of {len(set(calls))} functions failed in turn; "
          f"{covered:.1%} of {total} lines covered")
    if covered < LEAST:
        problems.append(f"{covered:.1%} of the lines are covered, expected at least {LEAST:.0%}")
    for problem in problems[:20]:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

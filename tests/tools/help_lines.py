#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs each program with --help and --help-all: no line has more than 100 columns.

usage: help_lines.py --build DIR

The programs are fsdpc with its commands, a compiled program, and the Python tools in tools/ that this Python can import.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
import harness
from harness import Failure

COLUMNS = 100
TOOLS = harness.PROGRAMS.parents[1] / "tools"
# The commands that take the flags of a compile, which alone have --help-all.
COMPILES = ([], ["check"], ["simulate"], ["tune"])
COMMANDS = (["run"], ["top"], ["ckpt"], ["export"], ["diff"], ["calibrate"], ["doctor"], ["completion"])


def help_of(words: list) -> str | None:
    """Returns what the program prints, or None if this Python lacks a module that it needs."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          env={**os.environ, "COLUMNS": str(COLUMNS + 2)}, timeout=harness.TIMEOUT)  # argparse leaves two
    if done.returncode and re.search(r"No module named", done.stderr):
        return None
    if done.returncode or not done.stdout.strip():
        raise Failure(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def subcommands(text: str) -> list[str]:
    """The subcommands that a help of CLI11 or argparse lists."""
    if listed := re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE):
        return re.findall(r"^  (\w\S*)", listed[1], re.MULTILINE)
    listed = re.search(r"^  \{([\w,-]+)\}$", text, re.MULTILINE)
    return listed[1].split(",") if listed else []


def test(bench, options):
    fsdpc = bench.build / "bin/fsdpc"
    program = bench.compile_fixture(harness.fixture("linears"), "program", "-q")
    cases = [[fsdpc, *command, flag] for command in COMPILES for flag in ("--help", "--help-all")]
    cases += [[fsdpc, *command, "--help"] for command in COMMANDS]
    cases += [[program, "--help"], [program, "--help-all"]]
    scripts = [path for path in sorted(TOOLS.rglob("*")) if path.is_file() and (path.suffix == ".py" or path.name == "fsdpc-data")]
    cases += [[sys.executable, path, "--help"] for path in scripts if "argparse" in path.read_text() or "harness.main" in path.read_text()]
    wide, lines, skipped = [], 0, 0
    while cases:
        case = cases.pop(0)
        text = help_of(case)
        if text is None:
            skipped += 1
            continue
        lines += len(text.splitlines())
        name = " ".join(Path(word).name if isinstance(word, Path) else word for word in case)
        wide += [f"{name}: {len(line)}: {line}" for line in text.splitlines() if len(line) > COLUMNS]
        if case[-1] == "--help":
            cases += [[*case[:-1], name, "--help"] for name in subcommands(text)]
    print(f"{lines} lines of help; {skipped} tools lack a module")
    if wide:
        raise Failure(f"{len(wide)} lines of help have more than {COLUMNS} columns:\n" + "\n".join(wide))


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

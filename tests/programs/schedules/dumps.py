#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that each dump compiles to the same program, and that an edited schedule either runs or is refused.

usage: dumps.py --build DIR [MODEL] [--every K]

Compiling from each dump (every K-th with --every) must give the same program hash as compiling from the model; those of the phase
runtime are output only and must be refused. Then gathers are moved and frees removed in the scheduled dump: a legal schedule must
give the same bits, and an illegal one must be refused. edited_dumps.py tries random edits.
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

START = r"^ *(?P<token>%\S+) = fsdp\.all_gather_start .*\n"


def lines_of(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def moved(text: str, which: int, by: int) -> str:
    """Moves the all_gather_start with index `which` by that many lines."""
    lines = lines_of(text)
    starts = [i for i, line in enumerate(lines) if re.match(START, line)]
    line = lines.pop(starts[which])
    lines.insert(starts[which] + by, line)
    return "".join(lines)


def without_free(text: str) -> str:
    """Removes the first fsdp.free."""
    return re.sub(r"^ *fsdp\.free .*\n", "", text, count=1, flags=re.MULTILINE)


def free_early(text: str) -> str:
    """Moves the first fsdp.free right behind the wait that produced its operand."""
    lines = lines_of(text)
    at = next(i for i, line in enumerate(lines) if re.match(r" *fsdp\.free ", line))
    value = lines[at].split()[1].split("#")[0]
    wait = next(i for i, line in enumerate(lines) if re.match(rf" *{re.escape(value)}(:\d+)? = fsdp\.all_gather_wait", line))
    lines.insert(wait + 1, lines.pop(at))
    return "".join(lines)


def wait_twice(text: str) -> str:
    return re.sub(r"^( *)(%\S+?)(:\d+)?( = fsdp\.all_gather_wait .*\n)", r"\1\2\3\4\1%again\3\4", text, count=1,
                  flags=re.MULTILINE)


EDITS = {                                     # name -> (edit, True if it must run, None if it may)
    "start-earlier": (lambda text: moved(text, -1, -4), True),
    "start-much-earlier": (lambda text: moved(text, -1, -60), None),
    "start-later": (lambda text: moved(text, -1, 4), None),
    "start-after-wait": (lambda text: moved(text, 1, 80), False),
    "never-freed": (without_free, False),
    "freed-before-use": (free_early, False),
    "waited-twice": (wait_twice, False),
}


def round_trip(bench, fixture, folder, options) -> None:
    program = bench.compile_fixture(fixture, "whole", f"--dump-ir={folder}")
    expected = harness.info(program)["program hash"]
    dumps = sorted(folder.glob("[0-9][0-9]-*.mlir"))
    print(f"{len(dumps)} dumps, program hash {expected}")
    different = []
    last = dumps.index(harness.dump(folder, "verify-memory"))
    for dump in dumps[last + 1:]:
        done = harness.run([*bench.compiler(dump), "-o", bench.path("refused")], expected=1)
        if "is output only; edit and compile the dump of 'verify-memory' instead" not in done.stderr:
            raise Failure(f"'{dump.name}' is refused, but not as output only: {done.stderr}")
    for dump in dumps[:last + 1:options.every]:
        found = harness.info(bench.compile(dump, "resumed"))["program hash"]
        print(f"{'same' if found == expected else 'DIFFERENT'}  {dump.name}", flush=True)
        if found != expected:
            different.append(dump.name)
    if different:
        raise Failure(f"these dumps compile to a different program: {', '.join(different)}")


def hand_edits(bench, fixture, folder) -> None:
    source = harness.dump(folder, "schedule-prefetch")
    bits = bench.train(bench.path("whole"), fixture, 2, steps=2).bits()
    for name, (edit, must_run) in EDITS.items():
        copy = harness.edited(source, name, edit)
        done = subprocess.run([*bench.compiler(copy), "-o", bench.path(name)], capture_output=True, text=True)
        if done.returncode == 0 and must_run is False:
            raise Failure(f"the schedule '{name}' is accepted")
        if done.returncode == 0:
            if bench.train(bench.path(name), fixture, 2, steps=2).bits() != bits:
                raise Failure(f"the schedule '{name}' changes bits")
            print(f"runs     {name}")
        elif done.returncode == 1 and must_run:
            raise Failure(f"the schedule '{name}' is refused: {done.stderr[-2000:]}")
        elif done.returncode == 1 and "error:" in done.stderr:
            print(f"refused  {name}: {done.stderr.strip().splitlines()[0]}", flush=True)
        else:
            raise Failure(f"the schedule '{name}' exits with code {done.returncode}: {done.stderr[-2000:]}")


def test(bench, options):
    fixture = harness.fixture(options.model)
    folder = bench.path("ir")
    round_trip(bench, fixture, folder, options)
    hand_edits(bench, fixture, folder)


def arguments(parser):
    parser.add_argument("model", nargs="?", default="gpt", metavar="MODEL")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="compile only every K-th dump (default: every one)")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

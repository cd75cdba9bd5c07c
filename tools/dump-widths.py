#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints how many ops of the dumps of the fixtures fit their lines, and reads dumps back.

usage: dump-widths.py --build DIR [FIXTURE…] [--full] [--width N] [--at-least PERCENT] [--round-trip]

A line per dump: its ops, the share of those whose lines have at most N characters (default: 160), the share of those in a single
line, and the longest line. Without names it takes all fixtures. --full measures the dumps of --dump-full. --at-least ends in exit code 1 if a
dump has a smaller share. --round-trip reads some dumps of each fixture back in both forms, and compares the modules.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "programs"))
import harness  # noqa: E402  the tests' helpers: compile a fixture, read its dumps
from harness import Failure  # noqa: E402

# The dumps behind which most of a text changes: passes between them only add to it.
READ_BACK = ("import", "cse", "build-update", "annotate-costs", "schedule-prefetch", "verify-memory")


def ops_of(text: str) -> list[list[str]]:
    """The lines of each op. Names of attributes and locations are none, nor are brackets that end a region."""
    ops, indent = [], 0
    for line in text.splitlines():
        own = len(line) - len(line.lstrip())
        if ops and own >= indent + 8:
            ops[-1].append(line)
            continue
        ops.append([line])
        indent = own
    return [lines for lines in ops if lines[0].strip() and lines[0].lstrip()[0] not in "#}"]


def measure(path: Path, width: int) -> tuple[int, float, float, int]:
    """Returns the ops of a dump, the percentages that fit the width and a single line of it, and the longest line."""
    ops = ops_of(path.read_text())
    fits = [all(len(line) <= width for line in lines) for lines in ops]
    single = [fit and len(lines) == 1 for fit, lines in zip(fits, ops)]
    return len(ops), 100 * sum(fits) / len(ops), 100 * sum(single) / len(ops), max(len(line) for lines in ops for line in lines)


def read_back(bench, path: Path) -> str:
    return harness.run([*bench.compiler(path), "-q", "--compile-to=import", "-o", "-"]).stdout


def compare_forms(bench, fixture, short: Path) -> None:
    full = bench.path(f"{fixture.name}-full")
    bench.compile_fixture(fixture, f"{fixture.name}-full.mlir", "-q", "--compile-to=memory", f"--dump-ir={full}", "--dump-full")
    for name in READ_BACK:
        if read_back(bench, harness.dump(short, name)) != read_back(bench, harness.dump(full, name)):
            raise Failure(f"the short and the full dump of '{name}' of '{fixture.name}' differ when they are read")


def test(bench, options):
    print(f"{'dump':56} {'ops':>6} {'fit %':>7} {'one line %':>11} {'longest':>8}")
    narrow, every = [], []
    for name in options.fixtures or harness.fixtures():
        fixture, folder = harness.fixture(name), bench.path(name)
        form = ["--dump-full"] if options.full else []
        bench.compile_fixture(fixture, f"{name}.mlir", "-q", "--compile-to=runtime", f"--dump-ir={folder}", *form)
        for path in sorted(folder.glob("[0-9][0-9]-*.mlir")):
            ops, fit, single, longest = measure(path, options.width)
            print(f"{name + ' ' + path.stem:56} {ops:6} {fit:7.1f} {single:11.1f} {longest:8}", flush=True)
            every.append((fit, single))
            if fit < options.at_least:
                narrow.append(f"{name} {path.stem}: {fit:.1f} %")
        if options.round_trip:
            compare_forms(bench, fixture, folder)
    fit, single = (sorted(values) for values in zip(*every))
    print(f"least {fit[0]:.1f} % fit, {single[0]:.1f} % in a line; median {fit[len(fit) // 2]:.1f} % and {single[len(single) // 2]:.1f} %")
    if narrow:
        raise Failure(f"less than {options.at_least:g} % of the ops fit {options.width} characters:\n" + "\n".join(narrow))


def arguments(parser):
    parser.add_argument("fixtures", nargs="*", metavar="FIXTURE", help="default: all")
    parser.add_argument("--full", action="store_true", help="measure the dumps of --dump-full")
    parser.add_argument("--width", type=int, default=160, metavar="N", help="characters of a line (default: 160)")
    parser.add_argument("--at-least", type=float, default=0, metavar="PERCENT", help="fail if a smaller share of a dump's ops fits")
    parser.add_argument("--round-trip", action="store_true", help="read dumps of both forms back, and compare the modules")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

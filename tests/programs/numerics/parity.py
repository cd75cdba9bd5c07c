#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares compiled programs with their PyTorch references, for every model and number of ranks.

usage: parity.py --build DIR [MODEL…] [--ranks 1,2,3,4] [--strategy zero3] [--local]

Every run has the reference's twelve microbatches per step, divided among the ranks. Prints the worst figures of each model.
"""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure


def test(bench, options):
    failed = []
    for name in options.models or harness.fixtures():
        fixture = harness.fixture(name)
        began = time.monotonic()
        try:
            program = bench.compile_fixture(fixture, name, f"--strategy={options.strategy}")
        except Failure as failure:
            print(f"--- {name}: {failure}")
            failed.append(f"{name} (compile)")
            continue
        print(f"--- {name}: compiled in {time.monotonic() - began:.1f} s")
        for ranks in map(int, options.ranks.split(",")):
            began = time.monotonic()
            try:
                training = bench.train(program, fixture, ranks, local=options.local)
            except Failure as failure:
                print(f"--- {name}, {ranks} ranks: {failure}")
                failed.append(f"{name} ({ranks} ranks, run)")
                continue
            seconds = time.monotonic() - began
            within, report = harness.compare(fixture, training)
            print(f"--- {name}, {ranks} ranks, {seconds:.1f} s\n{report}", end="", flush=True)
            if not within:
                failed.append(f"{name} ({ranks} ranks)")
    if failed:
        raise Failure(f"over a limit or not run: {', '.join(failed)}")


def arguments(parser):
    parser.add_argument("models", nargs="*", metavar="MODEL", help="references to compare with (default: all)")
    parser.add_argument("--ranks", default="1,2,3,4", help="numbers of ranks (default: 1,2,3,4)")
    parser.add_argument("--strategy", default="zero3")
    parser.add_argument("--local", action="store_true", help="run ranks as threads instead of under mpirun")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

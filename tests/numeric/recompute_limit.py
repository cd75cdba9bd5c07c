#!/usr/bin/env python3
"""Checks what --recompute=auto computes again for a memory limit.

Between the least and the default peak every limit is kept, and a smaller one never has fewer units computed again. The bits
stay those without a limit. Below the least peak, which the error names, nothing is compiled.

usage: recompute_limit.py --build DIR [MODEL]
"""
import re
import sys

import harness
from harness import Failure

LIMITS = 8                                    # between the least and the default peak


def peak_of_error(bench, model, limit: str, *flags: str) -> int:
    command = [bench.build / "bin" / "fsdpc", model, "-o", bench.path("refused"), f"--memory-limit={limit}", *flags]
    found = re.search(r"peak memory of (\d+) bytes", harness.run(command, expected=1).stderr)
    if not found:
        raise Failure(f"the error about --memory-limit={limit} names no peak")
    return int(found[1])


def compiled(bench, model, name: str, *flags: str):
    """Returns a program and the units that its backward computes again, which the summary lists."""
    folder, program = bench.path(f"{name}-ir"), bench.path(name)
    summary = harness.run([bench.build / "bin" / "fsdpc", model, "-o", program, "--plan-ranks=1", f"--dump-ir={folder}", *flags]).stdout
    units = re.findall(r"fsdp\.unit @(\S+) \{.*\brecompute\b", harness.dump(folder, "recompute").read_text())
    listed = re.search("^computed again .*: (.*)$", summary, re.MULTILINE)
    if (listed[1].split() if listed else []) != units:
        raise Failure(f"the summary does not list the units that are computed again, {units}:\n{summary}")
    return program, units


def losses(bench, program, fixture) -> tuple:
    return bench.train(program, fixture, 1, local=True, steps=2, accumulate=1).bits()


def test(bench, options):
    fixture = harness.fixture(options.model)
    flags = fixture.compiling
    default = peak_of_error(bench, fixture.model, "1KiB", "--plan-ranks=1", "--recompute=cheap", *flags)
    least = peak_of_error(bench, fixture.model, "1KiB", "--plan-ranks=1", *flags)
    print(f"peak: {default} bytes by default, {least} with all units computed again")
    if least >= default:
        raise Failure("computing units again frees nothing; the test needs a larger model")
    expected = losses(bench, compiled(bench, fixture.model, "free", *flags)[0], fixture)
    before = None
    for part in range(LIMITS + 1):
        limit = least + (default - least) * part // LIMITS
        program, units = compiled(bench, fixture.model, f"limit{part}", f"--memory-limit={limit}", *flags)
        print(f"limit {limit}: computed again: {' '.join(units) or 'no unit'}", flush=True)
        if before is not None and len(units) > len(before):
            raise Failure(f"more memory, but more units are computed again: {units} after {before}")
        if losses(bench, program, fixture) != expected:
            raise Failure(f"the bits with --memory-limit={limit} differ from those without")
        before = units
    if before:
        raise Failure(f"the default peak of {default} bytes is allowed, but {before} are computed again")
    if peak_of_error(bench, fixture.model, str(least - 1), "--plan-ranks=1", *flags) != least:
        raise Failure("the least peak depends on the limit")


def arguments(parser):
    parser.add_argument("model", nargs="?", default="gpt", metavar="MODEL", help="a reference's name (default: gpt)")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test, arguments))

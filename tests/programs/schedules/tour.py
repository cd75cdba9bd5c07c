#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the IR in docs/tour.md occurs in the dumps of the model that it follows.

usage: tour.py --build DIR

A comment above each block names its dump. The lines of the block must occur in
that dump, in order; … matches any text. Names of values are compared too, since
the page refers to the same ones from line to line.
"""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

PAGE = harness.PROGRAMS.parent.parent / "docs" / "tour.md"
BLOCK = re.compile(r"<!-- dump: (\S+) -->\n```mlir\n(.*?)```", re.S)


def pattern(line: str) -> re.Pattern:
    """Matches a line of a dump; … matches any text, and white space any white space."""
    parts = [r"\s+".join(re.escape(word) for word in part.split()) for part in line.strip().split("…")]
    return re.compile(r".*?".join(parts))


def missing(block: str, dump: list[str]) -> str | None:
    """Returns the first line of the block that does not occur in the dump after the previous lines."""
    at = 0
    for line in filter(str.strip, block.splitlines()):
        wanted = pattern(line)
        at = next((i + 1 for i in range(at, len(dump)) if wanted.search(dump[i])), None)
        if at is None:
            return line
    return None


def test(bench, options):
    folder = bench.path("dumps")
    bench.compile(harness.MODELS / "gpt.onnx", "tour", "--machine=h100", f"--dump-ir={folder}")
    blocks = BLOCK.findall(PAGE.read_text())
    if len(blocks) < 10:
        raise Failure(f"'{PAGE}' has {len(blocks)} blocks of IR with the name of a dump, expected at least ten")
    for name, block in blocks:
        if not (folder / name).exists():
            raise Failure(f"'{PAGE}' shows '{name}', but the compile wrote no such dump")
        line = missing(block, harness.op_lines((folder / name).read_text()).splitlines())
        if line:
            raise Failure(f"'{PAGE}' shows a line that does not occur in '{name}' in this order: {line}")
    print(f"{len(blocks)} blocks of IR are in the dumps")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

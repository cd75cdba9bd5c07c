#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the example of docs/schedule-dump.md: its edits give the figures in its table, and its error.

usage: schedule_doc.py --build DIR
"""
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

PAGE = harness.PROGRAMS.parents[1] / "docs" / "schedule-dump.md"
START = r"fsdp\.all_gather_start \[@h\.1\.flat\] "


def moved(text: str, pattern: str, anchor: str, by: int) -> str:
    """Moves the first line that matches `pattern` to `by` lines from the first that matches `anchor`."""
    lines = text.splitlines(keepends=True)
    line = lines.pop(next(i for i, line in enumerate(lines) if re.search(pattern, line)))
    lines.insert(next(i for i, line in enumerate(lines) if re.search(anchor, line)) + by, line)
    return "".join(lines)


def figures(module: str) -> tuple[str, str, str]:
    """Returns, of a step, the exposed time of the first gather of h.1 and of all waits, and the arena's bytes, as the page prints them."""
    module = re.sub(r"\n  func\.func @evaluate\(.*?\n  }[^\n]*", "", module, flags=re.S)
    token = re.search(rf"(%\S+) = {START}", module)[1]
    wait = float(re.search(rf"all_gather_wait {token} .*?fsdp\.exposed_us = (\S+) ", module)[1])
    waits = [float(value) for value in re.findall(r"fsdp\.exposed_us = (\S+) ", module)]
    arena = re.search(r"fsdp\.arena = \{.*?\bbytes = (\d+)", module)[1]
    return f"{wait:g} us", f"{sum(waits):.1f} us", f"{arena} bytes"


def test(bench, options):
    page = PAGE.read_text()
    fsdpc, model = bench.build / "bin" / "fsdpc", harness.MODELS / "gpt.onnx"
    ir, out = bench.path("ir"), bench.path("out.mlir")
    harness.run([fsdpc, model, "-o", out, "--compile-to=memory", "--unit-class=*Block", "--prefetch=none", f"--dump-ir={ir}"])
    source = harness.dump(ir, "schedule-prefetch")
    if source.name not in page:
        raise Failure(f"the page does not mention '{source.name}'")
    edits = {
        "unchanged": lambda text: text + "\n",
        "moved after the wait of `h.0`": lambda text: moved(text, START, r"= fsdp\.all_gather_wait .*fsdp\.unit = @h\.0\b", 1),
        "moved before the start of `h.0`": lambda text: moved(text, START, r"fsdp\.all_gather_start \[@h\.0\.flat\]", 0),
    }
    stale = []
    for number, (name, edit) in enumerate(edits.items()):
        harness.run([fsdpc, harness.edited(source, f"{number}", edit), "-o", out, "--compile-to=memory"])
        row = " | ".join(["| " + name, *figures(out.read_text())]) + " |"
        print(row)
        if row not in page:
            stale.append(row)
    if stale:
        raise Failure("these rows are missing in the page's table:\n" + "\n".join(stale))
    early = harness.edited(source, "early", lambda text: moved(text, r"fsdp\.free .*fsdp\.unit = @h\.0\b",
                                                               r"= fsdp\.all_gather_wait .*fsdp\.unit = @h\.0\b", 8))
    done = subprocess.run([fsdpc, early, "-o", out, "--compile-to=memory"], capture_output=True, text=True)
    print(done.stderr, end="")
    if done.returncode != 1 or done.stderr.splitlines()[0] not in page:
        raise Failure(f"the error is missing in the page, or the edit is accepted (exit code {done.returncode})")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

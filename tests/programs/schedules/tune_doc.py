#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the commands of docs/tune.md, in their order, in a folder that looks like a checkout.

usage: tune_doc.py --build DIR

The schedule that the page edits must have the same losses and a shorter predicted step. That is not measured here, beside other tests.
But `fsdpc tune --measure` must run on the nodes of its machine, whose slow link no step outruns.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import harness
from harness import Failure

ROOT = harness.PROGRAMS.parents[1]
PAGE = ROOT / "docs" / "tune.md"
LINK_MS = 80                                  # 5 MB at 0.05 GB/s take 100


def log_of(path) -> tuple[float, list[float]]:
    """Returns the predicted step and the losses in a log."""
    header, *lines = map(json.loads, path.read_text().splitlines())
    return header["predicted_step_ms"], [line["loss"] for line in lines if "step_ms" in line]


def test(bench, options):
    blocks = re.findall(r"^    (.*)$", PAGE.read_text(), re.MULTILINE)
    commands = [line for line in blocks if re.match(r"(FSDPC_\w+=\S+ )?(fsdpc|sed|mpirun|\./)", line)]
    if len(commands) < 8:
        raise Failure(f"the page has only {len(commands)} commands")
    for name in ("tests", "README.md"):
        bench.path(name).symlink_to(ROOT / name)
    environment = {**os.environ, "PATH": f"{bench.build / 'bin'}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    tuned = ""
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=bench.folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=harness.TIMEOUT)
        if command.endswith("--measure=1"):
            tuned = done.stdout
        print(f"$ {command}\n{done.stdout}{done.stderr}", flush=True)
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode} of: {command}\n{done.stderr[-2000:]}")
    for written in ("none.html", "none.json", "front.json", "measured.html"):
        if bench.path(written).stat().st_size < 1000:
            raise Failure(f"'{written}' is empty")
    (before, losses), (after, same) = (log_of(bench.path(name)) for name in ("none.jsonl", "hand.jsonl"))
    if losses != same:
        raise Failure(f"the edited schedule has losses of {same} instead of {losses}")
    if after > 0.9 * before:
        raise Failure(f"the edited schedule takes {after} ms as predicted, and the one before {before} ms")
    measured = re.search(r"measured ms.*\n *[\d.]+ +([\d.]+)", tuned)
    if not measured or float(measured[1]) < LINK_MS:
        raise Failure(f"the slow link alone takes {LINK_MS} ms, but 'fsdpc tune' has measured:\n{tuned}")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))

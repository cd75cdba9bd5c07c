#!/usr/bin/env python3
"""Runs the commands of docs/tune.md, in their order, in a folder that looks like a checkout.

usage: tune_doc.py --build DIR
"""
import os
import re
import subprocess
import sys

import harness
from harness import Failure

ROOT = harness.NUMERIC.parents[1]
PAGE = ROOT / "docs" / "tune.md"


def test(bench, options):
    commands = re.findall(r"^    (.*)$", PAGE.read_text(), re.MULTILINE)
    if len(commands) < 8:
        raise Failure(f"the page has only {len(commands)} commands")
    for name in ("tests", "README.md"):
        bench.path(name).symlink_to(ROOT / name)
    environment = {**os.environ, "PATH": f"{bench.build / 'bin'}:{os.environ['PATH']}"}
    for command in commands:
        done = subprocess.run(["bash", "-c", command], cwd=bench.folder, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=harness.TIMEOUT)
        print(f"$ {command}\n{done.stdout}{done.stderr}", flush=True)
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode} of: {command}\n{done.stderr[-2000:]}")
    for written in ("none.html", "none.json", "front.json", "measured.html"):
        if bench.path(written).stat().st_size < 1000:
            raise Failure(f"'{written}' is empty")


if __name__ == "__main__":
    sys.exit(harness.main(__doc__, test))
